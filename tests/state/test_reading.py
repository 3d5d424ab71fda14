"""Reading a checkpoint in bounded memory: any layout, any type, every chunk checked."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointDamaged, UsageError
from penstock.state.contract import Box
from penstock.state.inspect.dtypes import cast, numbers_of, own_type
from penstock.state.inspect.piece_reader import Reader
from penstock.state.inspect.statistics import figures_of
from penstock.state.save.box_cuts import cut
from penstock.store import Store
from tests.state.trees import TYPES, any_bits, columns, every_type, in_memory, laid, saved, whole


@given(
    shape=st.lists(st.integers(0, 7), max_size=4).map(tuple),
    item=st.sampled_from([1, 2, 4, 8]),
    most=st.integers(1, 64),
)
def test_the_parts_of_a_box_are_the_box_in_order(shape: tuple[int, ...], item: int, most: int) -> None:
    """Goal: whatever is cut is whole again when put together. Method: fill an array part by part by byte places."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    expected = 0
    for part, start in cut(Box((0,) * len(shape), shape), item, most):
        assert start == expected * item
        where = tuple(slice(a, a + n) for a, n in zip(part.offset, part.shape, strict=True))
        elements = numbers[where].reshape(-1).tolist()
        assert elements == list(range(expected, expected + len(elements)))
        assert part.elements * item <= max(most, item)
        expected += part.elements
    assert expected == numbers.size


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_layout_is_read_in_the_order_of_elements(data: st.DataObject) -> None:
    rows, cols = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    dtype = data.draw(st.sampled_from(sorted(TYPES)))
    array = any_bits(dtype, (rows, cols))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, cols - 1)), max_size=3)) if cols > 1 else [])
    checkpoint = laid(in_memory(), [("w", array, box) for box in columns(array, cuts)])
    reader = Reader(checkpoint.manifest, checkpoint.store)
    assert b"".join(chunk.memory.tobytes() for chunk in reader.read(reader.ordered("w"))) == array.tobytes()
    first = data.draw(st.integers(0, rows - 1))
    assert reader.rows("w", first, rows).tobytes() == array[first:].tobytes()


def test_memory_is_bounded_and_parts_follow_one_another(store: Store) -> None:
    """Goal: a tensor many times the memory is read, on every kind of store. Method: memory of one chunk."""
    array = any_bits("F32", (3000, 301))
    checkpoint = laid(
        store, [("w", array, box) for box in columns(array, [100])] + [("b", array[:2], whole(array[:2]))]
    )
    reader = Reader(checkpoint.manifest, checkpoint.store, memory_bytes=1)
    assert reader.part_bytes == checkpoint.manifest.chunk_bytes
    seen = bytearray()
    for chunk in reader.read(reader.ordered("w")):
        assert chunk.part.bytes <= reader.part_bytes
        assert chunk.part.start == len(seen)
        seen += chunk.memory
    assert bytes(seen) == array.tobytes()
    stored = list(reader.stored())
    assert sum(part.bytes for part in stored) == checkpoint.bytes
    assert len(stored) > 10


def test_every_type_comes_back_with_its_bits(tmp_path: Path) -> None:
    tree = every_type()
    checkpoint = saved(tmp_path / "place", tree)
    reader = Reader(checkpoint.manifest, checkpoint.store)
    for name, array in tree["model"].items():
        read = reader.whole(f"model/{name}")
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "BF16"])
def test_small_floats_have_the_values_that_ml_dtypes_gives_them(dtype: str) -> None:
    """Goal: computing without ml_dtypes is right. Method: every bit pattern, by hand and by the library."""
    own = own_type(dtype)
    assert own is not None
    raw = np.arange(1 << (8 * own.itemsize), dtype=f"u{own.itemsize}")
    expected = raw.view(own).astype(np.float32)
    np.testing.assert_array_equal(numbers_of(raw.view(np.uint8).data, dtype).astype(np.float32), expected)


def test_casting_rounds_to_the_nearest_as_the_library_does() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    numbers = np.concatenate([bits[~np.isnan(bits)], np.float32([0.0, -0.0, np.inf, -np.inf, 3.4e38])])
    memory = memoryview(numbers.view(np.uint8))
    with np.errstate(over="ignore"):
        assert bytes(cast(memory, "F32", "BF16")) == numbers.astype(ml_dtypes.bfloat16).tobytes()
        assert bytes(cast(memory, "F32", "F16")) == numbers.astype(np.float16).tobytes()
    assert bytes(cast(memory, "F32", "F64")) == numbers.astype(np.float64).tobytes()
    nan = np.frombuffer(
        cast(memoryview(np.float32([np.nan]).view(np.uint8)), "F32", "BF16"), ml_dtypes.bfloat16
    )
    assert np.isnan(nan.astype(np.float32)).all()
    with pytest.raises(UsageError, match="F8_E4M3"):
        cast(memory, "F32", "F8_E4M3")


def test_figures_are_those_of_the_finite_elements(tmp_path: Path) -> None:
    array = np.random.default_rng(2).standard_normal((700, 900)).astype(np.float32)
    array[0, :3] = np.nan, np.inf, -np.inf
    array[1, :9] = 0
    counts = np.arange(-5, 6, dtype=np.int64)
    checkpoint = saved(tmp_path / "place", {"w": array, "n": counts, "none": np.zeros((0,), np.float32)})
    figures = figures_of(Reader(checkpoint.manifest, checkpoint.store), checkpoint.manifest.tensors)
    finite = array[np.isfinite(array)].astype(np.float64)
    assert figures["w"].l2 == pytest.approx(np.sqrt(np.square(finite).sum()))
    assert (figures["w"].least, figures["w"].greatest) == (finite.min(), finite.max())
    assert (figures["w"].zeros, figures["w"].nan, figures["w"].infinite) == (9, 1, 2)
    assert (figures["n"].least, figures["n"].greatest, figures["n"].zeros) == (-5, 5, 1)
    assert (figures["none"].elements, figures["none"].least, figures["none"].zero_share) == (0, None, 0.0)


def test_a_flipped_bit_is_never_read(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "place", {"w": any_bits("F32", (100, 100))})
    (file,) = (tmp_path / "place/data").rglob("*.safetensors")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    reader = Reader(checkpoint.manifest, checkpoint.store)
    with pytest.raises(CheckpointDamaged, match=r"tensor w\)") as problem:
        reader.whole("w")
    assert problem.value.tensor == "w"
    file.unlink()
    with pytest.raises(CheckpointDamaged, match="missing"):
        list(reader.read(reader.stored()))
