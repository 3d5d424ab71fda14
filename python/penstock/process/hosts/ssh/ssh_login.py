"""One login: the program that is started on a host, and the copy of the agent that goes there once.

The system's ``ssh`` logs in, so keys, jumps, names and ports of ``~/.ssh/config`` hold. It never asks for a password, because nobody
could answer it for sixty-four hosts.
"""

import hashlib
import json
import os
import shlex
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

#: Of what a login says before its host is there, such as a greeting of the system; more is not kept.
WORDS_MAX = 20
NOISE_BYTES_MAX = 1 << 20
#: What a host is told that is to look at itself.
CHECK = "check"
#: What ssh exits with when the trouble is its own.
SSH_TROUBLE = 255
#: A login that asks nobody, has no terminal, and runs what we say whatever the configuration would run instead.
SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "RemoteCommand=none")

#: On one line, because csh and its kin end a quoted word where the line ends; and `!` stands before spaces only, where they leave it alone.
_PROGRAM = " ".join(
    [
        "umask",
        "077;",
        'a="${{XDG_CACHE_HOME:-$HOME/.cache}}/penstock/agents/{digest}";',
        "if",
        "[",
        "!",
        "-x",
        '"$a/penstock-agent"',
        "];",
        "then",
        "if",
        "!",
        "said=$(mkdir",
        "-p",
        '"$a"',
        "2>&1);",
        "then",
        "echo",
        '"error:',
        "${{said#mkdir:",
        "}}",
        "(XDG_CACHE_HOME",
        "in",
        "the",
        "environment",
        "of",
        "its",
        "logins",
        "names",
        "another",
        'place)"',
        ">&2;",
        "exit",
        "90;",
        "fi;",
        "echo;",
        "echo",
        '"{{\\"penstock\\":',
        '\\"agent',
        'wanted\\"}}";',
        "head",
        "-c",
        "{size}",
        ">",
        '"$a/new.$$"',
        "&&",
        "[",
        '"$(wc',
        "-c",
        "<",
        '"$a/new.$$")"',
        "-eq",
        "{size}",
        "]",
        "||",
        "exit",
        "90;",
        "chmod",
        "700",
        '"$a/new.$$"',
        "&&",
        "mv",
        "-f",
        '"$a/new.$$"',
        '"$a/penstock-agent"',
        "||",
        "exit",
        "90;",
        "fi;",
        "if",
        "!",
        "command",
        "-v",
        '"{python}"',
        ">",
        "/dev/null;",
        "then",
        "echo",
        '"error:',
        "{python}",
        "is",
        "not",
        "on",
        "this",
        "host,",
        "and",
        "Penstock",
        "has",
        "to",
        "be",
        "installed",
        "at",
        "the",
        "same",
        "path",
        "on",
        'all"',
        ">&2;",
        "exit",
        "91;",
        "fi;",
        "if",
        "!",
        'said=$("{python}"',
        "-c",
        '"import',
        'penstock.process.hosts.bundle"',
        "2>&1);",
        "then",
        "echo",
        '"error:',
        "{python}",
        "has",
        "no",
        "Penstock",
        "on",
        "this",
        "host:",
        "$(printf",
        '"%s\\n"',
        '"$said"',
        "|",
        "tail",
        "-n",
        '1)"',
        ">&2;",
        "exit",
        "91;",
        "fi;",
        "echo;",
        "exec",
        '"{python}"',
        "-m",
        "penstock.process.hosts.bundle",
        '"$a/penstock-agent"',
        "{checks}",
    ]
)


@dataclass(frozen=True)
class Shipment:
    """The agent as it goes to hosts that do not have it."""

    agent: Path
    #: The interpreter that is looked for there.
    python: str
    #: Whether hosts look at themselves before they say that they are here.
    checks: bool = False

    @cached_property
    def content(self) -> bytes:
        """The executable."""
        return self.agent.read_bytes()

    @cached_property
    def program(self) -> str:
        """What a login runs: POSIX sh, because the agent may not be there yet."""
        digest = hashlib.sha256(self.content).hexdigest()
        return _PROGRAM.format(
            digest=digest, size=len(self.content), python=self.python, checks=CHECK if self.checks else ""
        )


class Login:
    """A connection to one host, from the first word of ssh to its end."""

    def __init__(self, host: str, shipment: Shipment) -> None:
        self.host = host
        self._shipment = shipment
        # A session of its own: Ctrl-C is for the job, which ends in order.
        self.process = subprocess.Popen(
            [*SSH, host, f"exec sh -c {shlex.quote(shipment.program)}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.sink = self.process.stdin.fileno()
        self.out, self.err = self.process.stdout.fileno(), self.process.stderr.fileno()
        for number in (self.sink, self.out, self.err):
            os.set_blocking(number, False)
        #: What is to be written, in order.
        self._queue = bytearray()
        self._rest = {self.out: bytearray(), self.err: bytearray()}
        #: What ssh and the host said on standard error before the host was there.
        self.words: deque[str] = deque(maxlen=WORDS_MAX)
        self.greeting: dict[str, Any] | None = None
        self.open = {self.out, self.err}

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended and everything of it was read."""
        return not self.open and self.process.poll() is not None

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._queue)

    def send(self, message: dict[str, Any]) -> None:
        """Queue a line, and send what goes at once."""
        self._queue += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what goes without waiting."""
        try:
            while self._queue:
                del self._queue[: os.write(self.sink, self._queue)]
        except BlockingIOError:
            return
        except OSError:
            # The connection is gone; its end tells so.
            self._queue.clear()

    def read(self, number: int) -> list[bytes]:
        """Whole lines that came on a stream. Before the host is there they are taken here."""
        try:
            piece = os.read(number, 1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            piece = b""
        rest = self._rest[number]
        rest += piece
        if not piece:
            self.open.discard(number)
        lines = bytes(rest).splitlines(keepends=True)
        whole = not piece or len(rest) > NOISE_BYTES_MAX or not lines or lines[-1].endswith(b"\n")
        rest[:] = b"" if whole else lines.pop()
        if self.greeting is not None:
            return lines
        later: list[bytes] = []
        for line in lines:
            if self.greeting is not None:
                later.append(line)
            elif number == self.err:
                self.words.append(line.decode(errors="replace").strip())
            else:
                self._hear(line)
        return later

    def trouble(self) -> str:
        """Why the host is not here: the last words of ssh, without its own prefix."""
        code = self.process.poll()
        said = [word for word in self.words if word and not word.startswith("Warning: Permanently added")]
        if said:
            return _plain(said, self.host)
        return f"the login ended with code {code} and without a word" if code is not None else "no answer yet"

    def _hear(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        said = message.get("penstock") if isinstance(message, dict) else None
        if said == "agent wanted":
            self._queue += self._shipment.content
            self.flush()
        elif said == "here":
            self.greeting = message

    def end(self) -> None:
        """Give the connection up: nobody waits for what is at its other end."""
        self.process.terminate()
        self.close()

    def close(self) -> None:
        """Let go of the connection; ssh ends when the host has."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _plain(said: list[str], host: str) -> str:
    """The words alone: ``Permission denied (publickey)`` of ``me@gpu07: Permission denied (publickey)``."""
    errors = [word for word in said if word.startswith("error: ")]
    word = errors[-1].removeprefix("error: ") if errors else said[-1]
    for prefix in (f"{host}: ", f"{host.rpartition('@')[2]}: ", "ssh: "):
        word = word.removeprefix(prefix)
    head, colon, rest = word.partition(": ")
    if colon and "@" in head and " " not in head:
        word = rest
    return word.strip().rstrip(".")
