"""Names, versions, tags, lineage and differences, on every kind of store."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import About, Policy, Registry, errors
from penstock.registry.manifest import FORM, encode
from tests.registry.conftest import WriteRows


def ids(rows: list[dict[str, int]]) -> list[int]:
    return [row["id"] for row in rows]


def test_registered_files_are_rows_at_random(
    registry: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    write_rows("a.jsonl", 0, 100)
    write_rows("b.jsonl", 100, 50)
    before = {path: path.read_bytes() for path in (tmp_path / "raw").iterdir()}

    version = registry.register(
        "web", [tmp_path / "raw/*.jsonl"], about=About(note="first", owner="me", licence="CC0")
    )

    assert (version.name, version.number, version.address, version.rows) == ("web", 1, "web@1", 150)
    assert version.bytes == sum(len(data) for data in before.values())
    assert [(field.name, field.kind) for field in version.schema] == [("id", "int"), ("text", "string")]
    assert version[17]["id"] == 17
    assert version[-1]["id"] == 149
    assert ids(version.take([149, 3, 100, 3])) == [149, 3, 100, 3]
    assert ids(list(version)) == list(range(150))
    assert version.take([]) == []
    assert version.verify().ok
    assert (version.about.note, version.about.owner, version.about.licence) == ("first", "me", "CC0")
    assert {path: path.read_bytes() for path in (tmp_path / "raw").iterdir()} == before


def test_an_arrow_table_has_the_rows_of_its_range(local: Registry, write_rows: WriteRows) -> None:
    version = local.register("web", write_rows("a.jsonl"))
    table = version.to_arrow(range(10, 20))
    assert table.column("id").to_pylist() == list(range(10, 20))
    assert version.to_arrow().num_rows == 100


@pytest.mark.parametrize("row", [100, -101, 10**12])
def test_a_row_that_is_not_there_is_a_typed_index_error(
    local: Registry, write_rows: WriteRows, row: int
) -> None:
    version = local.register("web", write_rows("a.jsonl"))
    with pytest.raises(errors.RowOutOfRange) as caught:
        version[row]
    assert (caught.value.row, caught.value.rows) == (row, 100)
    assert isinstance(caught.value, IndexError)


def test_the_same_bytes_are_the_same_version(
    registry: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    first = registry.register("web", write_rows("a.jsonl"))
    again = registry.register("web", tmp_path / "raw/a.jsonl", about=About(note="again"))
    assert again.address == first.address
    assert again.digest == first.digest
    assert len(registry.versions("web")) == 1


def test_other_bytes_are_the_next_version_and_old_ones_stay(
    registry: Registry, write_rows: WriteRows
) -> None:
    first = registry.register("web", write_rows("a.jsonl", 0, 10))
    second = registry.register("web", write_rows("b.jsonl", 0, 11))
    assert (first.number, second.number) == (1, 2)
    assert [v.address for v in registry.versions("web")] == ["web@1", "web@2"]
    assert registry.resolve("web").number == 2
    assert registry.resolve("web@1").digest == first.digest


def test_addresses(registry: Registry, write_rows: WriteRows) -> None:
    version = registry.register("org/web", write_rows("a.jsonl"))
    registry.register("code", write_rows("b.jsonl", count=5))
    assert registry.datasets() == ["code", "org/web"]
    assert registry.resolve("org/web@1").address == "org/web@1"
    assert registry.resolve(f"org/web@{version.digest[:10]}").number == 1
    for address, problem in {
        "org/web@2": errors.AddressUnknown,
        "org/web@gold": errors.AddressUnknown,
        "nothing": errors.AddressUnknown,
        "org/web@b3:ffffffffff": errors.AddressUnknown,
        "org/web@b3:f": errors.AddressInvalid,
        "org/web@": errors.AddressInvalid,
        "../web": errors.AddressInvalid,
        "web web": errors.AddressInvalid,
    }.items():
        with pytest.raises(problem):
            registry.resolve(address)
    with pytest.raises(errors.AddressUnknown) as caught:
        registry.resolve("org/web@7")
    assert "org/web@1" in (caught.value.hint or "")


def test_a_tag_moves_and_keeps_its_history(registry: Registry, write_rows: WriteRows) -> None:
    registry.register("web", write_rows("a.jsonl", count=1))
    registry.register("web", write_rows("b.jsonl", count=2))
    registry.tag("web@1", "gold")
    assert registry.resolve("web@gold").number == 1
    registry.tag("web@2", "gold")
    registry.tag("web@1", "old")
    assert registry.resolve("web@gold").number == 2
    assert registry.tags("web") == {"gold": 2, "old": 1}
    assert len(list(registry.store.entries("tags/web/gold"))) == 2
    for word in ("17", "b3:ff", "with space", ""):
        with pytest.raises(errors.AddressInvalid):
            registry.tag("web@1", word)


def test_lineage_names_parents_and_children(registry: Registry, write_rows: WriteRows) -> None:
    raw = registry.register("raw", write_rows("a.jsonl", count=3))
    clean = registry.register(
        "clean", write_rows("b.jsonl", count=2), about=About(derived_from=(raw.digest,))
    )
    registry.register(
        "cleaner", write_rows("c.jsonl", count=1), about=About(derived_from=(clean.digest, "b3:unknown"))
    )

    above = registry.lineage("cleaner")
    assert [parent.address for parent in above.parents] == ["clean@1", "b3:unknown"]
    assert [parent.address for parent in above.parents[0].parents] == ["raw@1"]
    assert registry.lineage("raw").children == ["clean@1"]


def test_a_difference_counts_fields_shards_and_rows(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    write_rows("same.jsonl", 0, 10)
    write_rows("gone.jsonl", 100, 5)
    changed = write_rows("changed.jsonl", 200, 10)
    local.register("web", tmp_path / "raw")
    shutil.copytree(tmp_path / "raw", tmp_path / "next")
    (tmp_path / "next/gone.jsonl").unlink()
    lines = changed.read_text().splitlines()
    lines[3] = lines[3].replace("row 203", "row 999")
    (tmp_path / "next/changed.jsonl").write_text(
        "\n".join([*lines[:9], '{"id": 1, "text": "new"}', '{"id": 2, "text": "newer"}']) + "\n"
    )
    shutil.move(write_rows("come.jsonl", 300, 7, lang="en"), tmp_path / "next")
    local.register("web", tmp_path / "next")

    difference = local.diff("web@1", "web@2")

    assert difference.fields_added == ["lang"]
    assert difference.shards_added == ["come.jsonl"]
    assert difference.shards_removed == ["gone.jsonl"]
    assert difference.shards_changed == ["changed.jsonl"]
    assert difference.shards_equal == 1
    # Row 3 and row 9 of the changed shard differ in place; one row was appended to it, seven came, five went.
    assert (difference.rows_changed, difference.rows_added, difference.rows_removed) == (2, 8, 5)
    assert not difference.equal
    assert local.diff("web@1", "web@1").equal
    assert local.diff("web@1", "web@2", rows=False).rows_added is None


def test_moved_files_are_found_at_their_new_place(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    version = local.register("web", write_rows("a.jsonl").parent)
    shutil.move(tmp_path / "raw", tmp_path / "moved")
    with pytest.raises(errors.CorruptShard, match="gone") as caught:
        local.resolve("web").take([0])
    assert "relocate" in (caught.value.hint or "")

    moved = local.relocate("web@1", {str(tmp_path / "raw"): str(tmp_path / "moved")})

    assert moved.digest == version.digest
    assert local.resolve("web")[5]["id"] == 5


def test_registering_a_copy_elsewhere_adds_its_place(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    first = local.register("web", write_rows("a.jsonl").parent)
    shutil.copytree(tmp_path / "raw", tmp_path / "copy")
    again = local.register("web", tmp_path / "copy")
    shutil.rmtree(tmp_path / "raw")
    assert again.address == first.address
    assert local.resolve("web")[5]["id"] == 5


def test_shards_may_stay_on_s3(
    s3_bucket: str, local: Registry, write_rows: WriteRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.store import open_store

    store = open_store(f"{s3_bucket}/data")
    for number in range(3):
        store.put_if_absent(f"part-{number}.jsonl", write_rows("x.jsonl", number * 2000, 2000).read_bytes())
    version = local.register("web", [f"{s3_bucket}/data/*.jsonl"])
    assert version.rows == 6000
    assert ids(version.take([5999, 0, 2001])) == [5999, 0, 2001]
    assert version.verify().ok
    # The object is replaced behind our back.
    store.delete("part-1.jsonl")
    store.put_if_absent(
        "part-1.jsonl", write_rows("x.jsonl", 2000, 2000).read_bytes().replace(b"row 2222", b"ROW 2222")
    )
    damages = local.resolve("web").verify().damages
    assert [damage.file for damage in damages] == [f"{s3_bucket}/data/part-1.jsonl"]
    # What the host has is what was registered; without it, the change is seen.
    assert ids(local.resolve("web").take(range(2000, 4000))) == list(range(2000, 4000))
    monkeypatch.setenv("PENSTOCK_CACHE", "off")
    with pytest.raises(errors.CorruptShard, match=r"part-1\.jsonl is corrupt at byte"):
        local.resolve("web").take(range(2000, 4000))


def test_nothing_to_register_says_what_was_asked(local: Registry, tmp_path: Path) -> None:
    with pytest.raises(errors.NothingToRegister, match=r"none/\*"):
        local.register("web", tmp_path / "none/*")
    with pytest.raises(errors.NothingToRegister):
        local.register("web", tmp_path / "none.jsonl")
    (tmp_path / "blob.bin").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(errors.FileUnusable, match="no known format"):
        local.register("web", tmp_path / "blob.bin")
    with pytest.raises(errors.UsageError, match="unknown format 'xml'"):
        local.register("web", tmp_path / "blob.bin", format="xml")
    assert local.datasets() == []


def test_files_that_disagree_about_a_field_are_named(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    write_rows("a.jsonl", lang=1)
    write_rows("b.jsonl", lang="en")
    with pytest.raises(errors.SchemaMixed) as caught:
        local.register("web", tmp_path / "raw")
    assert (caught.value.field, caught.value.shard, caught.value.other_shard) == (
        "lang",
        "b.jsonl",
        "a.jsonl",
    )
    version = local.register("web", tmp_path / "raw", policy=Policy(mixed=True))
    assert {field.name: field.kind for field in version.schema}["lang"] == "mixed"


def test_a_damaged_manifest_or_record_is_refused(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    version = local.register("web", write_rows("a.jsonl"))
    path = tmp_path / "registry/objects" / version.digest.removeprefix("b3:")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"rows":100', b'"rows":101'))
    with pytest.raises(errors.ManifestDamaged, match="digest"):
        local.resolve("web")
    path.write_bytes(whole)
    record = tmp_path / "registry/datasets/web/1.json"
    record.write_text(record.read_text().replace('"form":1', '"form":99'))
    with pytest.raises(errors.ManifestNewer):
        local.resolve("web")


def test_a_damaged_index_is_refused_and_made_again(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    raw = write_rows("a.jsonl")
    version = local.register("web", raw)
    path = tmp_path / "registry/objects" / version.manifest.shards[0].index.removeprefix("b3:")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.IndexDamaged):
        local.resolve("web").take([0])
    assert not local.resolve("web").verify().ok


def test_equal_manifests_have_equal_bytes(local: Registry, write_rows: WriteRows) -> None:
    manifest = local.register("web", write_rows("a.jsonl")).manifest
    assert manifest.form == FORM
    assert encode(manifest) == encode(manifest)


#: What somebody may pass by mistake: nothing, a number, a list, a version instead of its address.
MISTAKES: list[Any] = [None, 5, 2.5, b"web", ["web"], {"web": 1}, object()]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: type(mistake).__name__)
def test_what_is_no_place_address_or_choice_is_said(
    local: Registry, write_rows: WriteRows, mistake: Any
) -> None:
    """Goal: no bare TypeError or AttributeError. Method: values of other kinds wherever the registry takes a text or a choice."""
    local.register("web", write_rows("a.jsonl", 2))
    calls: list[Callable[[], Any]] = [
        lambda: local.resolve(mistake),
        lambda: local.versions(mistake),
        lambda: local.tag("web@1", mistake),
        lambda: local.tag(mistake, "gold"),
        lambda: local.lineage(mistake),
        lambda: local.relocate("web@1", {"/old": mistake} if mistake != {"web": 1} else mistake),
        lambda: local.register(mistake, write_rows("a.jsonl", 2)),
        lambda: Policy(delimiter=mistake),
        lambda: Policy(skip_bad=mistake if mistake != 5 else -5),
        lambda: Policy(strict=mistake),
    ]
    if mistake is not None:
        calls += [
            lambda: Registry(mistake),
            lambda: Registry(local.url, scratch=mistake),
            lambda: local.relocate("web@1", mistake),
            lambda: local.register("web", write_rows("a.jsonl", 2), policy=mistake),
            lambda: local.register("web", write_rows("a.jsonl", 2), about=mistake),
            lambda: local.register("web", write_rows("a.jsonl", 2), format=mistake),
        ]
    for call in calls:
        with pytest.raises(errors.PenstockError):
            call()
