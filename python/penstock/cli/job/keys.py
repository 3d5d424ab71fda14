"""Keys that a person presses while a command shows something."""

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Self

#: What leaves: ``q`` as in every pager, and the end of input.
_END = b"\x04"
LEAVING = frozenset(b"qQ" + _END)


class Keys:
    """Single keys instead of lines, while it is open; nothing where no terminal is at standard input."""

    def __init__(self) -> None:
        self._terminal: int | None = None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        if sys.stdin is not None and sys.stdin.isatty():
            terminal = sys.stdin.fileno()
            if not _is_in_background(terminal):
                self._terminal, self._before = terminal, termios.tcgetattr(terminal)
                tty.setcbreak(terminal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    @property
    def is_open(self) -> bool:
        """Whether there is a terminal on which keys can be pressed."""
        return self._terminal is not None

    def pressed_within(self, patience_s: float) -> bytes:
        """Wait so long for keys; what was pressed, or the end of input when the terminal is gone."""
        waiting = [] if self._terminal is None else [self._terminal]
        ready, _, _ = select.select(waiting, [], [], patience_s)
        return (os.read(ready[0], 64) or _END) if ready else b""

    def leave_within(self, patience_s: float) -> bool:
        """Wait so long for a key; whether it is one that leaves. Other keys end the wait, too."""
        return leaves(self.pressed_within(patience_s))


def leaves(pressed: bytes) -> bool:
    """Whether one of the keys leaves."""
    return not LEAVING.isdisjoint(pressed)


def _is_in_background(terminal: int) -> bool:
    """Whether somebody else has the terminal: nobody presses keys for us then, and changing it would stop us."""
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:
        # A terminal that controls nobody.
        return False
