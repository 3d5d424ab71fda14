"""Files made while scanning (copies, downloads), seen as raw files, so that one scanner reads originals and copies."""

from pathlib import Path

from penstock.formats.contract import RawFile
from penstock.formats.shard_bytes import ReadsRanges
from penstock.store import open_store, to_url

_CHUNK_BYTES = 4 << 20


def as_raw(path: Path) -> RawFile:
    """A file of this machine as a raw file."""
    store = open_store(to_url(path.parent))
    entry = store.describe(path.name)
    return RawFile(store, path.name, entry.bytes, entry.stamp)


def read_long(file: ReadsRanges, start: int, length: int) -> bytes:
    """A range of any length: one system call reads at most 2 GiB."""
    if length <= _CHUNK_BYTES:
        return file.read(start, length)
    ends = range(start, start + length, _CHUNK_BYTES)
    return b"".join(file.read(at, min(_CHUNK_BYTES, start + length - at)) for at in ends)


def fetch(file: ReadsRanges, size_bytes: int, to: Path) -> Path:
    """Bring all bytes of a file here, a piece at a time."""
    with to.open("wb") as out:
        for at in range(0, size_bytes, _CHUNK_BYTES):
            out.write(file.read(at, min(_CHUNK_BYTES, size_bytes - at)))
    return to
