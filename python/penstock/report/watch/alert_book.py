"""Alerts written down and told: a file below the run's directory, stderr, and a command.

``alerts/HOST.jsonl`` is the watcher's own file, because nobody appends to what another process wrote; the ledger does not read it, so the
report of a run is the same with and without a watcher (O4). A command gets the alert as JSON on its standard input: what a name holds is
data, and no shell reads it.
"""

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.report.watch.alert_rules import AlertRules
from penstock.report.watch.alert_state import AlertEvent
from penstock.run.journal.journal import Entry

FOLDER = "alerts"
#: A file takes at most so much; later alerts are told and not kept.
FILE_BYTES_MAX = 16 << 20
_WAITING_MAX = 64
_WORDS_MAX = 500
_GRACE_S = 1.0


class AlertEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a file of alerts."""

    #: Seconds since 1970.
    at: float
    #: ``firing``, ``cleared``, or ``command failed``.
    state: str
    alert: str
    text: str
    run: str = ""
    host: str = ""
    rank: int | None = None
    life: int = -1
    step: int = -1
    signal: str = ""
    value: float | None = None
    limit: float | None = None
    lasting_s: float = 0.0


class AlertBook:
    """Writes and tells the alerts of one run."""

    def __init__(self, run: Path, name: str, rules: AlertRules) -> None:
        self._run, self._name, self._rules = run, name, rules
        self._host = socket.gethostname()
        self.path = run / FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]', '_', self._host)[:100]}.jsonl"
        #: How often each alert fired, since the file began.
        self.fired: dict[str, int] = {}
        self._commands = _Commands(rules, self._report) if rules.command else None
        self._told_unwritable = False

    def firing_before(self) -> dict[str, bool]:
        """Which alerts an earlier watcher of this host left firing."""
        states: dict[str, bool] = {}
        self.fired.clear()
        for entry in _read_file(self.path):
            if entry.state in ("firing", "cleared"):
                states[entry.alert] = entry.state == "firing"
                self.fired[entry.alert] = self.fired.get(entry.alert, 0) + (entry.state == "firing")
        return states

    def tell(self, event: AlertEvent) -> None:
        """Write it down, say it, and start the command."""
        entry = AlertEntry(
            at=time.time(),
            state=event.state,
            alert=event.rule.name,
            text=event.text,
            run=self._name,
            host=self._host,
            rank=event.rank,
            life=event.life,
            step=event.step,
            signal=event.rule.signal,
            value=event.value,
            limit=event.rule.limit,
            lasting_s=round(event.lasting_s, 3),
        )
        if event.state == "firing":
            self.fired[event.rule.name] = self.fired.get(event.rule.name, 0) + 1
        self._write(entry)
        if self._commands is not None:
            self._commands.start(entry)

    def close(self) -> None:
        """Wait for commands that are under way, within their limit."""
        if self._commands is not None:
            self._commands.close()

    def _report(self, entry: AlertEntry, problem: str) -> None:
        self._write(
            AlertEntry(
                at=time.time(),
                state="command failed",
                alert=entry.alert,
                text=f"the command for {entry.alert} {problem}",
                run=self._name,
                host=self._host,
                rank=entry.rank,
                life=entry.life,
                step=entry.step,
            )
        )

    def _write(self, entry: AlertEntry) -> None:
        word = {"firing": "alert", "cleared": "alert over"}.get(entry.state, "alert, trouble")
        sys.stderr.write(f"penstock: {word}: {_harmless(f'{entry.run}: {entry.text}')}" + "\n")
        try:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("ab") as file:
                # A line that a kill or a full disk tore stays alone.
                begin = b"" if file.tell() == 0 or _ends_line(self.path) else b"\n"
                if file.tell() < FILE_BYTES_MAX:
                    file.write(begin + msgspec.json.encode(entry) + b"\n")
        except OSError as problem:
            if not self._told_unwritable:
                sys.stderr.write(f"penstock: alerts are not written down: {_harmless(str(problem))}" + "\n")
            self._told_unwritable = True


class _Commands:
    """Starts the command for one alert after another; none may take longer than its limit."""

    def __init__(self, rules: AlertRules, report: Any) -> None:
        self._rules, self._report = rules, report
        self._waiting: queue.Queue[AlertEntry | None] = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="penstock-alerts", daemon=True)
        self._thread.start()

    def start(self, entry: AlertEntry) -> None:
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._report(entry, f"was not started: {_WAITING_MAX} alerts wait already")

    def close(self) -> None:
        try:
            self._waiting.put(None, timeout=self._rules.timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout=self._rules.timeout_s + 2 * _GRACE_S)

    def _run(self) -> None:
        while (entry := self._waiting.get()) is not None:
            problem = run_command(self._rules.command, msgspec.json.encode(entry), self._rules.timeout_s)
            if problem:
                self._report(entry, problem)


def run_command(command: tuple[str, ...], document: bytes, timeout_s: float) -> str:
    """Start it, without a shell; what went wrong, in words, or nothing."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as problem:
        return f"could not be started: {problem}"
    try:
        _, words = process.communicate(document, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"was ended: it took longer than {timeout_s:g} s"
    except OSError:
        # It ended without reading what it was told.
        words = b""
        _end(process)
    if process.returncode:
        last_words = words.decode(errors="replace").strip()[-_WORDS_MAX:]
        return f"failed with exit code {process.returncode}{': ' + last_words if last_words else ''}"
    return ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """With everything that it started in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGTERM:
            # Its children may have stayed.
            continue
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def read_alerts(run: str | os.PathLike[str]) -> list[AlertEntry]:
    """Alerts of all hosts, in order of time."""
    folder = Path(run) / FOLDER
    paths = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    return sorted((entry for path in paths for entry in _read_file(path)), key=lambda entry: entry.at)


def alert_entries(run: str | os.PathLike[str]) -> list[Entry]:
    """The same as lines of the run's story."""
    return [
        Entry(
            entry.at,
            "alert",
            max(entry.life, 0),
            entry.rank or 0,
            None if entry.step < 0 else entry.step,
            msgspec.to_builtins(entry),
        )
        for entry in read_alerts(run)
    ]


def _read_file(path: Path) -> Iterator[AlertEntry]:
    """Whole lines; a torn one is passed over."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + (1 << 20))
    except OSError:
        return
    for line in data.split(b"\n"):
        try:
            yield msgspec.json.decode(line, type=AlertEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _harmless(text: str) -> str:
    """Without characters that a terminal obeys."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
