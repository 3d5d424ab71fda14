"""The little of HTTP/1.1 that a proxy has to understand: heads, and how long bodies are."""

import re
import socket
from dataclasses import dataclass

HEAD_MAX = 64 << 10
PIECE_BYTES = 256 << 10

_RANGE = re.compile(rb"bytes=(\d+)-(\d*)")


@dataclass
class Head:
    """The lines before a body, and what of the body was read with them."""

    raw: bytes
    rest: bytes

    @property
    def first(self) -> list[bytes]:
        """The words of the first line."""
        return self.raw.partition(b"\r\n")[0].split(b" ", 2)

    def field(self, name: bytes) -> bytes | None:
        """The value of a field."""
        match = re.search(rb"\r\n" + name + rb":[ \t]*([^\r\n]*)", self.raw, re.IGNORECASE)
        return match[1].strip() if match else None

    @property
    def length(self) -> int | None:
        """Bytes of the body; None where the head does not say."""
        value = self.field(b"content-length")
        return int(value) if value is not None else None

    @property
    def chunked(self) -> bool:
        """Whether the body tells its length as it comes."""
        return (self.field(b"transfer-encoding") or b"").lower() == b"chunked"

    def range(self) -> tuple[int, int] | None:
        """What of the object is asked for."""
        if (match := _RANGE.match(self.field(b"range") or b"")) is None:
            return None
        return int(match[1]), int(match[2]) + 1 if match[2] else 1 << 62


def read_head(source: socket.socket, early: bytes = b"") -> Head | None:
    """The next head; None when the other side is done. ``early`` was read before."""
    data = early
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > HEAD_MAX:
            raise ConnectionError("a head without an end")
        # A little at a time: what is read behind the head has to be moved with the body.
        more = source.recv(HEAD_MAX // 16)
        if not more:
            return None
        data += more
    return Head(data[: end + 4], data[end + 4 :])


def unchunk(source: socket.socket, rest: bytes) -> tuple[bytes, bytes]:
    """A chunked body, put together, and what was read behind it."""
    body = b""
    while True:
        while b"\r\n" not in rest:
            rest += _more(source)
        size_text, _, rest = rest.partition(b"\r\n")
        size = int(size_text.partition(b";")[0], 16)
        while len(rest) < size + 2:
            rest += _more(source)
        body, rest = body + rest[:size], rest[size + 2 :]
        if size == 0:
            return body, rest


def _more(source: socket.socket) -> bytes:
    if not (more := source.recv(PIECE_BYTES)):
        raise ConnectionError("it ended inside a body")
    return more
