"""Calls of the CUDA driver itself: copies, and what PyTorch has no words for.

A state has a thousand tensors, and training waits until a copy of each is launched. Through PyTorch a launch costs 40 µs, most
of it for views of both sides; this one takes two addresses.
"""

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch


class _Rows(ctypes.Structure):
    """``CUDA_MEMCPY2D`` of the driver: rows of bytes on both sides."""

    _fields_ = (
        ("source_x", ctypes.c_size_t),
        ("source_y", ctypes.c_size_t),
        ("source_kind", ctypes.c_uint),
        ("source_host", ctypes.c_void_p),
        ("source_device", ctypes.c_uint64),
        ("source_array", ctypes.c_void_p),
        ("source_pitch", ctypes.c_size_t),
        ("target_x", ctypes.c_size_t),
        ("target_y", ctypes.c_size_t),
        ("target_kind", ctypes.c_uint),
        ("target_host", ctypes.c_void_p),
        ("target_device", ctypes.c_uint64),
        ("target_array", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("rows", ctypes.c_size_t),
    )


_ON_HOST, _ON_DEVICE = 1, 2
#: ``CU_STREAM_CAPTURE_MODE_RELAXED`` of the driver.
_RELAXED = 2


class Driver:
    """The functions of the driver that are needed."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        # Called without giving the interpreter up: with pinned memory they only launch.
        self._to_host = library.cuMemcpyDtoHAsync_v2
        self._to_host.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
        self._within = library.cuMemcpyDtoDAsync_v2
        self._within.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
        self._allocate = library.cuMemAlloc_v2
        self._allocate.argtypes = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)
        self._free = library.cuMemFree_v2
        self._free.argtypes = (ctypes.c_uint64,)
        for function in (self._to_host, self._within, self._allocate, self._free):
            function.restype = ctypes.c_int

        self._rows = library.cuMemcpy2DAsync_v2
        self._rows.argtypes = (ctypes.POINTER(_Rows), ctypes.c_void_p)
        self._rows.restype = ctypes.c_int
        self._exchange_mode = library.cuThreadExchangeStreamCaptureMode
        self._exchange_mode.argtypes = (ctypes.POINTER(ctypes.c_int),)
        self._is_capturing = library.cuStreamIsCapturing
        self._is_capturing.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))

    @contextmanager
    def beside_captures(self) -> Iterator[None]:
        """What this thread calls meanwhile ends no capture of a CUDA graph in another one: by default a capture fails as soon as any thread waits or asks."""
        mode = ctypes.c_int(_RELAXED)
        self._exchange_mode(ctypes.byref(mode))
        try:
            yield
        finally:
            self._exchange_mode(ctypes.byref(mode))

    def is_capturing(self, stream: int) -> bool:
        """Whether work on a stream goes into a graph; also where the driver does not say."""
        status = ctypes.c_int()
        return bool(self._is_capturing(stream, ctypes.byref(status)) or status.value)

    def rows_to_host(self, host: int, device: int, form: tuple[int, int, int], stream: int) -> None:
        """Launch a copy of rows from the device, one after another into pinned memory; ``form``: rows, their width, and from one to the next."""
        rows, width, pitch = form
        about = _Rows(
            source_kind=_ON_DEVICE,
            source_device=device,
            source_pitch=pitch,
            target_kind=_ON_HOST,
            target_host=host,
            target_pitch=width,
            width=width,
            rows=rows,
        )
        if code := self._rows(ctypes.byref(about), stream):
            raise RuntimeError(f"the CUDA driver refused to copy {rows} rows to the host: error {code}")

    def to_host(self, host: int, device: int, length: int, stream: int) -> None:
        """Launch a copy from the device to pinned memory."""
        if code := self._to_host(host, device, length, stream):
            raise RuntimeError(f"the CUDA driver refused to copy {length} bytes to the host: error {code}")

    def try_to_host(self, host: int, device: int, length: int, stream: int) -> bool:
        """The same, for those who have another way when the driver refuses."""
        return not self._to_host(host, device, length, stream)

    def within(self, target: int, source: int, length: int, stream: int) -> None:
        """Launch a copy from one place of the device to another."""
        if code := self._within(target, source, length, stream):
            raise RuntimeError(f"the CUDA driver refused to copy {length} bytes on the device: error {code}")

    def allocate(self, length: int) -> int:
        """Memory of the current device; 0 if there is none left."""
        address = ctypes.c_uint64()
        return 0 if self._allocate(ctypes.byref(address), length) else address.value

    def free(self, address: int) -> None:
        """Give it back."""
        self._free(address)


@cache
def driver() -> Driver | None:
    """The driver; nothing where it is another one than NVIDIA's."""
    if torch.version.cuda is None:
        return None
    try:
        return Driver(ctypes.PyDLL("libcuda.so.1"))
    except (OSError, AttributeError):
        return None


def beside_captures() -> AbstractContextManager[None]:
    """For threads that wait for a device, or ask it, while the program may capture a graph."""
    calls = driver()
    return nullcontext() if calls is None else calls.beside_captures()
