"""A file that others append to, read as it grows."""

from collections.abc import Iterator
from pathlib import Path

PIECE_BYTES = 1 << 16
#: At most this much at once, so that a signal is heard meanwhile.
PIECES_MAX = 64


class TextTail:
    """Where reading has got to."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def read(self) -> Iterator[bytes]:
        """What has come since; nothing while there is no such file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                for _ in range(PIECES_MAX):
                    piece = file.read(PIECE_BYTES)
                    if not piece:
                        return
                    self._at += len(piece)
                    yield piece
        except FileNotFoundError:
            return
