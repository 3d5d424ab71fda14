"""What a zygote knows when it is warm, and what a rank knows when it begins."""

from __future__ import annotations

from types import CodeType
from typing import Any

from .title import Title


class Compiled:
    """The text of a program and what it compiles to; once for all ranks."""

    def __init__(self, text: bytes | str, name: str, code: CodeType) -> None:
        self.text = text
        #: The file, as tracebacks show it.
        self.name = name
        self.code = code


class Warm:
    """What was found out once and is the same for all forks."""

    def __init__(self, first: dict[str, Any], *, pid: int, kept: list[int], loaded: dict[str, str]) -> None:
        #: What the agent said first: what to restore, and its own number.
        self.first = first
        self.pid = pid
        #: Descriptors that were open before us; forks have them too.
        self.kept = kept
        #: Where each top-level module was loaded from.
        self.loaded = loaded
        self.title = Title()
        #: The program of the newest request, if it could be compiled.
        self.compiled: Compiled | None = None


class Birth:
    """A request of the agent, one worker's own part of it, and the worker's descriptors."""

    def __init__(
        self, request: dict[str, Any], worker: dict[str, Any], fds: dict[str, int], warm: Warm
    ) -> None:
        self.request = request
        self.worker = worker
        #: By name: the ``gate``, and those that ``files`` of the worker names.
        self.fds = fds
        self.warm = warm
