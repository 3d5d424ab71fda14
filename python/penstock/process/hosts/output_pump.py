"""Output on its way from a program to a connection: in order, with a bounded store, and dropped once nobody takes it.

While the connection lives, a slow reader makes the program wait, as a terminal would. When it is broken the program must not wait for
it: ranks that train are worth more than what they print, and their log files have it anyway.
"""

import os
from collections import deque
from collections.abc import Sequence

HELD_BYTES_MAX = 1 << 20
PIECE_BYTES = 1 << 16
#: Lines of our own that wait for the end of a line of the program.
LINES_MAX = 16


class OutputPump:
    """One stream."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        self._held = bytearray()
        self._ended = False
        #: Set by its owner while the connection is taken for broken.
        self.drops = False
        self.dropped_bytes = 0
        self._broken = False
        self._lines: deque[bytes] = deque(maxlen=LINES_MAX)
        #: Whether what was written ends with a line.
        self._at_line = True

    def interject(self, line: bytes) -> None:
        """Say something of our own, between two lines of the program."""
        self._lines.append(line)
        self._put_lines()

    def _put_lines(self) -> None:
        end = self._held.rfind(b"\n") + 1
        if self._lines and (end or (self._at_line and not self._held)):
            self._held[end:end] = b"".join(self._lines)
            self._lines.clear()

    @property
    def is_done(self) -> bool:
        """Whether everything came and is written, or cannot be."""
        return self._ended and not self._held

    @property
    def reads(self) -> list[int]:
        """What to wait for."""
        return [] if self._ended or len(self._held) >= HELD_BYTES_MAX else [self._source]

    @property
    def writes(self) -> list[int]:
        """What to wait for."""
        return [self._sink] if self._held and not self._broken else []

    def turn(self, readable: Sequence[int], writable: Sequence[int]) -> None:
        """Do what can be done without waiting."""
        if self._source in readable:
            try:
                piece = os.read(self._source, PIECE_BYTES)
                self._ended = not piece
                self._held += piece
                self._put_lines()
            except BlockingIOError:
                pass
        if self._sink in writable:
            try:
                written = os.write(self._sink, self._held)
                self._at_line = self._held[:written].endswith(b"\n")
                del self._held[:written]
                self._put_lines()
            except BlockingIOError:
                pass
            except OSError:
                self._broken = True
        if self._broken or (self.drops and len(self._held) >= HELD_BYTES_MAX):
            self.dropped_bytes += len(self._held)
            self._at_line = not self._held or self._held.endswith(b"\n")
            self._held.clear()
