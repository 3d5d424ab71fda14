"""Checkpoints: memory comes in as buffers, hashes go out as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self, TypeAlias, final

from typing_extensions import Buffer

from penstock._rust.source import SourceValues

@final
class Arena(Buffer):
    """Memory that states are captured into; a writable buffer."""

    def __new__(cls, size: int) -> Self: ...
    def touch(self, threads: int) -> None:
        """Touch every page, so that copying does not have to."""
    def __len__(self) -> int: ...

def copy_buffers(pairs: Sequence[tuple[Buffer, Buffer]], threads: int) -> None:
    """Copy from the first to the second of each pair, with several threads."""

def hash_buffers(buffers: Sequence[Buffer], chunk_bytes: int, threads: int) -> list[str]:
    """The hashes of the chunks of each buffer: hexadecimal digits, 32 per chunk, one after another."""

def write_buffers(path: Path, buffers: Sequence[Buffer], direct: bool, threads: int) -> int:
    """Write a new file from buffers, one after another, and sync it; its length."""

#: Tensor, file, first byte there, offset, shape, bytes of an element, hashes of the chunks.
PieceValues: TypeAlias = tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, str]

#: Tensor, offset, shape, memory.
TargetValues: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], Buffer]

def read_tensors(
    files: list[SourceValues],
    pieces: list[PieceValues],
    targets: Sequence[TargetValues],
    *,
    chunk_bytes: int,
    threads: int,
    direct: bool,
) -> int:
    """Fill every target from the pieces of its tensor, each chunk checked; the bytes that were read."""
