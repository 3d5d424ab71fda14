"""Output on its way from a program to a connection: in order, with a bounded store, and dropped once nobody takes it.

While the connection lives, a slow reader makes the program wait, as a terminal would. When it is broken the program must not wait for
it: ranks that train are worth more than what they print, and their log files have it anyway.
"""

import os
from collections.abc import Sequence

HELD_BYTES_MAX = 1 << 20
PIECE_BYTES = 1 << 16


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
            except BlockingIOError:
                pass
        if self._sink in writable:
            try:
                del self._held[: os.write(self._sink, self._held)]
            except BlockingIOError:
                pass
            except OSError:
                self._broken = True
        if self._broken or (self.drops and len(self._held) >= HELD_BYTES_MAX):
            self.dropped_bytes += len(self._held)
            self._held.clear()
