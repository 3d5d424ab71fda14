"""The event ring, its file, its reader."""

from pathlib import Path
from types import TracebackType
from typing import Literal, Self, final

def events_start(path: Path, *, host: str, argv: list[str], bytes_max: int) -> None:
    """Start recording into a new file."""

def events_stop() -> None:
    """End the recording after a last drain."""

def events_abandon() -> None:
    """In the child of a fork: forget the parent's recorder without touching its file."""

def events_flush(timeout_s: float) -> bool:
    """Wait until what was recorded before is on file."""

def events_path() -> Path | None:
    """The file that is being recorded into."""

def events_statistics() -> tuple[int, int, int, str | None] | None:
    """Written, lost, bytes, and the last failure; nothing when not recording."""

def record(kind: str, /, **fields: object) -> None:
    """Record that something happened now. Never waits; does nothing when not recording."""

def span(kind: str, /, **fields: object) -> Span:
    """Record that something begins now; leaving the returned context records its end."""

@final
class Span:
    """A span that has begun; leaving it as a context records its end."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class EventReader:
    """Reads a recording frame by frame."""

    def __new__(cls, path: Path) -> Self: ...
    @property
    def header(self) -> str:
        """Who recorded, as JSON."""
    @property
    def torn_bytes(self) -> int:
        """Bytes after the last whole frame; known at the end."""
    def next_frame(
        self,
    ) -> (
        list[
            tuple[
                Literal["point", "begin", "end", "lost", "closed"],
                int,
                int,
                int,
                str,
                dict[str, object],
                bool,
            ]
        ]
        | None
    ):
        """Fact, time_ns, thread, span, kind, fields and whether something was cut, per record; None at the end."""

@final
class EventColumns:
    """A whole recording as arrays, with begins and ends joined."""

    def __new__(cls, path: Path) -> Self: ...
    @property
    def header(self) -> str:
        """Who recorded, as JSON."""
    @property
    def kinds(self) -> list[str]:
        """Names that the column ``kind`` counts into."""
    @property
    def lost(self) -> int:
        """Events that the recorder had to drop."""
    @property
    def closed(self) -> bool:
        """Whether the recorder was stopped in order."""
    @property
    def torn_bytes(self) -> int:
        """Bytes after the last whole frame."""
    def columns(self) -> dict[str, bytes]:
        """Little-endian integers: ``kind`` and ``thread`` of 32 bits, ``time_ns`` and ``duration_ns`` of 64."""
