"""Tensors in host memory, and what to copy them with."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock import _rust
from penstock.errors import TreeInvalid
from penstock.state.contract import ITEM_BYTES, Box, Copy, Held, Sample

#: Copying is bound by memory, which a few cores saturate.
THREADS = min(8, os.cpu_count() or 1)

DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}


class Done:
    """Copies that are finished already."""

    def guard(self) -> None:
        """Nothing is under way."""

    def wait(self) -> None:
        """Everything has arrived."""


DONE = Done()


class HostMover:
    """Moves bytes of contiguous host memory; ``Held.memory`` is a one-dimensional array of bytes."""

    def prepare(self, arena: memoryview) -> None:
        """Host memory needs nothing."""

    def release(self, arena: memoryview) -> None:
        """Nothing was done."""

    def take(self, copies: list[Copy]) -> Done:
        """Copy out, now."""
        _rust.copy_buffers([(part_of(copy), copy.host) for copy in copies], THREADS)
        return DONE

    def put(self, copies: list[Copy]) -> Done:
        """Copy in, now."""
        _rust.copy_buffers([(copy.host, part_of(copy)) for copy in copies], THREADS)
        return DONE

    def sample(self, samples: list[Sample]) -> Done:
        """Copy samples out, now."""
        for sample in samples:
            form = (sample.rows, sample.width)
            places = np.ndarray(form, np.uint8, buffer=sample.held.memory, strides=(sample.pitch, 1))
            np.frombuffer(sample.host, np.uint8).reshape(form)[...] = places
        return DONE


class StridedMover:
    """Moves bytes of arrays that do not lie in memory in one piece; ``Held.memory`` is the array itself."""

    def prepare(self, arena: memoryview) -> None:
        """Host memory needs nothing."""

    def release(self, arena: memoryview) -> None:
        """Nothing was done."""

    def take(self, copies: list[Copy]) -> Done:
        """Copy out, now."""
        for copy in copies:
            copy.host[:] = bytes_of(np.ascontiguousarray(_rows(copy))).data
        return DONE

    def put(self, copies: list[Copy]) -> Done:
        """Copy in, now."""
        for copy in copies:
            rows = _rows(copy)
            rows[...] = np.frombuffer(copy.host, rows.dtype).reshape(rows.shape)
        return DONE

    def sample(self, samples: list[Sample]) -> Done:
        """Copy samples out, now."""
        for sample in samples:
            array: np.ndarray[Any, Any] = sample.held.memory
            index = np.unravel_index(elements_of(sample, array.itemsize), array.shape)
            sample.host[:] = bytes_of(np.ascontiguousarray(array[index])).data
        return DONE


def _rows(copy: Copy) -> "np.ndarray[Any, Any]":
    """The rows of an array that a copy is about: bytes are moved in whole rows along the first dimension."""
    array: np.ndarray[Any, Any] = copy.held.memory
    row_bytes = array.nbytes // array.shape[0] if array.ndim and array.shape[0] else 0
    if not row_bytes or len(copy.host) == array.nbytes:
        return array
    first = copy.start // row_bytes
    return array[first : first + len(copy.host) // row_bytes]


def elements_of(sample: Sample, item: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Which elements of a box a sample has, counted in C order."""
    first = np.arange(sample.rows, dtype=np.int64) * (sample.pitch // item)
    return (first[:, None] + np.arange(sample.width // item)).reshape(-1)


HOST = HostMover()
_STRIDED = StridedMover()


def part_of(copy: Copy) -> Any:
    """The tensor's side of a copy in contiguous host memory."""
    return copy.held.memory[copy.start : copy.start + len(copy.host)]


def check_writable(held: Iterable[Held]) -> None:
    """Nothing is loaded into arrays that nobody may write to: views of arrays of JAX, of frozen arrays, of files."""
    for tensor in held:
        if isinstance(tensor.memory, np.ndarray) and not tensor.memory.flags.writeable:
            raise TreeInvalid(
                name=tensor.name, reason="the array is read-only", hint="load into a copy: np.array(array)"
            )


def bytes_of(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """A contiguous array as its bytes, without a copy."""
    return array.reshape(-1).view(np.uint8)


def held_of(name: str, array: "np.ndarray[Any, Any]", rank: int, ranks: int) -> Held:
    """A numpy array as a tensor that every rank holds as a whole."""
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative or array.dtype.itemsize != ITEM_BYTES[dtype]:
        raise TreeInvalid(name=name, reason=f"arrays of {array.dtype} cannot be saved")
    if isinstance(array, np.ma.MaskedArray):
        hint = "save its parts: {'data': array.data, 'mask': np.ma.getmaskarray(array)}"
        raise TreeInvalid(name=name, reason="a masked array is more than its elements", hint=hint)
    contiguous = array.flags.c_contiguous
    return Held(
        name=name,
        dtype=dtype,
        shape=array.shape,
        box=Box((0,) * array.ndim, array.shape),
        mover=HOST if contiguous else _STRIDED,
        memory=bytes_of(array) if contiguous else array,
        replica=rank,
        replicas=ranks,
    )
