"""Keys that a person presses while a command shows something."""

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Self

#: What leaves: ``q`` as in every pager, and the end of input.
LEAVING = frozenset(b"qQ\x04")


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

    def leave_within(self, patience_s: float) -> bool:
        """Wait so long for a key; whether it is one that leaves. Other keys end the wait, too."""
        waiting = [] if self._terminal is None else [self._terminal]
        ready, _, _ = select.select(waiting, [], [], patience_s)
        if not ready:
            return False
        pressed = os.read(ready[0], 64)
        if not pressed:
            # The terminal is gone.
            return True
        return not LEAVING.isdisjoint(pressed)


def _is_in_background(terminal: int) -> bool:
    """Whether somebody else has the terminal: nobody presses keys for us then, and changing it would stop us."""
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:
        # A terminal that controls nobody.
        return False
