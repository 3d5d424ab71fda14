"""Lines of JSON from a descriptor, with a limit on each and on how long one waits."""

import json
import os
import select
import time
from collections.abc import Iterator
from typing import Any

from penstock.errors.process import BundleInvalid

LINE_BYTES_MAX = 64 << 20
PIECE_BYTES = 1 << 16


class LineChannel:
    """Reads one end. What comes after a whole line stays for later."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: Whether the other end is closed.
        self.is_closed = False
        self._rest = bytearray()

    def lines(self) -> Iterator[dict[str, Any]]:
        """What one read gives: none, one or several messages. Blocks where nothing is there."""
        try:
            piece = os.read(self.number, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.is_closed = True
            return
        self._rest += piece
        while (end := self._rest.find(b"\n")) >= 0:
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            if line.strip():
                yield _message(line)
        if len(self._rest) > LINE_BYTES_MAX:
            raise BundleInvalid(reason=f"a line is longer than {LINE_BYTES_MAX >> 20} MiB")

    def wait_line(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message; nothing when the other end closes. For the beginning, when one line at a time is sent."""
        until = time.monotonic() + timeout_s
        while not self.is_closed:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise BundleInvalid(reason=f"nothing came for {timeout_s:g} s")
            readable, _, _ = select.select([self.number], [], [], left_s)
            if readable:
                for message in self.lines():
                    # Pings before the bundle only keep the connection alive.
                    if "ping" not in message:
                        return message
        return None


def _message(line: bytes) -> dict[str, Any]:
    # A line may hold a secret, so errors do not show it.
    try:
        message = json.loads(line)
    except ValueError as problem:
        raise BundleInvalid(
            reason=f"a line of JSON is expected, got {len(line)} bytes of something else"
        ) from problem
    if not isinstance(message, dict):
        raise BundleInvalid(reason=f"a JSON object is expected, got {type(message).__name__}")
    return message
