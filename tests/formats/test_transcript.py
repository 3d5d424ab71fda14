"""JSON as people have it: arrays, objects over several lines, UTF-16, bzip2, xz and lz4, and what Python writes for NaN."""

import bz2
import gzip
import json
import lzma
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadRow, FileUnusable, UsageError
from penstock.formats.contract import Policy
from penstock.formats.lines.transcript import Form, transcribe
from penstock.registry import Registry
from tests.formats.damage import assert_flips_are_found, assert_rows, copy_path, same

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "text": f'größe "{number}"\n[,]{{}} 日本 \\ ' * (number % 9),
        "score": number / 7,
        "tags": ["a", None, {"deep": [number, []]}][: number % 4],
        "about": {},
        "ok": number % 2 == 0,
    }
    for number in range(400)
]

LAYOUTS: dict[str, Callable[[], str]] = {
    "array": lambda: json.dumps(ROWS),
    "array, indented": lambda: json.dumps(ROWS, indent=2, ensure_ascii=False),
    "array, a row a line": lambda: "[\r\n" + ",\r\n".join(json.dumps(row) for row in ROWS) + "\r\n]\r\n",
    "objects, indented": lambda: "\n".join(json.dumps(row, indent="\t") for row in ROWS),
    "objects, indented, without space between": lambda: "".join(json.dumps(row, indent=1) for row in ROWS),
    "lines": lambda: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS),
}


def as_lz4(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as out:
        out.write(data)
    return bytes(sink.getvalue())


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lz4": as_lz4,
}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_json_of_any_layout_gives_its_objects(
    tmp_path: Path, registry: Registry, layout: str, encoding: str
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(LAYOUTS[layout]().encode(encoding))
    version = registry.register("a", path)
    assert version.manifest.format == "jsonl"
    assert_rows(version, ROWS)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("layout", ["array, indented", "lines"])
def test_json_is_read_out_of_every_compression(
    tmp_path: Path, registry: Registry, layout: str, packing: str
) -> None:
    path = tmp_path / f"a.json{packing}"
    path.write_bytes(PACKINGS[packing](LAYOUTS[layout]().encode()))
    assert_rows(registry.register("a", path), ROWS)


@pytest.mark.parametrize("packing", [".bz2", ".xz"])
def test_streams_one_after_another_are_one_file(tmp_path: Path, registry: Registry, packing: str) -> None:
    """As pbzip2 and `cat a.xz b.xz` write them."""
    text = LAYOUTS["lines"]().encode()
    half = text.index(b"\n", len(text) // 2) + 1
    path = tmp_path / f"a.jsonl{packing}"
    path.write_bytes(PACKINGS[packing](text[:half]) + PACKINGS[packing](text[half:]))
    assert_rows(registry.register("a", path), ROWS)


def test_what_follows_a_stream_is_never_passed_over(tmp_path: Path, registry: Registry) -> None:
    """Python's own readers do; zeros after xz are padding."""
    row = b'{"a": 1}\n'
    for packing in (".bz2", ".xz"):
        path = tmp_path / f"a.jsonl{packing}"
        path.write_bytes(PACKINGS[packing](row) + b"garbage")
        with pytest.raises(FileUnusable, match="decompressed"):
            registry.register("a", path)
    path.write_bytes(lzma.compress(row) + b"\0" * 4 + lzma.compress(row) + b"\0" * 8)
    assert_rows(registry.register("a", path), [{"a": 1}, {"a": 1}])


@pytest.mark.parametrize("packing", PACKINGS)
def test_nothing_inside_is_no_rows(tmp_path: Path, registry: Registry, packing: str) -> None:
    path = tmp_path / f"a.jsonl{packing}"
    path.write_bytes(PACKINGS[packing](b""))
    with pytest.raises(FileUnusable, match=r"no rows|empty"):
        registry.register("a", path)


def test_a_number_of_any_length_is_left_to_the_scan(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}, {"a": ' + "9" * 5_000 + "}]")
    with pytest.raises(BadRow, match="out of range"):
        registry.register("a", path)


def test_text_and_tables_come_in_them_too(tmp_path: Path, registry: Registry) -> None:
    for packing in (".bz2", ".xz", ".lz4"):
        for encoding in ("utf-8", "utf-16"):
            name = f"{packing[1:]}-{encoding}"
            text = tmp_path / f"{name}.txt{packing}"
            text.write_bytes(PACKINGS[packing]("eins\nzwöi\r\n\nтри\n".encode(encoding)))
            assert [row["text"] for row in registry.register(f"t.{name}", text)] == ["eins", "zwöi", "три"]
            table = tmp_path / f"{name}.csv{packing}"
            table.write_bytes(PACKINGS[packing]('a,b\n1,"x\ny"\n2,ü\n'.encode(encoding)))
            assert_rows(registry.register(f"c.{name}", table), [{"a": 1, "b": "x\ny"}, {"a": 2, "b": "ü"}])


def test_flips_of_a_file_and_of_its_copy_are_found_and_the_copy_is_made_again(
    tmp_path: Path, registry: Registry
) -> None:
    path = tmp_path / "a.json.xz"
    path.write_bytes(lzma.compress(LAYOUTS["array, indented"]().encode("utf-16")))
    version = registry.register("a", path)
    copy = copy_path(registry, version)
    assert_flips_are_found(registry, version, copy, ROWS, every=8)
    assert_flips_are_found(registry, version, path, ROWS, read=False, every=8)
    before = copy.read_bytes()
    copy.unlink()
    assert_rows(registry.resolve("a"), ROWS)
    assert copy.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"a": 1}, {"a": 2}', "byte 19): the array has no end"),
        ('[{"a": 1} {"a": 2}]', "byte 10): expected `,` or `]`"),
        ('[{"a": 1},]', "byte 10): expected an element"),
        ('[{"a": 1}] x', "byte 11): nothing may follow the array"),
        ('[{"a": 1}, {"a": tru}]', "JSON value 2 (byte 17): Expecting value"),
        ('{\n"a": 1\n}\n{\n"a": 2', "JSON value 2 (byte 19): Expecting"),
    ],
)
def test_a_broken_text_says_where(tmp_path: Path, registry: Registry, text: str, reason: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FileUnusable) as caught:
        registry.register("a", path, policy=Policy(skip_bad=5))
    assert reason in caught.value.reason
    assert "mend the file" in str(caught.value.hint)


def test_elements_that_are_no_rows_are_named_or_left_out(tmp_path: Path, registry: Registry) -> None:
    """Their places are those of the file itself: a transcript moves nothing."""
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"a": 1},\n 17,\n {"a": "x"},\n {"a": "\xff"},\n {"a": 2, "a": 3}, {"a": 4}]')
    with pytest.raises(BadRow) as caught:
        registry.register("a", path)
    assert (caught.value.line, caught.value.offset) == (2, 10)
    version = registry.register("a", path, policy=Policy(skip_bad=4))
    assert_rows(version, [{"a": 1}, {"a": 4}])
    assert [bad.line for bad in version.manifest.skipped] == [2, 3, 4, 5]


def test_a_first_line_that_is_broken_is_a_bad_line_and_no_object_over_several(
    tmp_path: Path, registry: Registry
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1\n{"a": 2}\n{"a": 3}\n')
    with pytest.raises(BadRow) as caught:
        registry.register("a", path)
    assert caught.value.line == 1
    assert_rows(registry.register("a", path, policy=Policy(skip_bad=1)), [{"a": 2}, {"a": 3}])


def test_text_that_only_claims_to_be_utf_16_is_refused(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xfea\0\n\0\x00\xd8b")
    with pytest.raises(FileUnusable, match="not UTF-16"):
        registry.register("a", path)


def test_a_cut_compressed_file_is_refused(tmp_path: Path, registry: Registry) -> None:
    for packing in (".bz2", ".xz"):
        path = tmp_path / f"a.jsonl{packing}"
        path.write_bytes(PACKINGS[packing](LAYOUTS["lines"]().encode())[:-20])
        with pytest.raises(FileUnusable, match="decompressed"):
            registry.register("a", path, format="jsonl")


NAN_ROWS = [{"a": 1.5, "b": [1.0]}, {"a": math.nan, "b": [math.inf, -math.inf]}, {"a": 2.0, "b": []}]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json"])
def test_nan_as_python_writes_it_follows_the_policy(tmp_path: Path, registry: Registry, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    text = json.dumps(NAN_ROWS) if suffix == ".json" else "\n".join(json.dumps(row) for row in NAN_ROWS)
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
    with pytest.raises(
        BadRow, match=r"`NaN` is not JSON; `--nan float` or `--nan null` lets it pass"
    ) as caught:
        registry.register("a", path)
    assert caught.value.line == 2
    floats = registry.register("floats", path, policy=Policy(nan="float"))
    assert_rows(floats, NAN_ROWS)
    assert [(field.kind, field.optional) for field in floats.schema] == [("float", False), ("list", False)]
    nulls = registry.register("nulls", path, policy=Policy(nan="null"))
    assert_rows(nulls, [NAN_ROWS[0], {"a": None, "b": [None, None]}, NAN_ROWS[2]])
    assert [(field.kind, field.optional) for field in nulls.schema] == [("float", True), ("list", False)]
    assert floats.digest != nulls.digest
    if suffix != ".jsonl":
        copy_path(registry, floats).unlink()
        assert same(list(registry.resolve("floats")), NAN_ROWS)


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"nan": "zero"}, {"per": "page"}, {"delimiter": ";;"}, {"delimiter": "\n"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Policy(**wrong)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_LISTS = st.lists(_LEAVES, max_size=3)
_VALUES = _LEAVES | _LISTS | st.dictionaries(st.text(max_size=3), _LEAVES | _LISTS, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.text(max_size=4), _VALUES, max_size=4), max_size=6),
    indent=st.sampled_from([None, 0, 3]),
    in_array=st.booleans(),
    cut=st.integers(1, 40),
)
def test_a_transcript_has_the_values_of_the_text_however_it_comes(
    rows: list[dict[str, Any]], indent: int | None, in_array: bool, cut: int
) -> None:
    """Goal: what Python writes is what a transcript holds. Method: any rows, in pieces of any size."""
    texts = [json.dumps(row, indent=indent, ensure_ascii=False) for row in rows]
    text = ("[" + ", ".join(texts) + " ]" if in_array else "\n ".join(texts)).encode()
    pieces = iter([text[at : at + cut] for at in range(0, len(text), cut)])
    form = Form(layout="array" if in_array else "values")
    transcript = b"".join(transcribe(form, pieces, "a.json", 1 << 20))
    assert same([json.loads(line) for line in transcript.splitlines() if line.strip()], rows)
    assert len(transcript) <= len(text) + 1
