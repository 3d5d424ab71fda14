"""A person at a terminal: a real one, with a command of `penstock` on it, and what stands on it at any moment."""

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

from tests.process.jobs import PATIENCE_S, PENSTOCK, Running

_SEQUENCE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])")


class Paper:
    """What a terminal shows, for the sequences that a job's screen uses."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0

    def write(self, text: str) -> None:
        """Letters, line feeds, carriage returns, and moves of the cursor."""
        at = 0
        while at < len(text):
            if match := _SEQUENCE.match(text, at):
                self._obey(match[2], int(match[1].split(";")[0] or 1) if match[1] else 1)
                at = match.end()
                continue
            self._letter(text[at])
            at += 1

    def _letter(self, letter: str) -> None:
        if letter == "\n":
            self.row += 1
            self.rows += [[] for _ in range(self.row + 1 - len(self.rows))]
        elif letter == "\r":
            self.column = 0
        else:
            line = self.rows[self.row]
            line += " " * (self.column + 1 - len(line))
            line[self.column] = letter
            self.column += 1

    def _obey(self, verb: str, number: int) -> None:
        if verb == "A":
            self.row -= number
        elif verb == "G":
            self.column = number - 1
        elif verb in "JK":
            del self.rows[self.row][self.column :]
            if verb == "J":
                del self.rows[self.row + 1 :]

    def lines(self) -> list[str]:
        """The text, without what is empty."""
        return [line for row in self.rows if (line := "".join(row).rstrip())]


class Person:
    """Runs a job in the foreground of a terminal and looks at it; or another command, on jobs that are there."""

    def __init__(
        self, home: Path, *words: str, command: str = "run", rows: int = 24, columns: int = 80
    ) -> None:
        self._ours, theirs = os.openpty()
        self.resize(rows, columns)
        self.written = b""
        marks = home / "marks"
        marks.mkdir(parents=True, exist_ok=True)
        # The size is that of the terminal, whatever whoever runs the tests has.
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        variables = {**kept, "PENSTOCK_HOME": str(home), "MARKS": str(marks), "NO_COLOR": "1"}
        launcher = subprocess.Popen(
            [*PENSTOCK, command, *words],
            env=variables,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.running = Running(home, launcher, marks)

    def resize(self, rows: int, columns: int) -> None:
        """Make the terminal another size; the kernel tells whoever runs there."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def lines(self) -> list[str]:
        """What stands there."""
        paper = Paper()
        paper.write(self.written.decode())
        return paper.lines()

    def wait_lines(self, expected: list[str]) -> None:
        """Look until these stand there, and nothing else."""
        until = time.monotonic() + PATIENCE_S
        while (seen := self.lines()) != expected:
            assert time.monotonic() < until, f"on the terminal: {seen}, not {expected}"
            self._read(0.05)

    def wait_words(self, words: str) -> None:
        """Look until they stand there."""
        until = time.monotonic() + PATIENCE_S
        while not any(words in line for line in self.lines()):
            assert time.monotonic() < until, f"on the terminal: {self.lines()}, without {words!r}"
            self._read(0.05)

    def wait_end(self) -> int:
        """Look until the command is over; what it exited with."""
        until = time.monotonic() + PATIENCE_S
        while self._read(0.05):
            assert time.monotonic() < until, f"on the terminal: {self.lines()}"
        assert self.running.launcher is not None
        return self.running.launcher.wait(PATIENCE_S)

    def close(self) -> None:
        """Leave."""
        os.close(self._ours)

    def _read(self, patience_s: float) -> bool:
        if not select.select([self._ours], [], [], patience_s)[0]:
            return True
        try:
            piece = os.read(self._ours, 1 << 16)
        except OSError:
            # Nobody has the terminal open any more.
            return False
        self.written += piece
        return bool(piece)
