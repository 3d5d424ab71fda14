"""What the machine can do at best with so many bytes: copy them from the device, write them durably, read them again."""

import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

CHUNK_BYTES = 64 << 20
THREADS = 8


def device_to_host_s(bytes_: int) -> float:
    """A copy from the device to pinned memory, which is used over and over."""
    chunk = 1 << 30
    source = torch.zeros(chunk, dtype=torch.uint8, device="cuda")
    target = torch.empty(chunk, dtype=torch.uint8, pin_memory=True)
    target.copy_(source)
    begun = time.perf_counter()
    for _ in range(8):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / 8 * bytes_ / chunk


def write_s(path: Path, bytes_: int) -> float:
    """Writing around the page cache from several threads, and syncing."""
    memory = mmap.mmap(-1, CHUNK_BYTES)
    memory.write(os.urandom(CHUNK_BYTES))
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT)
    begun = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        offsets = range(0, bytes_ // CHUNK_BYTES * CHUNK_BYTES, CHUNK_BYTES)
        list(pool.map(lambda offset: os.pwrite(file, memory, offset), offsets))
    os.fsync(file)
    took = time.perf_counter() - begun
    os.close(file)
    return took


def read_s(path: Path) -> float:
    """Reading around the page cache with several threads."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    length = os.fstat(file).st_size

    def read(first: int) -> None:
        memory = mmap.mmap(-1, CHUNK_BYTES)
        for offset in range(first * CHUNK_BYTES, length, THREADS * CHUNK_BYTES):
            os.preadv(file, [memory], offset)

    begun = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, range(THREADS)))
    took = time.perf_counter() - begun
    os.close(file)
    return took


def forget_cached(folder: Path) -> None:
    """Take files out of the page cache, so that reading them is reading the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
