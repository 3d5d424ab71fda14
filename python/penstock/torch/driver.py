"""Copies launched through the CUDA driver itself.

A state has a thousand tensors, and training waits until a copy of each is launched. Through PyTorch a launch costs 40 µs, most
of it for views of both sides; this one takes two addresses.
"""

import ctypes
from functools import cache

import torch


class Driver:
    """The one function of the driver that is needed."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        # Called without giving the interpreter up: with pinned memory it only launches.
        self._to_host = library.cuMemcpyDtoHAsync_v2
        self._to_host.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
        self._to_host.restype = ctypes.c_int

    def to_host(self, host: int, device: int, length: int, stream: int) -> None:
        """Launch a copy from the device to pinned memory."""
        if code := self._to_host(host, device, length, stream):
            raise RuntimeError(f"the CUDA driver refused to copy {length} bytes to the host: error {code}")


@cache
def driver() -> Driver | None:
    """The driver; nothing where it is another one than NVIDIA's."""
    if torch.version.cuda is None:
        return None
    try:
        return Driver(ctypes.PyDLL("libcuda.so.1"))
    except (OSError, AttributeError):
        return None
