"""The process that watches runs: refreshes once a second, raises alerts, and has the text ready that Prometheus asks for."""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from penstock.data.monitor.endpoint import Endpoint
from penstock.data.monitor.exposition import Sample
from penstock.errors import PenstockError, UsageError
from penstock.observe.steps.clock import boot_id
from penstock.report.quantities import duration
from penstock.report.watch.alert_book import AlertBook
from penstock.report.watch.alert_rules import AlertRules, rules_of
from penstock.report.watch.alert_state import AlertStates
from penstock.report.watch.run_metrics import alert_samples, run_samples, text_of
from penstock.report.watch.run_watch import RunWatch, Snapshot

EVERY_S = 1.0
#: An address that cannot be had is asked for again after so long.
_SERVE_AGAIN_S = 5.0
RUNS_MAX = 64


@dataclass(slots=True)
class _Watched:
    """One run, its alerts and what was seen last."""

    watch: RunWatch
    states: AlertStates
    book: AlertBook
    snapshot: Snapshot | None = None
    #: Held by the one watcher of the host that raises the alerts of this run.
    claim: socket.socket | None = None

    def refresh(self, *, at_once: bool) -> None:
        """Look, and tell what has changed."""
        snapshot = self.watch.refresh(at_once=at_once)
        self.snapshot = snapshot
        if snapshot.is_gone:
            return
        if not self._is_ours():
            return
        own = {state.rank for state in snapshot.ranks if state.boot_id in (boot_id(), "")}
        is_first = bool(snapshot.ranks) and snapshot.ranks[0].rank in own
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        for event in self.states.refresh(snapshot, now, ranks=own, is_first=is_first):
            self.book.tell(event)

    def _is_ours(self) -> bool:
        """Whether no other watcher of this host raises its alerts. The kernel gives the claim back with the process."""
        if self.claim is None and self.states.rules.rules:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            digest = blake2b(os.fsencode(self.watch.path.resolve()), digest_size=16).hexdigest()
            try:
                claim.bind(f"\0penstock-watch-{digest}")
            except OSError:
                claim.close()
                return False
            self.claim = claim
            self.states.restore(self.book.firing_before())
        return True

    def close(self) -> None:
        """Wait for commands, and let others raise its alerts."""
        self.book.close()
        if self.claim is not None:
            self.claim.close()

    def samples(self) -> Iterator[Sample]:
        """Everything about it."""
        if self.snapshot is not None and not self.snapshot.is_gone:
            yield from run_samples(self.snapshot)
            names = [rule.name for rule in self.states.rules.rules]
            yield from alert_samples(self.snapshot.name, names, self.states.firing(), self.book.fired)


@dataclass(slots=True)
class Watcher:
    """Watches runs until it is told to end."""

    #: The directories of the runs; asked again and again, because a job names its runs when they begin.
    runs: Callable[[], list[Path]]
    serve: str | None = None
    #: Whether an address that cannot be had is an error.
    must_serve: bool = False
    #: Where alerts are declared for runs that declare none of their own.
    beside: Path | None = None
    #: Whether alerts are raised at all.
    raises_alerts: bool = True
    endpoint: Endpoint | None = None
    _watched: dict[Path, _Watched] = field(default_factory=dict)
    _text: str = ""
    _refreshes: int = 0
    _serve_not_before: float = 0.0
    _told: set[str] = field(default_factory=set)

    def refresh(self, *, at_once: bool = False) -> list[Snapshot]:
        """Look at all runs once."""
        self._open()
        self._find()
        for watched in self._watched.values():
            # What is wrong with one run keeps nobody from watching the others.
            with suppress(PenstockError, OSError):
                watched.refresh(at_once=at_once)
        self._refreshes += 1
        self._text = text_of(self._samples())
        return [watched.snapshot for watched in self._watched.values() if watched.snapshot is not None]

    def text(self) -> str:
        """As of the last refresh."""
        return self._text

    def alerts(self, run: Path) -> list[str]:
        """Alerts of a run that last."""
        return self._watched[run].states.firing() if run in self._watched else []

    def close(self) -> None:
        """Stop serving, and wait for commands."""
        if self.endpoint is not None:
            self.endpoint.close()
        for watched in self._watched.values():
            watched.close()

    def _samples(self) -> Iterator[Sample]:
        for watched in self._watched.values():
            yield from watched.samples()
        yield Sample("penstock_watch_refreshes_total", self._refreshes)
        yield Sample("penstock_watch_cpu_seconds_total", time.process_time())

    def _find(self) -> None:
        for path in self.runs()[:RUNS_MAX]:
            if path in self._watched:
                continue
            name = path.name or str(path)
            if any(watched.watch.name == name for watched in self._watched.values()):
                name = str(path)
            rules = self._rules(path)
            book = AlertBook(path, name, rules)
            self._watched[path] = _Watched(RunWatch(path, name), AlertStates(rules), book)

    def _rules(self, path: Path) -> AlertRules:
        if not self.raises_alerts:
            return AlertRules(())
        try:
            return rules_of(path, self.beside)
        except PenstockError as problem:
            if self.must_serve:
                raise
            self._tell(f"alerts are not raised: {problem}")
            return AlertRules(())

    def _open(self) -> None:
        if self.serve is None or self.endpoint is not None or time.monotonic() < self._serve_not_before:
            return
        try:
            self.endpoint = Endpoint(self.serve, self.text)
        except UsageError as problem:
            if self.must_serve:
                raise
            self._serve_not_before = time.monotonic() + _SERVE_AGAIN_S
            self._tell(f"{problem}; training goes on, and the address is asked for again")

    def _tell(self, words: str) -> None:
        """Once."""
        if words not in self._told:
            self._told.add(words)
            sys.stderr.write(f"penstock: warning: {words}" + "\n")


def _nobody(snapshots: list[Snapshot]) -> None:
    """Nobody looks."""


def watch(
    watcher: Watcher,
    until: list[int],
    is_over: Callable[[], bool] | None = None,
    shown: Callable[[list[Snapshot]], None] = _nobody,
) -> None:
    """Refresh once a second until one of some processes has ended, something is over, or a signal asks for it."""
    stopping = threading.Event()
    woken, waking = os.pipe()
    os.set_blocking(waking, False)

    def stop(number: int, frame: object) -> None:
        stopping.set()
        with suppress(OSError):
            os.write(waking, b"!")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    try:
        for descriptor in until:
            poll.register(descriptor, select.POLLIN)
        next_at = time.monotonic()
        while not stopping.is_set():
            shown(watcher.refresh())
            next_at = max(next_at + EVERY_S, time.monotonic())
            if poll.poll(max(0.0, next_at - time.monotonic()) * 1000) or (is_over is not None and is_over()):
                break
        watcher.refresh()
    finally:
        watcher.close()


def snapshot_json(snapshot: Snapshot, alerts: list[str]) -> dict[str, Any]:
    """A run as plain values."""
    figures = snapshot.figures
    return {
        "form": 1,
        "run": snapshot.name,
        "speed": figures.speed,
        "mfu": figures.mfu,
        "goodput": figures.goodput,
        "lives": figures.lives,
        "incidents": {
            kind: {"count": count, "device_ns": cost} for kind, (count, cost) in figures.incidents.items()
        },
        "recent": {"mfu": snapshot.recent_mfu, "tokens_per_s": snapshot.recent_tokens_per_s},
        "alerts": alerts,
        "ranks": [
            {
                "rank": state.rank,
                "life": state.life,
                "running": not state.is_over,
                "step": state.step,
                "step_ns": state.step_ns,
                "age_s": snapshot.ages_s[state.rank],
                "memory": state.memory,
                "scalars": {
                    name: value if abs(value) < float("inf") else str(value)
                    for name, value in state.scalars.items()
                },
                "not_finite": state.not_finite,
                "lost_rows": state.lost_rows,
            }
            for state in snapshot.ranks
        ],
    }


def line_of(snapshot: Snapshot, alerts: list[str]) -> str:
    """A run in a line."""
    figures, speed = snapshot.figures, snapshot.figures.speed
    if snapshot.is_gone:
        return f"{snapshot.name}: its directory is gone"
    words = [f"step {max((state.step for state in snapshot.ranks), default=-1)}"]
    if isinstance(p50 := speed.get("p50_ns"), int):
        words.append(f"p50 {duration(p50)}, p99 {duration(speed['p99_ns'])}")
    if isinstance(tokens := speed.get("tokens_per_s"), float):
        words.append(f"{tokens:,.0f} tokens/s")
    for name, value in (("MFU", figures.mfu.get("value")), ("goodput", figures.goodput.get("runtime"))):
        if isinstance(value, float):
            words.append(f"{name} {100 * value:.1f} %")
    losses = [state.scalars["loss"] for state in snapshot.ranks if "loss" in state.scalars]
    if losses:
        words.append(f"loss {losses[0]:.6g}")
    words += [f"ALERT {name}" for name in alerts]
    return f"{snapshot.name}: {', '.join(words)}"


def job_runs(job: Path) -> list[Path]:
    """Directories of runs that ranks of a job have named."""
    folder = job / "watched"
    try:
        names = sorted(folder.iterdir())[:RUNS_MAX]
    except OSError:
        return []
    runs = []
    for name in names:
        with suppress(OSError, ValueError):
            runs.append(Path(json.loads(name.read_text())))
    return runs
