"""
Every error of Penstock: one tree, fields for programs, a hint for people.

::

    PenstockError
    ├── UsageError               the command line or an argument makes no sense
    └── EventError               recordings of events
        ├── EventFileUnusable    cannot be created, opened or read
        ├── EventFormatUnknown   written by a newer Penstock
        └── NotAnEventFile       something else, or a damaged header

An error says what happened with the values that matter, and, where one is known, a ``hint`` says what to do. Errors
are made from keyword arguments, which stay readable as attributes; those that begin in Rust are made by
``crates/penstock-python/src/error.rs`` from the same arguments, so a message is written once.
"""

from pathlib import Path
from typing import ClassVar


class PenstockError(Exception):
    """Whatever Penstock raises on purpose."""

    #: What the reader can do about it, if that is known.
    hint: str | None = None
    #: What the command line exits with: 2 for bad input, 1 when a check found the world wanting.
    exit_code: ClassVar[int] = 2


class UsageError(PenstockError):
    """The command line or an argument makes no sense."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if hint is not None:
            self.hint = hint
        super().__init__(message)


class EventError(PenstockError):
    """Something about a recording of events."""


class EventFileUnusable(EventError):
    """The file of a recording cannot be created, opened or read."""

    def __init__(self, *, verb: str, path: Path, reason: str) -> None:
        self.verb = verb
        self.path = path
        self.reason = reason
        if verb == "create":
            self.hint = "choose a directory that exists and that you may write to"
        super().__init__(f"cannot {verb} event file {path}: {reason}")


class NotAnEventFile(EventError):
    """The file is something else, or its header is damaged."""

    hint = "event files are written by penstock.events.start() and end in .pev"

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is not an event file: {reason}")


class EventFormatUnknown(EventError):
    """The recording was made by a newer Penstock."""

    hint = "read it with the Penstock that wrote it, or a newer one"

    def __init__(self, *, path: Path, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(f"{path} has event format {found}, but this Penstock reads up to {known}")
