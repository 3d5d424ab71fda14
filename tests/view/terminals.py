"""A real terminal for tests: a program at the other end of a pty, keys in, and the screen that a terminal would show."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import pyte

LIMIT_S = 40.0


class Terminal:
    """A program that thinks that somebody looks."""

    def __init__(
        self, command: Sequence[str], *, columns: int = 80, rows: int = 24, env: Mapping[str, str]
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        #: All that the program has sent.
        self.sent = b""
        self._ours, theirs = pty.openpty()
        self._resize(columns, rows)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("COLORTERM", "NO_COLOR", "COLUMNS", "LINES")
        }
        self.begun = time.perf_counter()
        self.program = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env={**kept, **env}
        )
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        os.close(self._ours)

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return list(self.screen.display)

    def press(self, keys: str) -> None:
        """Send keys as a terminal does."""
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Make the window another size."""
        self._resize(columns, rows)
        self.screen.resize(rows, columns)
        # The pty controls no session, so that the kernel tells nobody.
        self.program.send_signal(signal.SIGWINCH)

    def wait_for(self, text: str, *, line: int | None = None) -> float:
        """Until a text is on the screen (or on a line of it); seconds since the program was started."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            # A sentence may go on over several lines.
            if text in ("".join(self.lines) if line is None else self.lines[line]):
                return time.perf_counter() - self.begun
            if not self._read():
                break
        raise AssertionError(f"{text!r} did not come:\n" + "\n".join(self.lines))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Until something holds, and nothing more comes at once."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            came = len(self.sent)
            if not self._read() or (holds() and len(self.sent) == came):
                return
        raise AssertionError("it did not come to hold:\n" + "\n".join(self.lines))

    def wait_for_end(self) -> int:
        """Until the program ends; its exit code."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and self._read():
            pass
        return self.program.wait(timeout=LIMIT_S)

    def _read(self) -> bool:
        """Take what has come; False when the program has closed its end."""
        if not select.select([self._ours], [], [], 0.05)[0]:
            return self.program.poll() is None
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            return False
        self.sent += data
        self._stream.feed(data)
        return bool(data)

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
