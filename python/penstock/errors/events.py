"""Errors of recordings."""

from pathlib import Path

from penstock.errors.root import PenstockError


class EventError(PenstockError):
    """Something about a recording of events."""


class EventFileUnusable(EventError):
    """The file of a recording cannot be created, opened or read."""

    def __init__(self, *, verb: str, path: Path, reason: str) -> None:
        self.verb, self.path, self.reason = verb, path, reason
        if verb == "create":
            self.hint = "choose a directory that exists and that you may write to"
        super().__init__(f"cannot {verb} event file {path}: {reason}")


class NotAnEventFile(EventError):
    """The file is something else, or its header is damaged."""

    hint = "event files are written by penstock.events.start() and end in .pev"

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path} is not an event file: {reason}")


class EventFormatUnknown(EventError):
    """The recording was made by a newer Penstock."""

    hint = "read it with the Penstock that wrote it, or a newer one"

    def __init__(self, *, path: Path, found: int, known: int) -> None:
        self.path, self.found, self.known = path, found, known
        super().__init__(f"{path} has event format {found}, but this Penstock reads up to {known}")
