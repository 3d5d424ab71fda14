"""JSON lines: plain, zstd and gzip, written by Python's json and by Hugging Face datasets."""

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import zstandard

from penstock.errors import BadRow, FileUnusable, SchemaMixed, TooManyBadRows
from penstock.formats.contract import Policy
from penstock.formats.lines import compression
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "text": f'gr\u00fc\u00dfe "{number}"\n\ttab ' * (number % 15),
        "score": number / 7,
        "tags": ["a", None, {"deep": [number]}][: number % 4],
        "about": {"lang": "de", "n": -number},
        "ok": number % 2 == 0,
        "maybe": None if number % 3 else "x",
    }
    for number in range(2_500)
]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def encode(end: str = "\n") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=row["ok"]) + end for row in ROWS).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n"], ids=["lf", "crlf", "blank lines"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_rows_come_back_exactly(tmp_path: Path, registry: Registry, end: str, mark: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(mark + encode(end))
    version = registry.register("a", path)
    assert_rows(version, ROWS)
    assert [(field.name, field.kind, field.optional) for field in version.schema] == [
        ("id", "int", False),
        ("text", "string", False),
        ("score", "float", False),
        ("tags", "list", False),
        ("about", "object", False),
        ("ok", "bool", False),
        ("maybe", "string", True),
    ]


def test_a_last_line_without_an_end_is_a_row(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}')
    assert_rows(registry.register("a", path), [{"a": 1}, {"a": 2}])


def test_what_hugging_face_writes_is_read(tmp_path: Path, registry: Registry) -> None:
    # It writes ten digits of a float, and columns have one type.
    expected = [{**row, "score": row["id"] / 8, "tags": [str(row["id"])]} for row in ROWS]
    datasets.Dataset.from_list(expected).to_json(tmp_path / "hf.jsonl")
    assert_rows(registry.register("hf", tmp_path / "hf.jsonl"), expected)


def test_a_flipped_bit_is_found(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode())
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, ROWS)
    assert_cuts_are_found(registry, version, path)


def test_many_frames_are_read_in_place(tmp_path: Path, registry: Registry) -> None:
    """Rows cross frames, and a skippable frame (as pzstd writes) stands between them."""
    text = encode()
    frames = [zstandard.compress(text[at : at + 20_000]) for at in range(0, len(text), 20_000)]
    frames.insert(1, b"\x50\x2a\x4d\x18\x04\0\0\0abcd")
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(frames))
    version = registry.register("a", path)
    assert version.manifest.format == "jsonl"
    assert not version.manifest.shards[0].derived
    assert_rows(version, ROWS)
    assert_flips_are_found(registry, version, path, ROWS)
    assert_cuts_are_found(registry, version, path)


@pytest.mark.parametrize("packing", ["zst", "gz"])
def test_a_single_stream_is_read_through_a_copy(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    monkeypatch.setattr(compression, "FRAME_BYTES_MAX", 100_000)
    path = tmp_path / f"a.jsonl.{packing}"
    path.write_bytes(zstandard.compress(encode()) if packing == "zst" else gzip.compress(encode(), mtime=0))
    version = registry.register("a", path)
    copy = copy_path(registry, version)
    assert_rows(version, ROWS)
    assert_flips_are_found(registry, version, copy, ROWS, every=4)
    assert_flips_are_found(registry, version, path, ROWS, read=False, every=8)
    before = copy.read_bytes()
    copy.unlink()
    assert_rows(registry.resolve("a"), ROWS)
    assert copy.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1', "expected `,` or `}`"),
        (b'{"a": 1} x', "nothing may follow the object"),
        (b'{"a": tru}', "expected a value"),
        (b"[1, 2]", "object"),
        (b"17", "object"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"a": "\\ud800"}', "an unpaired surrogate"),
        (b'{"a": 1, "a": 2}', "field `a` appears twice"),
        (b'{"a": "one"}', "field `a` is string here, but int since line 1"),
        (b'{"a": 1, "b": "' + b"x" * 2_000 + b'"}', "longer than 1000 bytes"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst", "jsonl.gz"])
def test_bad_lines_fail_by_number_or_are_listed(
    tmp_path: Path, registry: Registry, line: bytes, reason: str, suffix: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    text = b'{"a": 1}\n\n' + line + b'\n{"a": 2}\n'
    pack = {"jsonl": bytes, "jsonl.zst": zstandard.compress, "jsonl.gz": gzip.compress}[suffix]
    path.write_bytes(pack(text))
    with pytest.raises(BadRow) as caught:
        registry.register("a", path, policy=Policy(row_bytes_max=1000))
    assert (caught.value.shard, caught.value.line, caught.value.offset) == (str(path), 3, 10)
    assert reason in caught.value.reason
    version = registry.register("a", path, policy=Policy(row_bytes_max=1000, skip_bad=1))
    assert_rows(version, [{"a": 1}, {"a": 2}])
    (skipped,) = version.manifest.skipped
    assert (skipped.shard, skipped.line, skipped.offset) == (path.name, 3, 10)
    assert skipped.reason == caught.value.reason


def test_more_bad_lines_than_allowed_are_an_error(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n' + "?\n" * 5)
    with pytest.raises(TooManyBadRows, match="more than 4 bad rows"):
        registry.register("a", path, policy=Policy(skip_bad=4))
    assert len(registry.register("a", path, policy=Policy(skip_bad=5)).manifest.skipped) == 5


def test_mixed_kinds_are_allowed_when_asked_for(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": "x"}\n{"a": [1]}\n')
    version = registry.register("a", path, policy=Policy(mixed=True))
    assert_rows(version, [{"a": 1}, {"a": "x"}, {"a": [1]}])
    assert version.schema[0].kind == "mixed"


def test_files_that_disagree_are_named(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "1.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "2.jsonl").write_text('{"a": "x"}\n')
    with pytest.raises(SchemaMixed, match=r"field 'a' is string in 2.jsonl but int in 1.jsonl"):
        registry.register("a", tmp_path / "*.jsonl")


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", gzip.compress(b"")], ids=["empty", "blank", "gzip"])
def test_files_without_rows_are_refused(tmp_path: Path, registry: Registry, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(FileUnusable) as caught:
        registry.register("a", path, format="jsonl")
    assert caught.value.path == str(path)


def test_a_number_that_no_reader_can_hold_is_a_bad_line(tmp_path: Path, registry: Registry) -> None:
    """Goal: what is registered can be read. The grammar allows 1e400; a float does not."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1.5e300}\n{"a": 1e400}\n')
    with pytest.raises(BadRow) as caught:
        registry.register("a", path)
    assert caught.value.line == 2


def test_a_file_of_another_format_among_others_is_called_that(tmp_path: Path, registry: Registry) -> None:
    """Mending rows, or leaving them out, would not help."""
    for number in range(40):
        (tmp_path / f"{number:02}.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "01.jsonl").write_text("a,b\n1,2\n3,4\n")
    for policy in (Policy(), Policy(skip_bad=1)):
        with pytest.raises(FileUnusable, match=r"01\.jsonl: it is csv, not jsonl") as caught:
            registry.register("a", tmp_path / "*.jsonl", policy=policy)
        assert "--format csv" in str(caught.value.hint)
