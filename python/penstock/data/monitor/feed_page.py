"""What a process's feeds have counted, in a small mapped file that outlives it: ``feeds/RANK.page`` below a run's directory.

A thread writes it once a second. Whoever reads it needs nobody's help, and reads what a killed process counted last. A page is written
whole or not at all: its number is odd while it is written, and what it holds is checked.
"""

import mmap
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from penstock.data.monitor.exposition import Sample

FOLDER = "feeds"
MAGIC = b"PENFEED1"
PAGE_BYTES = 1 << 18
_HEAD = struct.Struct("<8sQII")
_EVERY_S = 1.0
_TRIES = 8


class PageContent(msgspec.Struct, frozen=True):
    """What a page says."""

    life: int
    rank: int
    pid: int
    #: Name, number and labels of each.
    samples: list[tuple[str, float | None, dict[str, str]]] = []
    #: Samples that found no room.
    left_out: int = 0


class FeedPage:
    """Writes the page of one process until it is closed."""

    def __init__(self, folder: Path, life: int, rank: int, samples: Callable[[], Iterable[Sample]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._life, self._rank, self._samples = life, rank, samples
        descriptor = os.open(folder / f"{rank:04d}.page", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Allocated, not only sized: a write into a mapping finds a full disk by a signal.
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
            self._page = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self._process = os.getpid()
        self._stopping = threading.Event()
        self.write()
        self._thread = threading.Thread(target=self._run, name="penstock-feeds", daemon=True)
        self._thread.start()

    def write(self) -> None:
        """Say what is counted now."""
        rows: list[tuple[str, float | None, dict[str, str]]] = [
            (sample.name, sample.value, dict(sample.labels)) for sample in self._samples()
        ]
        payload, left_out = b"", 0
        while not payload or _HEAD.size + len(payload) > PAGE_BYTES:
            payload = msgspec.json.encode(PageContent(self._life, self._rank, os.getpid(), rows, left_out))
            dropped = (len(rows) + 1) // 2
            rows, left_out = rows[:-dropped] if dropped else rows, left_out + dropped
        number = int.from_bytes(self._page[8:16], "little") // 2 * 2
        self._page[: _HEAD.size] = _HEAD.pack(MAGIC, number + 1, len(payload), zlib.crc32(payload))
        self._page[_HEAD.size : _HEAD.size + len(payload)] = payload
        self._page[8:16] = (number + 2).to_bytes(8, "little")

    def close(self) -> None:
        """Write a last time. The page stays."""
        if self._process != os.getpid() or self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self.write()
            self._page.close()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            self.write()


def read_page(path: Path) -> PageContent | None:
    """What a page says; None where there is none, or none that is whole."""
    for _ in range(_TRIES):
        try:
            with path.open("rb") as file:
                data = file.read(PAGE_BYTES)
        except OSError:
            return None
        if len(data) < _HEAD.size:
            return None
        magic, number, length, check = _HEAD.unpack_from(data)
        payload = data[_HEAD.size : _HEAD.size + length]
        if magic == MAGIC and number % 2 == 0 and zlib.crc32(payload) == check:
            return _content(payload)
    return None


def _content(payload: bytes) -> PageContent | None:
    try:
        content: Any = msgspec.json.decode(payload, type=PageContent)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    assert isinstance(content, PageContent)
    return content
