"""MDS samples are vouched for while they are summed; the decoder is asked about the others, and has the last word."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BadRow
from penstock.formats.contract import Policy, Scanned
from penstock.formats.samples.mds import Mds
from penstock.formats.samples.mds_columns import Columns
from penstock.formats.scan_files import as_raw
from penstock.formats.shard_bytes import KnownRows, scan_known, silent
from penstock.registry import Registry

#: Values of each encoding, from which others are made by damage.
VALUES = {
    "str": ["", "water", "日本語"],
    "json": [
        "1",
        '{"a": [1.5e3, "\\u00e9", null]}',
        '"x"',
        "NaN",
        '"\\ud800"',
        "9" * 4400,
        "[" * 300 + "]" * 300,
    ],
    "str_int": ["7", "-12", "1_0", " 3 ", "٣", "8" * 4301],
    "str_float": ["1.5", "-inf", "1_0.5", "1e999", ".5"],
    "str_decimal": ["1.50", "1e5", "NaN", "1E+99999999999999999999"],
    "bytes": ["", "abc"],
    "jpeg_array": [b"\x00\x00\x00\x00", struct.pack("<III", 2, 1, 2) + b"abc"],
    "list[png]": [bytes(8), struct.pack("<III", 9, 1, 2) + b"ab"],
    "ndarray": [b"\x08\x04\x02ab", b"\x21\x09\x01\x00\x02\x00abcdefgh", b"\x08\x04\x00", b"\x08\x00a"],
    "ndarray:int32": [b"\x04\x01abcd", b"\x08\x01\x02abcdefgh", b"\x04\x00"],
    "ndarray::3": [b"\x08abc", b"\x08\x04\x03abc"],
}


def joined(values: list[bytes]) -> bytes:
    return struct.pack(f"<{len(values)}I", *map(len, values)) + b"".join(values)


def scanned(folder: Path, columns: Columns, samples: list[bytes], policy: Policy | None = None) -> Scanned:
    """What the first pass says of samples, without the decoder."""
    path = folder / "samples"
    path.write_bytes(b"".join(samples))
    lengths = np.array([len(sample) for sample in samples], dtype=np.uint32)
    ends = np.cumsum(lengths, dtype=np.uint64)
    known = KnownRows(
        rows=len(samples),
        schema=[],
        offsets=np.ascontiguousarray(ends - lengths),
        lengths=lengths,
        mds_columns=columns.promises(),
    )
    return scan_known("mds", as_raw(path), policy or Policy(), folder / "index", silent, known)


@st.composite
def damaged(draw: st.DrawFn, encoding: str) -> bytes:
    """A value, often with a byte changed, left out or put in."""
    value = draw(st.sampled_from(VALUES[encoding]))
    data = bytearray(value.encode() if isinstance(value, str) else value)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, min(len(data), 40)))
        data[at : at + draw(st.integers(0, 1))] = draw(
            st.sampled_from([b"", b"\xff", b"1", b'"', b"\x00", b"-", b"."])
        )
    return bytes(data)


@pytest.mark.parametrize("encoding", VALUES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_vouched_for_can_be_decoded(tmp_path: Path, encoding: str, data: st.DataObject) -> None:
    """Goal: no sample is registered that cannot be read. Method: damaged samples, judged in Rust and by the decoder."""
    columns = Columns(["a", "b"], [encoding, "str"])
    values = data.draw(st.lists(damaged(encoding), min_size=1, max_size=8))
    samples = [joined([value, b"text"])[: None if n % 5 else -1] for n, value in enumerate(values, start=1)]
    doubtful = set(scanned(tmp_path, columns, samples).doubtful.tolist())
    undecodable = {n for n, sample in enumerate(samples) if columns.problem(memoryview(sample)) is not None}
    assert undecodable <= doubtful


def test_usual_samples_are_never_decoded(tmp_path: Path) -> None:
    """Goal: registration runs at the speed of reading. Method: no usual value of any encoding is doubtful."""
    usual: dict[str, bytes] = {
        "str": b"text",
        "json": b'{"a": [1, 2.5, "x"]}',
        "str_int": b"-7",
        "str_float": b"1.5e-3",
        "str_decimal": b"1.50",
        "bytes": b"\xff",
        "pil": b"\xff",
        "jpeg_array": struct.pack("<II", 1, 2) + b"ab",
        "list[jpeg]": struct.pack("<III", 0, 1, 2) + b"ab",
        "ndarray": b"\x08\x04\x02ab",
        "ndarray:int32": b"\x04\x01abcd",
    }
    columns = Columns([*usual, "number", "int", "shaped"], [*usual, "float16", "int", "ndarray:int16:2,3"])
    sample = joined(list(usual.values())) + bytes(2 + 8 + 12)
    assert columns.problem(memoryview(sample)) is None
    assert scanned(tmp_path, columns, [sample] * 3).doubtful.tolist() == []
    assert scanned(tmp_path, columns, [sample, sample[:-1], sample]).doubtful.tolist() == [1]


def shard(encodings: dict[str, str], samples: list[bytes]) -> bytes:
    config = {
        "column_encodings": list(encodings.values()),
        "column_names": list(encodings),
        "column_sizes": Columns(list(encodings), list(encodings.values())).sizes,
        "format": "mds",
        "version": 2,
    }
    text = json.dumps(config).encode()
    offsets = np.cumsum([8 + 4 * len(samples) + len(text), *map(len, samples)])
    return struct.pack(f"<I{len(offsets)}I", len(samples), *offsets.tolist()) + text + b"".join(samples)


def test_doubtful_samples_that_decode_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.mds"
    values = [[b"1", b"5"], [b"NaN", b"1_0"], [b'"\\ud800"', b" 3 "]]
    path.write_bytes(shard({"j": "json", "n": "str_int"}, [joined(value) for value in values]))
    version = Registry(tmp_path / "registry").register("a", path)
    assert [row["n"] for row in version] == [5, 10, 3]
    assert version[2]["j"] == "\ud800"


@pytest.mark.parametrize("count", [1, 3, 3_000])
def test_bad_samples_among_good_and_large_ones_are_listed_by_their_place(tmp_path: Path, count: int) -> None:
    """Goal: numbers and bytes of bad samples are those of the file. Method: large, bad, doubtful and good ones in turn."""
    kinds = [joined([b'"' + b"x" * 5000 + b'"']), joined([b"{]"]), joined([b"Infinity"]), joined([b"[1, 2]"])]
    data = shard({"x": "json"}, kinds * count)
    path = tmp_path / "a.mds"
    path.write_bytes(data)
    result = Mds().scan(as_raw(path), Policy(skip_bad=2 * count, row_bytes_max=1000), tmp_path, silent)
    assert result.rows == 2 * count
    assert [bad.line for bad in result.skipped] == [n for n in range(1, 4 * count + 1) if n % 4 in (1, 2)]
    assert all(data.startswith(kinds[1], bad.offset) for bad in result.skipped[1::2])
    with pytest.raises(BadRow, match="longer than") as caught:
        Mds().scan(as_raw(path), Policy(row_bytes_max=1000), tmp_path, silent)
    assert caught.value.line == 1


def test_a_shape_that_no_sample_can_have_is_left_to_the_decoder(tmp_path: Path) -> None:
    columns = Columns(["a"], ["ndarray:int16:-1"])
    assert columns.promises() == [("ndarray:int16:-1", 0)]
    assert scanned(tmp_path, columns, [b"ab", b""]).doubtful.tolist() == [0, 1]
