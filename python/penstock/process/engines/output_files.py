"""Output of ranks in files that others append to, shown as they grow."""

import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.process.engines.allocation_directory import ERRORS, OUTPUT

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


class OutputFiles:
    """Both outputs of a job in the directory of its allocation."""

    def __init__(self, directory: Path) -> None:
        self._tails = [
            (TextTail(directory / OUTPUT), sys.stdout.buffer),
            (TextTail(directory / ERRORS), sys.stderr.buffer),
        ]

    def show(self) -> None:
        """Write what came since the last time."""
        for tail, sink in self._tails:
            for piece in tail.read():
                sink.write(piece)
            sink.flush()

    def close(self) -> None:
        """The rest of it."""
        self.show()
