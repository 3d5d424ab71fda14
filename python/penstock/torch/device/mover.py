"""Bytes between tensors and host memory, where a plain copy of memory will not do: strided tensors, and other types.

A box's bytes are counted in C order, whatever the strides. ``windows`` turns a stretch of them into a few views, so nothing
larger than a strip is ever copied beside the tensor.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from penstock.errors import TreeInvalid
from penstock.state.contract import Copy, Copying, Sample
from penstock.state.load.host_mover import DONE

#: How safetensors writes the types of torch.
SAFETENSORS_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
}
if hasattr(torch, "float8_e8m0fnu"):
    # Since PyTorch 2.7.
    SAFETENSORS_NAMES[torch.float8_e8m0fnu] = "F8_E8M0"
TORCH_TYPES = {name: dtype for dtype, name in SAFETENSORS_NAMES.items()}
#: What is copied beside the tensor at a time.
STRIP_BYTES = 64 << 20


class StridedMover:
    """Host memory that is not in C order, or not of the type it is stored as."""

    def prepare(self, arena: memoryview) -> None:
        """Nothing makes it faster."""

    def release(self, arena: memoryview) -> None:
        """Nothing was done."""

    def take(self, copies: list[Copy]) -> Copying:
        """Copy at once: gathering strides is slow enough that nothing is won by a second pass."""
        for copy in copies:
            host = np.frombuffer(copy.host, np.uint8)
            for first, window in strips(copy, copy.held.memory):
                stored = as_bytes(window.to(TORCH_TYPES[copy.held.dtype]))
                host[first : first + stored.numel()] = stored.numpy()
        return DONE

    def put(self, copies: list[Copy]) -> Copying:
        """Copy at once."""
        for copy in copies:
            host = np.frombuffer(copy.host, np.uint8)
            for first, window in strips(copy, copy.held.memory):
                stored = torch.empty(window.shape, dtype=TORCH_TYPES[copy.held.dtype])
                raw = as_bytes(stored)
                raw.numpy()[:] = host[first : first + raw.numel()]
                fill(copy.held.name, window, stored)
        return DONE

    def sample(self, samples: list[Sample]) -> Copying:
        """Copy samples at once."""
        for sample in samples:
            np.frombuffer(sample.host, np.uint8)[:] = picked(sample, sample.held.memory).numpy()
        return DONE


STRIDED = StridedMover()


def fill(name: str, window: torch.Tensor, stored: torch.Tensor) -> None:
    """Write to a view. One that shows an element at several places (an expanded buffer) takes it once, if it is the same at all of them."""
    for dim, (length, stride) in enumerate(zip(window.shape, window.stride(), strict=True)):
        if length > 1 and stride == 0:
            first = stored.narrow(dim, 0, 1)
            if not torch.equal(as_bytes(stored), as_bytes(first.expand_as(stored))):
                reason = "it is expanded, and what was saved differs along an expanded dimension"
                raise TreeInvalid(name=name, reason=reason, hint="register tensor.contiguous()")
            window, stored = window.narrow(dim, 0, 1), first
    window.copy_(stored)


class _Memory:
    """The bytes of a tensor for NumPy. ``Tensor.numpy`` would forbid the program to resize the tensor from then on."""

    def __init__(self, tensor: torch.Tensor, *, keep: bool) -> None:
        self._tensor = tensor if keep else None
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": (tensor.nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


def as_array(tensor: torch.Tensor, *, keep: bool = True) -> np.ndarray[Any, Any]:
    """The bytes of a tensor on the host that is in C order, over the same memory. Without ``keep`` that has to be kept alive by who uses it."""
    return np.asarray(_Memory(tensor, keep=keep)) if tensor.numel() else np.empty(0, np.uint8)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor in C order; a view if it is in that order already."""
    whole = tensor.contiguous()
    # Not reshape(-1): the stride of a single element is arbitrary, and would be kept.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)


def picked(sample: Sample, tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a sample, where the tensor is."""
    dtype = TORCH_TYPES[sample.held.dtype]
    # Types of one byte are not all known to indexing, so they are taken as the bytes that they are.
    source = tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 and tensor.dtype == dtype else tensor
    chosen = source[
        _index(sample.rows, sample.width, sample.pitch, dtype.itemsize, tuple(tensor.shape), tensor.device)
    ]
    return as_bytes(chosen if source is not tensor else chosen.to(dtype))


@lru_cache(maxsize=1024)
def _index(
    rows: int, width: int, pitch: int, item: int, shape: tuple[int, ...], device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Where the elements of a sample are, by dimension. A model has many tensors and few shapes."""
    first = torch.arange(rows) * (pitch // item)
    flat = (first[:, None] + torch.arange(width // item)).reshape(-1)
    return tuple(index.to(device) for index in torch.unravel_index(flat, shape))


def strips(copy: Copy, tensor: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """The copy in views of a bounded size, each with its first byte in the host memory."""
    item = TORCH_TYPES[copy.held.dtype].itemsize
    first, count = _elements(copy, item)
    most = max(1, STRIP_BYTES // item)
    done = 0
    while done < count:
        for window in windows(tensor, first + done, min(most, count - done)):
            yield done * item, window
            done += window.numel()


def windows(tensor: torch.Tensor, first: int, count: int) -> Iterator[torch.Tensor]:
    """Views that hold, one after another, ``count`` elements of a tensor in C order from the ``first`` on."""
    if first == 0 and count == tensor.numel():
        yield tensor
        return
    if tensor.is_contiguous():
        yield tensor.view(-1)[first : first + count]
        return
    row = tensor.numel() // tensor.shape[0]
    while count:
        index, inside = divmod(first, row)
        if inside == 0 and count >= row:
            taken = count // row * row
            yield tensor[index : index + count // row]
        else:
            taken = min(count, row - inside)
            yield from windows(tensor[index], inside, taken)
        first += taken
        count -= taken


def _elements(copy: Copy, item: int) -> tuple[int, int]:
    first, lost = divmod(copy.start, item)
    count, cut = divmod(copy.host.nbytes, item)
    # The room cuts boxes between elements; a cut inside of one would be a mistake of ours.
    assert lost == cut == 0, (copy.held.name, copy.start, copy.host.nbytes)
    return first, count
