"""What people see while a checkout is made ready: a line for every finished step, and one that says how far the others are.

On a terminal that line is rewritten several times a second; elsewhere (a pipe, CI) it is printed now and then.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

TERMINAL_PAUSE_S = 0.2
PIPE_PAUSE_S = 20.0
ERASE = "\r\x1b[K"


class Progress:
    """Shows steps that run side by side. Used as a context: its thread ends with it."""

    def __init__(self, out: TextIO = sys.stdout, *, pipe_pause_s: float = PIPE_PAUSE_S) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._pause_s = TERMINAL_PAUSE_S if self._terminal else pipe_pause_s
        #: Steps under way, each with when it began and how far it is ("" where it does not say).
        self._under_way: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show_again, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            self._erase()

    def begin(self, what: str) -> None:
        """A step begins."""
        with self._lock:
            self._under_way[what] = (time.monotonic(), "")
            if not self._terminal:
                self._print(f"{what} …")

    def note(self, what: str, how_far: str) -> None:
        """How far a step is."""
        with self._lock:
            begun, _ = self._under_way[what]
            self._under_way[what] = (begun, how_far)

    def end(self, what: str, *, failed: bool = False) -> None:
        """A step is over. One that failed is not said to have taken its time: its error follows."""
        with self._lock:
            begun, _ = self._under_way.pop(what)
            if not failed:
                self._print(f"{what}: {time.monotonic() - begun:.1f} s")

    def say(self, words: str) -> None:
        """One line that stays."""
        with self._lock:
            self._print(words)

    def line(self) -> str:
        """What the steps under way are, how far, and for how many seconds."""
        now = time.monotonic()
        return " · ".join(
            f"{what} {how_far or '…'} {now - begun:.0f} s"
            for what, (begun, how_far) in self._under_way.items()
        )

    def _show_again(self) -> None:
        while not self._over.wait(self._pause_s):
            with self._lock:
                if not self._under_way:
                    continue
                if self._terminal:
                    width = shutil.get_terminal_size().columns - 1
                    self._out.write(ERASE + f"[penstock] {self.line()}"[:width])
                    self._out.flush()
                else:
                    self._print(self.line())

    def _print(self, words: str) -> None:
        self._erase()
        self._out.write(f"[penstock] {words}\n")
        self._out.flush()

    def _erase(self) -> None:
        if self._terminal:
            self._out.write(ERASE)
            self._out.flush()
