"""Folders of media files, with and without attributes."""

import json
import struct
import wave
import zlib
from pathlib import Path
from typing import Any

import datasets
import pytest

from penstock.errors import BadRow, CorruptShard, FileUnusable, TooManyBadRows
from penstock.formats.contract import Policy
from penstock.formats.media import files as files_module
from penstock.registry import Registry
from penstock.store import open_store
from tests.formats.damage import BLOCK_BYTES, assert_flips_are_found, assert_rows


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def png(side: int, grey: int) -> bytes:
    """A real picture, written by hand."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = b"".join(b"\0" + bytes([(grey * 7 + at * at) % 256 for at in range(side)]) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels, 0)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def folder(tmp_path: Path, count: int = 6) -> Path:
    """Pictures of a few hundred bytes to some 90 KB, in two folders."""
    top = tmp_path / "pictures"
    for number in range(count):
        path = top / ("cats", "dogs")[number % 2] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(10 + number * 60, number))
    return top


def rows(top: Path, more: dict[str, dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    paths = sorted(path for path in top.rglob("*.*") if not path.name.startswith("metadata"))
    names = [path.relative_to(top).as_posix() for path in paths]
    return [
        {"path": name, "bytes": path.read_bytes(), **(more or {}).get(name, {})}
        for name, path in zip(names, paths, strict=True)
    ]


def write_attributes(top: Path, lines: list[dict[str, Any]]) -> Path:
    path = top / "metadata.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_folder_is_one_row_per_file(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path)
    version = registry.register("pictures", top)
    assert version.manifest.format == "files"
    assert [shard.name for shard in version.manifest.shards] == ["files-00000"]
    assert version.bytes == sum(path.stat().st_size for path in top.rglob("*.png"))
    assert_rows(version, rows(top))
    assert version.verify().ok


def test_a_flipped_bit_is_found_in_the_file_that_has_it(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path)
    version = registry.register("pictures", top)
    large = top / "dogs/005.png"
    assert large.stat().st_size > BLOCK_BYTES
    for path in (large, top / "cats/000.png"):
        assert_flips_are_found(registry, version, path, rows(top))


def test_damage_of_one_file_leaves_the_others_readable(tmp_path: Path, registry: Registry) -> None:
    """Method: change, cut, lengthen and remove one small file; its neighbours still come back."""
    top = folder(tmp_path)
    version = registry.register("pictures", top)
    expected = rows(top)
    hurt = top / "cats/002.png"
    at = next(at for at, row in enumerate(expected) if row["path"] == "cats/002.png")
    whole = hurt.read_bytes()
    for changed, offset in [(whole[:-1] + b"?", 0), (whole[:50], 50), (whole + b"x", len(whole)), (None, 0)]:
        hurt.unlink()
        if changed is not None:
            hurt.write_bytes(changed)
        fresh = registry.resolve(version.address)
        others = [number for number in range(len(expected)) if number != at]
        assert fresh.take(others) == [expected[number] for number in others]
        with pytest.raises(CorruptShard) as caught:
            fresh[at]
        assert (caught.value.shard, caught.value.offset) == (str(hurt), offset)
        damages = fresh.verify().damages
        assert [(damage.file, damage.offset) for damage in damages] == [(str(hurt), offset)]
        if changed is None:
            hurt.write_bytes(b"")


def test_all_damaged_files_are_listed(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path)
    version = registry.register("pictures", top)
    for path in top.rglob("*.png"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    damages = version.verify().damages
    assert sorted({damage.file for damage in damages}) == sorted(str(path) for path in top.rglob("*.png"))


def test_names_are_part_of_what_a_folder_is(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path)
    first = registry.register("pictures", top)
    assert registry.register("pictures", top).digest == first.digest
    (top / "cats/000.png").rename(top / "cats/00a.png")
    second = registry.register("pictures", top)
    assert second.number == 2
    assert second.manifest.shards[0].digest != first.manifest.shards[0].digest


def test_many_files_make_several_shards(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "MEMBERS_MAX", 4)
    top = folder(tmp_path, 10)
    names = [row["path"] for row in rows(top)]
    write_attributes(top, [{"file_name": name, "n": at} for at, name in enumerate(reversed(names))])
    version = registry.register("pictures", top)
    assert [shard.rows for shard in version.manifest.shards] == [4, 4, 2]
    more = {name: {"n": len(names) - 1 - at} for at, name in enumerate(names)}
    assert_rows(version, rows(top, more))
    # A row about a file that is not there is found whichever shard it would belong to.
    for extra in ("aaa.png", "cats/003.png", "zzz.png"):
        lines = [{"file_name": name, "n": 1} for name in [*names, extra]]
        write_attributes(top, lines)
        with pytest.raises(BadRow, match=f"row 11 .*it is about {extra!r}, which is not among the files"):
            registry.register("pictures", top)


def test_attributes_are_joined_by_file_name(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path)
    names = [row["path"] for row in rows(top)]
    values = {
        name: {"text": f"bild \u00fc {at}", "score": 0.1 + at, "boxes": [[at, 2]], "big": 2**70 + at}
        for at, name in enumerate(names)
    }
    path = write_attributes(top, [{"file_name": name, **values[name]} for name in reversed(names)])
    version = registry.register("pictures", top)
    assert_rows(version, rows(top, values))
    kinds = [(field.name, field.kind, field.optional) for field in version.schema][2:]
    assert kinds[:3] == [("text", "string", False), ("score", "float", False), ("boxes", "list", False)]
    # They are kept in the index; a change of their file is damage all the same.
    path.write_bytes(path.read_bytes().replace(b"bild", b"Bild"))
    assert [damage.file for damage in version.verify().damages] == [str(path)]
    assert_rows(registry.resolve("pictures"), rows(top, values))
    # Registered again, they are another version.
    assert registry.register("pictures", top).number == 2


def test_attributes_of_a_table_have_kinds_and_may_be_missing(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path, 4)
    (top / "metadata.csv").write_text(
        'file_name,label,note\ncats/000.png,3,"a, b"\ncats/002.png,,\ndogs/001.png,1,c\ndogs/003.png,2,d\n'
    )
    expected = {
        "cats/000.png": {"label": 3, "note": "a, b"},
        "cats/002.png": {"label": None, "note": None},
        "dogs/001.png": {"label": 1, "note": "c"},
        "dogs/003.png": {"label": 2, "note": "d"},
    }
    version = registry.register("pictures", top)
    assert_rows(version, rows(top, expected))
    assert [(field.name, field.kind, field.optional) for field in version.schema][2:] == [
        ("label", "int", True),
        ("note", "string", True),
    ]


def test_attributes_in_one_folder_are_about_that_folder(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path, 4)
    write_attributes(top / "dogs", [{"file_name": "001.png", "n": 1}, {"file_name": "./003.png", "n": 3}])
    version = registry.register("pictures", top)
    assert_rows(version, rows(top, {"dogs/001.png": {"n": 1}, "dogs/003.png": {"n": 3}}))
    assert version.schema[2].optional


def test_hugging_face_joins_the_same_attributes(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path, 4)
    names = [row["path"] for row in rows(top)]
    write_attributes(top, [{"file_name": name, "n": at} for at, name in enumerate(names)])
    version = registry.register("pictures", top)
    theirs = datasets.load_dataset(
        "imagefolder", data_dir=str(top), split="train", cache_dir=str(tmp_path / "cache")
    ).cast_column("image", datasets.Image(decode=False))
    numbers = {Path(row["image"]["path"]).relative_to(top).as_posix(): row["n"] for row in theirs}
    assert numbers == {row["path"]: row["n"] for row in version}


@pytest.mark.parametrize(
    ("change", "file", "reason"),
    [
        (lambda lines: lines[:-1], "dogs/003.png", "metadata.jsonl has no row about it"),
        (lambda lines: [*lines, lines[0]], "metadata.jsonl", "a row before it is about 'cats/000.png' too"),
        (lambda lines: [*lines, {"file_name": "x.png", "n": 1}], "metadata.jsonl", "not among the files"),
        (lambda lines: [*lines, {"n": 1}], "metadata.jsonl", "its file_name is None"),
        (
            lambda lines: [*lines, {"file_name": "y", "n": "one"}],
            "metadata.jsonl",
            "field `n` is string here",
        ),
    ],
)
def test_attributes_that_do_not_fit_fail_or_are_listed(
    tmp_path: Path, registry: Registry, change: Any, file: str, reason: str
) -> None:
    top = folder(tmp_path, 4)
    names = [row["path"] for row in rows(top)]
    write_attributes(top, change([{"file_name": name, "n": at} for at, name in enumerate(names)]))
    with pytest.raises(BadRow) as caught:
        registry.register("pictures", top)
    assert caught.value.shard == str(top / file)
    assert reason in caught.value.reason
    version = registry.register("pictures", top, policy=Policy(skip_bad=3))
    (skipped,) = version.manifest.skipped
    assert skipped.reason.startswith(f"{file}: ")
    assert str(tmp_path) not in skipped.reason
    assert version.rows == (3 if file == "dogs/003.png" else 4)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("metadata.jsonl", '{"name": "a"}\n', "no column 'file_name'"),
        ("metadata.jsonl", '{"file_name": "a", "bytes": 1}\n', "may not be called 'bytes'"),
        ("metadata.csv", "file_name,file_name\n1,2\n", "names column `file_name` twice"),
        ("metadata.csv", "", "the file is empty"),
    ],
)
def test_files_of_attributes_that_make_no_sense_are_refused(
    tmp_path: Path, registry: Registry, name: str, text: str, reason: str
) -> None:
    top = folder(tmp_path, 2)
    (top / name).write_text(text)
    with pytest.raises(FileUnusable, match=reason) as caught:
        registry.register("pictures", top, format="files")
    assert caught.value.path == str(top / name)
    (top / "metadata.jsonl").write_text("{}")
    (top / "metadata.csv").write_text("file_name\n")
    with pytest.raises(FileUnusable, match="another file of attributes"):
        registry.register("pictures", top, format="files")


def test_empty_and_huge_files_fail_or_are_listed(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path, 4)
    (top / "cats/0.png").write_bytes(b"")
    policy = Policy(row_bytes_max=20_000)
    with pytest.raises(BadRow, match=r"0.png, row 1 .*the file is empty"):
        registry.register("pictures", top, policy=policy)
    with pytest.raises(TooManyBadRows, match="more than 1 bad rows"):
        registry.register("pictures", top, policy=Policy(row_bytes_max=20_000, skip_bad=1))
    version = registry.register("pictures", top, policy=Policy(row_bytes_max=20_000, skip_bad=3))
    assert [bad.reason.partition(":")[0] for bad in version.manifest.skipped] == [
        "cats/0.png",
        "dogs/003.png",
    ]
    assert [row["path"] for row in version] == ["cats/000.png", "cats/002.png", "dogs/001.png"]
    assert version.verify().ok


def test_a_folder_that_moved_is_found(tmp_path: Path, registry: Registry) -> None:
    top = folder(tmp_path)
    expected = rows(top)
    registry.register("pictures", top)
    top.rename(tmp_path / "moved")
    registry.relocate("pictures", {str(top): str(tmp_path / "moved")})
    assert_rows(registry.resolve("pictures"), expected)


def test_files_in_an_object_store_are_read_and_checked(registry: Registry) -> None:
    store = open_store("memory://test-files/pictures")
    expected = [{"path": f"{n}.png", "bytes": png(10 + n * 200, n), "n": n} for n in range(7)]
    for row in expected:
        store.put_if_absent(row["path"], row["bytes"])
    table = "file_name,n\n" + "".join(f"{row['path']},{row['n']}\n" for row in expected)
    store.put_if_absent("metadata.csv", table.encode())
    version = registry.register("pictures", "memory://test-files/pictures")
    assert version.verify().ok
    changes = [(2, expected[2]["bytes"][:-1] + b"?", 131072), (4, expected[4]["bytes"][:9], 9), (6, None, 0)]
    for number, data, _ in changes:
        store.delete(f"{number}.png")
        if data is not None:
            store.put_if_absent(f"{number}.png", data)
    damages = [(damage.file, damage.offset) for damage in version.verify().damages]
    assert damages == [
        (f"memory://test-files/pictures/{number}.png", offset) for number, _, offset in changes
    ]
    fresh = registry.resolve("pictures")
    for number, _, offset in changes:
        with pytest.raises(CorruptShard) as caught:
            fresh[number]
        assert (caught.value.shard, caught.value.offset) == (f"{store.url}/{number}.png", offset)
    assert fresh.take([5, 0, 3, 1]) == [expected[number] for number in (5, 0, 3, 1)]
    for number, _, _ in changes:
        store.delete(f"{number}.png")
        store.put_if_absent(f"{number}.png", expected[number]["bytes"])
    assert_rows(fresh, expected)


def test_any_files_are_rows_when_asked_for(tmp_path: Path, registry: Registry) -> None:
    top = tmp_path / "texts"
    top.mkdir()
    for number in range(3):
        (top / f"{number}.txt").write_text(f"first {number}\nsecond\n")
    assert_rows(registry.register("texts", top, format="files"), rows(top))


def test_media_are_recognised_by_their_content(tmp_path: Path, registry: Registry) -> None:
    with wave.open(str(tmp_path / "sound"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(100))
    beginnings = {
        "jpeg": b"\xff\xd8\xff\xe0",
        "gif": b"GIF89a",
        "webp": b"RIFF\x10\0\0\0WEBP",
        "flac": b"fLaC",
        "ogg": b"OggS",
        "mp3": b"ID3\x04",
        "mp4": b"\0\0\0\x18ftypmp42",
        "pdf": b"%PDF-1.7",
        "mkv": b"\x1a\x45\xdf\xa3",
    }
    for name, head in beginnings.items():
        (tmp_path / name).write_bytes(head + bytes(100))
    for name in ["sound", *beginnings]:
        assert registry.register(name, tmp_path / name).manifest.format == "files"
