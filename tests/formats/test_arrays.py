"""Arrays as rows: npy and npz written by numpy, safetensors written by its own library."""

import io
import json
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DerivedTooLarge, FileUnusable
from penstock.formats.arrays.array_rows import runs
from penstock.formats.contract import Policy
from penstock.registry import Registry
from penstock.store import open_store
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path

ROWS = 700
DTYPES = ["?", "i1", "<u2", ">i4", "<i8", "<f2", "<f4", ">f8", "<c8", "S7", "<U5", "<M8[ns]", "V3"]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def array(dtype: Any = "<f4", shape: tuple[int, ...] = (ROWS, 5, 3)) -> np.ndarray[Any, Any]:
    """Any bits of the dtype, NaNs and all but for booleans and characters, which have illegal ones."""
    random = np.random.default_rng(len(shape))
    kind = np.dtype(dtype)
    if kind.kind in "?bU":
        return random.integers(0, 2, shape).astype(kind)
    if kind.kind in "fc":
        return random.normal(size=shape).astype(kind)
    count = int(np.prod(shape)) * kind.itemsize
    return np.frombuffer(random.bytes(count), kind).reshape(shape)


def rows(**columns: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    count = len(next(iter(columns.values())))
    return [{name: column[at, ...] for name, column in columns.items()} for at in range(count)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9,), (9, 2), (9, 0), (9, 2, 3)], ids=str)
def test_npy_of_every_dtype_comes_back_exactly(
    tmp_path: Path, registry: Registry, dtype: str, shape: tuple[int, ...]
) -> None:
    data = array(dtype, shape)
    np.save(tmp_path / "a.npy", data)
    version = registry.register("a", tmp_path / "a.npy")
    assert version.manifest.format == "npy"
    for at, row in enumerate(version):
        assert row["array"].dtype == data.dtype
        assert row["array"].shape == shape[1:]
        assert row["array"].tobytes() == data[at, ...].tobytes()


def test_a_structured_dtype_comes_back_with_its_names(tmp_path: Path, registry: Registry) -> None:
    dtype = np.dtype([("大きさ", "<i4"), ("inner", [("x", "<f4", (2,)), ("y", "u1")])])
    data = array(np.uint8, (50 * dtype.itemsize,)).view(np.uint8).copy().view(dtype)
    with pytest.warns(UserWarning, match="format 3"):
        np.save(tmp_path / "a.npy", data)
    (first, *_) = registry.register("a", tmp_path / "a.npy")
    assert first["array"].dtype == dtype
    assert first["array"].tobytes() == data[0].tobytes()


def test_rows_belong_to_the_caller(tmp_path: Path, registry: Registry) -> None:
    np.save(tmp_path / "a.npy", array())
    version = registry.register("a", tmp_path / "a.npy")
    one, other = version.take([3, 3])
    one["array"][:] = 0
    assert other["array"].any()
    assert version[3]["array"].any()


@pytest.mark.parametrize("shape", [(300, 7), (7, 300), (40, 3, 5, 2)], ids=str)
def test_fortran_order_is_read_through_a_copy(
    tmp_path: Path, registry: Registry, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.formats.arrays.npy_header._CHUNK_BYTES", 1 << 10)
    data = array("<f4", shape)
    path = tmp_path / "a.npy"
    np.save(path, np.asfortranarray(data))
    version = registry.register("a", path)
    assert_rows(version, rows(array=data))
    copy = copy_path(registry, version)
    assert np.array_equal(np.load(io.BytesIO(copy.read_bytes())), data)
    copy.unlink()
    assert_rows(registry.resolve("a"), rows(array=data))


def test_flips_and_cuts_of_a_fortran_array_and_its_copy_are_found(tmp_path: Path, registry: Registry) -> None:
    data = array("<f4", (ROWS, 60))
    path = tmp_path / "a.npy"
    np.save(path, np.asfortranarray(data))
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, rows(array=data), read=False, every=3)
    assert_flips_are_found(registry, version, copy_path(registry, version), rows(array=data), every=3)


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
def test_flips_and_cuts_are_found(tmp_path: Path, registry: Registry, kind: str) -> None:
    columns = {"array": array("<f4", (ROWS, 60))}
    if kind != "npy":
        columns = {"ids": array("<i8", (ROWS,)), "x": array("<f4", (ROWS, 40)), "y": array("i1", (ROWS, 9))}
    path = tmp_path / f"a.{kind}"
    if kind == "npy":
        np.save(path, columns["array"])
    elif kind == "npz":
        np.savez(path, **columns)
    else:
        safetensors.numpy.save_file(columns, path)
    version = registry.register("a", path)
    expected = [dict(sorted(row.items())) for row in rows(**columns)]
    assert_rows(version, expected)
    assert version.manifest.format == kind
    assert_flips_are_found(registry, version, path, expected)
    assert_cuts_are_found(registry, version, path)


@pytest.mark.parametrize("fortran", [False, True])
def test_a_compressed_npz_is_read_through_a_copy(tmp_path: Path, registry: Registry, fortran: bool) -> None:
    columns = {"x": array("<f4", (ROWS, 40)), "y": array("<U5", (ROWS, 3))}
    if fortran:
        columns["x"] = np.asfortranarray(columns["x"])
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **columns)
    version = registry.register("a", path)
    assert_rows(version, rows(**columns))
    copy = copy_path(registry, version)
    assert_flips_are_found(registry, version, path, rows(**columns), read=False, every=4)
    assert_flips_are_found(registry, version, copy, rows(**columns), every=4)
    copy.unlink()
    assert_rows(registry.resolve("a"), rows(**columns))
    with pytest.raises(DerivedTooLarge):
        Registry(tmp_path / "small").register("a", path, policy=Policy(derived_bytes_max=1000))


def test_every_dtype_of_safetensors_comes_back(tmp_path: Path, registry: Registry) -> None:
    dtypes = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "<c8"]
    columns = {f"column {at}": array(dtype, (20, 2)) for at, dtype in enumerate(dtypes)}
    columns["bf16"] = array("<f4", (20, 3)).astype(ml_dtypes.bfloat16)
    columns["f8"] = array("<f4", (20,)).astype(ml_dtypes.float8_e4m3fn)
    safetensors.numpy.save_file(columns, tmp_path / "a.safetensors", {"made": "by a test"})
    version = registry.register("a", tmp_path / "a.safetensors")
    for at, row in enumerate(version):
        assert row.keys() == columns.keys()
        for name, column in columns.items():
            assert row[name].dtype == column.dtype
            assert row[name].tobytes() == column[at].tobytes()


def test_bfloat16_without_ml_dtypes_comes_as_its_bits(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = array("<f4", (20, 3)).astype(ml_dtypes.bfloat16)
    safetensors.numpy.save_file({"x": data}, tmp_path / "a.safetensors")
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    version = registry.register("a", tmp_path / "a.safetensors")
    assert_rows(version, rows(x=data.view(np.uint16)))


def npy_bytes(data: Any, **keywords: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, data, **keywords)
    return buffer.getvalue()


def npz_bytes(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **columns)
    return buffer.getvalue()


def tensors_bytes(data: bytes = b"", **entries: Any) -> bytes:
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def foreign_member() -> bytes:
    buffer = io.BytesIO(npz_bytes(x=np.arange(3)))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("readme.txt", "hello")
    return buffer.getvalue()


WHOLE = npy_bytes(np.arange(12.0).reshape(4, 3))
PACKED = npz_bytes(x=np.arange(3000), y=np.arange(3000))
BROKEN = {
    "scalar": ("npy", npy_bytes(np.float32(3)), "single value"),
    "no rows": ("npy", npy_bytes(np.zeros((0, 3))), "no rows"),
    "objects": ("npy", npy_bytes(np.array([{}, None]), allow_pickle=True), "pickle"),
    "cut": ("npy", WHOLE[:-1], "should at"),
    "cut in the header": ("npy", WHOLE[:40], "cut off"),
    "two arrays": ("npy", WHOLE + WHOLE, "should at"),
    "no such version": ("npy", WHOLE[:6] + b"\x09" + WHOLE[7:], "version is 9"),
    "header of nonsense": ("npy", WHOLE.replace(b"'descr'", b"'desc{'"), "cannot be read"),
    "negative shape": ("npy", WHOLE.replace(b"(4, 3)", b"(4,-3)"), "cannot be read"),
    "wrong magic": ("npy", b"\x93NUMPX" + WHOLE[6:], "expected an npy header"),
    "npz of unequal rows": (
        "npz",
        npz_bytes(x=np.arange(3), y=np.arange(4)),
        "'x' has 3 rows, but 'y' has 4",
    ),
    "npz with a scalar": ("npz", npz_bytes(x=np.arange(3), y=np.float64(1)), "single value"),
    "npz cut": ("npz", PACKED[:-30], "damaged zip"),
    "npz with a flipped bit": ("npz", PACKED[:900] + b"\xee" + PACKED[901:], "damaged zip"),
    "npz with another file": ("npz", foreign_member(), "'readme.txt' is not one"),
    "tensors of unequal rows": (
        "safetensors",
        tensors_bytes(b"1" * 7, x=entry("U8", [3], 0, 3), y=entry("U8", [4], 3, 7)),
        "'x' has 3 rows",
    ),
    "tensor cut": ("safetensors", tensors_bytes(b"1" * 2, x=entry("U8", [3], 0, 3)), "end at byte"),
    "tensor with more": ("safetensors", tensors_bytes(b"1" * 4, x=entry("U8", [3], 0, 3)), "end at byte"),
    "tensor with a hole": ("safetensors", tensors_bytes(b"1" * 4, x=entry("U8", [3], 1, 4)), "expected were"),
    "tensor of another size": ("safetensors", tensors_bytes(b"1" * 3, x=entry("U16", [3], 0, 3)), "expected"),
    "scalar tensor": ("safetensors", tensors_bytes(b"1", x=entry("U8", [], 0, 1)), "single value"),
    "unknown dtype": ("safetensors", tensors_bytes(b"1", x=entry("F4", [2], 0, 1)), "dtype F4"),
    "no tensor": ("safetensors", tensors_bytes(), "no array"),
    "header of no tensors": ("safetensors", tensors_bytes(b"", x=[1, 2]), "cannot be read"),
    "header too long": ("safetensors", struct.pack("<Q", 1 << 40) + b"{}", "header would have"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_breaks_its_contract_is_named(tmp_path: Path, registry: Registry, name: str) -> None:
    kind, data, reason = BROKEN[name]
    path = tmp_path / f"a.{kind}"
    path.write_bytes(data)
    with pytest.raises(FileUnusable, match=reason) as caught:
        registry.register("a", path, format=kind)
    assert caught.value.path.startswith(str(path))


def test_rows_over_the_limit_are_refused(tmp_path: Path, registry: Registry) -> None:
    np.save(tmp_path / "a.npy", array())
    with pytest.raises(FileUnusable, match="a row has 60 bytes"):
        registry.register("a", tmp_path / "a.npy", policy=Policy(row_bytes_max=59))


def test_a_hundred_million_rows_need_no_table(tmp_path: Path, registry: Registry) -> None:
    """Rows are found by arithmetic: the index of a sparse file of 100 million rows has sums of blocks only."""
    count = 100_000_000
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        said = {"descr": "|u1", "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(file, said)
        start = file.tell()
        file.truncate(start + count)
        file.seek(start + count - 1)
        file.write(b"\x07")
    version = registry.register("a", path)
    assert (version.rows, version[0]["array"], version[-1]["array"]) == (count, 0, 7)
    index = registry.store.get(f"objects/{version.manifest.shards[0].index.removeprefix('b3:')}")
    assert len(index) < count / 1000


@given(st.lists(st.integers(0, 5000), min_size=1), st.sampled_from([1, 100, 3000, 5 << 20, 9 << 20]))
@settings(max_examples=50)
def test_runs_cover_every_row_once_and_stay_short(wanted: list[int], width: int) -> None:
    ordered = np.sort(np.asarray(wanted))
    spans = list(runs(ordered, width))
    assert [at for start, end in spans for at in range(start, end)] == list(range(len(wanted)))
    for start, end in spans:
        assert ordered[start] == ordered[end - 1] or (ordered[end - 1] - ordered[start]) * width <= 8 << 20


@pytest.mark.parametrize("packed", [False, True])
def test_remote_files_are_read_in_place_or_through_a_copy(registry: Registry, packed: bool) -> None:
    columns = {"x": np.asfortranarray(array("<f4", (50, 4))) if packed else array("<f4", (50, 4))}
    store = open_store(f"memory://test-arrays/{packed}")
    store.put_if_absent("a.npz", npz_bytes(**columns))
    store.put_if_absent("a.npy", npy_bytes(columns["x"]))
    assert_rows(registry.register("z", f"memory://test-arrays/{packed}/a.npz"), rows(**columns))
    assert_rows(registry.register("y", f"memory://test-arrays/{packed}/a.npy"), rows(array=columns["x"]))


def test_what_python_2_wrote_is_read(tmp_path: Path, registry: Registry) -> None:
    """Its long numbers end in L, as in a file that numpy keeps for its own tests."""
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2L, 3L), }".ljust(117) + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + np.arange(6).tobytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.load(path)
    assert_rows(registry.register("a", path), [{"array": row} for row in expected])
