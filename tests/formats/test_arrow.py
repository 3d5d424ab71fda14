"""Arrow IPC files and streams, written by pyarrow and by Hugging Face datasets."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from penstock.errors import BadRow, FileUnusable
from penstock.formats.columnar import survey
from penstock.formats.contract import Policy
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path

ROWS = 1_500


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def table(*, dictionary: bool = False) -> pa.Table:
    numbers = range(ROWS)
    labels = pa.array([("cat", "dog", None)[number % 3] for number in numbers])
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "text": ["r\u00e4tsel " * (number % 30) for number in numbers],
            "label": labels.dictionary_encode() if dictionary else labels,
            "nested": [{"a": [number, None], "b": b"\0\xff" * (number % 5)} for number in numbers],
            "view": pa.array([f"view {number}" * 3 for number in numbers], pa.string_view()),
        }
    )


def write(
    path: Path, data: pa.Table, *, stream: bool, compression: str | None = None, chunk: int = 200
) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, make(sink, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=chunk)
    return path


def rows() -> list[dict[str, Any]]:
    return table().to_pylist()


@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_come_back_exactly(
    tmp_path: Path, registry: Registry, stream: bool, compression: str | None
) -> None:
    path = write(tmp_path / "a.arrow", table(), stream=stream, compression=compression)
    version = registry.register("a", path)
    assert version.manifest.format == "arrow"
    assert not version.manifest.shards[0].derived
    assert_rows(version, rows())
    kinds = [(field.name, field.kind, field.optional) for field in version.schema]
    assert kinds == [
        ("id", "int", False),
        ("text", "string", False),
        ("label", "string", True),
        ("nested", "object", False),
        ("view", "string", False),
    ]


def test_feather_is_an_arrow_file(tmp_path: Path, registry: Registry) -> None:
    pyarrow.feather.write_feather(table(dictionary=True), tmp_path / "a.feather", chunksize=333)
    assert_rows(registry.register("a", tmp_path / "a.feather"), rows())


def test_what_hugging_face_saves_is_read(tmp_path: Path, registry: Registry) -> None:
    expected = [{"text": f"row {n}", "n": n, "tags": ["a", "b"][: n % 3]} for n in range(3_000)]
    datasets.Dataset.from_list(expected).save_to_disk(tmp_path / "saved", num_shards=3, num_proc=None)
    version = registry.register("hf", tmp_path / "saved")
    assert len(version.manifest.shards) == 3
    assert_rows(version, expected)


@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_a_flipped_bit_is_found(tmp_path: Path, registry: Registry, stream: bool) -> None:
    path = write(tmp_path / "a.arrow", table(), stream=stream)
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, rows())
    assert_cuts_are_found(registry, version, path)


def test_a_stream_with_dictionaries_is_read_through_a_copy(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a.arrow", table(dictionary=True), stream=True)
    version = registry.register("a", path)
    copy = copy_path(registry, version)
    assert_rows(version, rows())
    assert_flips_are_found(registry, version, copy, rows(), every=3)
    assert_flips_are_found(registry, version, path, rows(), read=False, every=6)


@pytest.mark.parametrize("limit", ["UNIT_BYTES_MAX", "UNITS_MAX"])
@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_huge_and_too_many_batches_are_read_through_a_copy(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, limit: str, stream: bool
) -> None:
    monkeypatch.setattr(survey, limit, 5)
    monkeypatch.setattr(survey, "COPY_BATCH_BYTES", 50_000)
    path = write(tmp_path / "a.arrow", table(), stream=stream, chunk=7 if limit == "UNITS_MAX" else 10_000)
    version = registry.register("a", path)
    assert 4 < pa.ipc.open_file(copy_path(registry, version)).num_record_batches < 20
    assert_rows(version, rows())


def test_files_and_streams_that_are_not_whole_are_refused(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "bad.arrow"
    whole = write(tmp_path / "file.arrow", table(), stream=False).read_bytes()
    stream = write(tmp_path / "stream.arrow", table(), stream=True).read_bytes()
    for bad, reason in [
        (whole[:-1], "truncated"),
        (whole[: len(whole) // 2], "truncated"),
        (whole[: len(whole) // 2] + b"ARROW1", "not an Arrow file that can be read"),
        (stream[:-8], "no end mark"),
        (stream[:-4], "not arrow that can be read"),
        (stream[: len(stream) // 2], "not arrow that can be read"),
        (stream + stream, "data after the end of the stream"),
        (b"FEA1" + whole, "Feather version 1"),
        (b"hello, world", "not an Arrow stream that can be read"),
    ]:
        path.write_bytes(bad)
        with pytest.raises(FileUnusable, match=reason) as caught:
            registry.register("bad", path, format="arrow")
        assert caught.value.path == str(path)


@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_damage_from_before_is_never_a_raw_exception(
    tmp_path: Path, registry: Registry, stream: bool
) -> None:
    data = write(tmp_path / "whole.arrow", table(), stream=stream, compression="zstd").read_bytes()
    path = tmp_path / "bad.arrow"
    refused = 0
    for part in range(30):
        place = part * len(data) // 30
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :])
        try:
            assert len(list(registry.register(f"bad-{part}", path, format="arrow"))) <= ROWS
        except (FileUnusable, BadRow):
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_bad_rows_fail_by_number_or_are_listed(tmp_path: Path, registry: Registry, stream: bool) -> None:
    texts = [b"short"] * 60
    texts[25] = b"\xff"
    texts[41] = b"x" * 9_000
    data = pa.table({"n": list(range(60)), "text": pa.array(texts).view(pa.string())})
    path = write(tmp_path / "a.arrow", data, stream=stream, chunk=20)
    with pytest.raises(BadRow, match=r"row 26 .*UTF8") as caught:
        registry.register("a", path)
    assert 0 < caught.value.offset < path.stat().st_size
    version = registry.register("a", path, policy=Policy(row_bytes_max=2_000, skip_bad=2))
    assert [bad.line for bad in version.manifest.skipped] == [26, 42]
    assert_rows(version, [{"n": n, "text": "short"} for n in range(60) if n not in (25, 41)])


def test_no_rows_are_refused(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a.arrow", table().slice(0, 0), stream=True)
    with pytest.raises(FileUnusable, match="no rows"):
        registry.register("a", path)


def big_endian(stream: bytes, body: bytes) -> bytes:
    """A stream of one batch as a machine of the other byte order writes it: its schema says so, and its numbers are turned round."""
    data = bytearray(stream)
    message = 8
    table = message + int.from_bytes(data[message : message + 4], "little")
    fields = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    header = table + int.from_bytes(data[fields + 8 : fields + 10], "little")
    schema = header + int.from_bytes(data[header : header + 4], "little")
    slots = schema - int.from_bytes(data[schema : schema + 4], "little", signed=True)
    # The byte order is left out where it is the usual one, so the field is made to point at a 1 among the schema's notes.
    one = data.index(b"\x01\0\x01\0")
    data[slots + 4 : slots + 6] = (one - schema).to_bytes(2, "little")
    return bytes(data).replace(body, np.frombuffer(body, "<i4").byteswap().tobytes())


def test_a_stream_of_the_other_byte_order_has_the_peers_values(registry: Registry, tmp_path: Path) -> None:
    numbers = np.arange(-500, 500, dtype=np.int32)
    data = pa.table({"id": numbers, "again": numbers}).replace_schema_metadata({"one": b"\x01\0\x01\0"})
    write(tmp_path / "usual.arrows", data, stream=True, chunk=1000)
    turned = big_endian((tmp_path / "usual.arrows").read_bytes(), numbers.tobytes())
    (tmp_path / "turned.arrows").write_bytes(turned)
    assert pa.ipc.open_stream(turned).read_all().to_pylist() == data.to_pylist()

    version = registry.register("some", tmp_path / "turned.arrows")

    assert list(version) == data.to_pylist()


def test_names_that_are_no_text_are_said_of_the_file(registry: Registry, tmp_path: Path) -> None:
    for stream in (True, False):
        write(tmp_path / "some.arrow", pa.table({"name_to_spoil": [1, 2]}), stream=stream)
        spoilt = (tmp_path / "some.arrow").read_bytes().replace(b"name_to_spoil", b"name_\xff\xfe_spoil")
        (tmp_path / "spoilt.arrow").write_bytes(spoilt)
        with pytest.raises(FileUnusable, match=r"spoilt\.arrow.* can be read"):
            registry.register("some", tmp_path / "spoilt.arrow", format="arrow")


def test_a_union_that_pyarrow_cannot_measure_is_refused(registry: Registry, tmp_path: Path) -> None:
    """Goal: no file ends the process. Method: a sparse union whose type codes are not its places, which crashes pyarrow's ``nbytes``."""
    children = [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    for name, codes in (("odd", [5, 7]), ("even", [0, 1])):
        kinds = pa.array([codes[0], codes[1], codes[0]], pa.int8())
        union = pa.UnionArray.from_sparse(kinds, children, ["x", "y"], codes)
        write(tmp_path / f"{name}.arrow", pa.table({"some": union}), stream=True)
    with pytest.raises(FileUnusable, match=r"sparse union with type codes \[5, 7\]"):
        registry.register("some", tmp_path / "odd.arrow")
    assert [row["some"] for row in registry.register("some", tmp_path / "even.arrow")] == [1, "b", 3]


@pytest.mark.parametrize("stream", [True, False])
def test_dictionaries_of_lists_are_looked_up(registry: Registry, tmp_path: Path, stream: bool) -> None:
    values = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int16()))
    column = pa.DictionaryArray.from_arrays(pa.array([3, 0, None, 1, 2, 0], pa.int8()), values)
    write(tmp_path / "some.arrow", pa.table({"some": column}), stream=stream)

    version = registry.register("some", tmp_path / "some.arrow")

    assert [row["some"] for row in version] == [[3], [1, 2], None, None, [], [1, 2]]
