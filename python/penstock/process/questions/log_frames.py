"""What is sent of logs while somebody follows them: frames between a host that has them and who follows, in the form that both agree on.

Hosts in between pass frames on and never look into them (``crates/penstock-process/src/host/subscriptions.rs``). A frame is a head as JSON, a
newline, and the bytes of its parts. Frames of one sender are counted, so whoever follows notices when one is missing and has the rest sent
again from where it is; what a sender may have on its way is bounded by what was received.
"""

import socket
import struct
from collections.abc import Iterator, Sequence

import msgspec

#: What comes before a frame on a socket.
LENGTH = struct.Struct(">I")
#: Bytes of the parts of a frame; the coordinator takes 1 MiB in all.
CONTENT_BYTES_MAX = 256 << 10
#: Of all senders together, and of one at least, what may be on its way.
WINDOW_BYTES = 12 << 20
WINDOW_BYTES_MIN = 128 << 10
#: What a coordinator tells the senders of its host when the job is over: nothing more will be written.
FINISH = b'{"finish":true}'
#: A sender says so often that it is there.
BEAT_S = 1.0


class LogPart(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive bytes of one stream of one worker, or that they are missing."""

    role: str
    #: Over all hosts, and in the names of files of its host.
    rank: int
    local_rank: int
    stream: str
    #: Milliseconds since 1970 of the leader's clock; 0 where nobody knows.
    at_ms: int
    offset: int
    #: Where the next part of this log begins.
    end: int
    #: Bytes of the frame that are its content.
    length: int
    #: ``removed`` or ``unwritten`` where bytes are missing.
    gap: str = ""

    @property
    def log(self) -> str:
        """The log that it is of, on its host."""
        return f"{self.role}-{self.local_rank}.{self.stream}"


class LogHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who sends, and what."""

    #: Its host rank and its name.
    rank: int = -1
    name: str = ""
    #: The start of a host that has these files.
    source: str = ""
    #: One sender, and its beginnings: after a loss it begins again.
    run: str = ""
    attempt: int = -1
    #: Counts frames with parts of an attempt, from 0; absent in a sign of life.
    number: int = -1
    parts: Sequence[LogPart] = ()
    #: All who are followed on this host have ended, and what they wrote was sent.
    at_rest: bool = False
    #: The job is over on this host, and everything was sent.
    is_over: bool = False
    #: Why nothing comes.
    refused: str = ""
    ok: bool = False


class Followed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is followed, for all hosts."""

    #: Over all hosts, as ``0-3,8``; nothing for all.
    ranks: str | None = None
    role: str | None = None
    streams: Sequence[str] = ("stdout", "stderr")
    pattern: str | None = None
    since: str | None = None
    #: Begin with so many of the last lines of each log.
    tail: int | None = None
    #: Lines need not be whole.
    raw: bool = False


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one sender is told."""

    #: Whom this is for; a sender that is new says who it is, and waits.
    run: str = ""
    attempt: int = 0
    #: Bytes of frames that came, and how many may be on their way.
    received: int = 0
    window: int = 0
    #: Where the logs of this host go on, by their names; nothing where only the receipt counts.
    places: dict[str, int] | None = None
    #: Logs that are not named there begin at their beginning; else as is asked for.
    fresh: bool = False
    #: What to add to moments of this host, put in by its coordinator.
    clock_ms: int = 0


class Word(msgspec.Struct, frozen=True):
    """What a coordinator passes to the sender of its host."""

    rank: int
    what: Followed
    told: Told


_HEAD = msgspec.json.Decoder(LogHead)


def frame(head: LogHead, contents: Sequence[bytes] = ()) -> bytes:
    """The body of a frame."""
    return b"".join((msgspec.json.encode(head), b"\n", *contents))


def opened(body: bytes) -> tuple[LogHead, memoryview]:
    """Head and content of a body; an error of value where it is none."""
    end = body.find(b"\n")
    return _HEAD.decode(body[: max(end, 0)]), memoryview(body)[end + 1 :]


class FrameSocket:
    """A stream socket that carries bodies."""

    def __init__(self, talk: socket.socket) -> None:
        self._talk = talk
        self._rest = bytearray()

    def fileno(self) -> int:
        """For ``select``."""
        return self._talk.fileno()

    def send(self, body: bytes) -> None:
        """Waits until the other end has taken it."""
        self._talk.sendall(LENGTH.pack(len(body)) + body)

    def receive(self) -> Iterator[bytes]:
        """Whole bodies that are there; ``EOFError`` when nothing will come any more."""
        piece = self._talk.recv(1 << 20)
        if not piece:
            raise EOFError
        self._rest += piece
        place = 0
        while len(self._rest) - place >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._rest, place)
            begin = place + LENGTH.size
            if len(self._rest) < begin + length:
                break
            yield bytes(memoryview(self._rest)[begin : begin + length])
            place = begin + length
        del self._rest[:place]
