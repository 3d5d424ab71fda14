"""Runs as their page shows them. All numbers come from ``penstock.report``; here they are only made safe to send."""

import math
import shlex
import time
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any, cast

from penstock.report.accounts.account_names import ACCOUNTS, PARTS
from penstock.report.curves.run_curves import unit_of
from penstock.report.curves.run_screen import RunScreen, run_screen, signature_of
from penstock.view.address import RunAddress
from penstock.view.model.run_summary import (
    GOODPUT,
    MEMORY,
    SPEED,
    chosen,
    condition_of,
    is_running,
    mfu_of,
)
from penstock.view.web.content.recordings import as_text, list_recordings
from penstock.view.wire.run_answers import (
    CurveSet,
    HeatMap,
    RunCause,
    RunLedger,
    RunMarks,
    RunOverview,
    RunStall,
    RunState,
)

#: Runs whose meaning is kept, and of each list how much is sent.
_SCREENS_KEPT = 12
_CAUSES_MAX = 12
_INCIDENT = ("kind", "life", "cause", "ranks", "device_ns", "accounts", "lost_steps", "step")
_CHECKPOINT = ("step", "life", "at_s", "bytes", "written", "stall_ns", "durable_ns")


class Screens:
    """What was computed of the runs looked at last; computed anew when their files have changed. Safe from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[RunScreen, int]] = OrderedDict()
        self._lock = Lock()

    def at(self, run: Path) -> tuple[RunScreen, int]:
        """The screen of a run, and the milliseconds that it took."""
        # One at a time: a second asker of the same run would do the same work again.
        with self._lock:
            kept = self._kept.get(run)
            if kept is None or kept[0].signature != signature_of(run):
                began = time.monotonic()
                screen = run_screen(run)
                # The rest of what a page asks for: how often it may ask follows from all of it.
                screen.prepare()
                kept = (screen, round(1000 * (time.monotonic() - began)))
                self._kept[run] = kept
            self._kept.move_to_end(run)
            while len(self._kept) > _SCREENS_KEPT:
                self._kept.popitem(last=False)
            return kept


def describe_state(run: Path) -> RunState:
    """Whether it runs here, and whether it has written something."""
    return {
        "signature": signature_of(run),
        "is_running": is_running(run),
    }


def describe_run(screen: RunScreen, took_ms: int, address: RunAddress) -> RunOverview:
    """Everything but its curves."""
    report = screen.report.to_json()
    recordings = list_recordings(screen.path / "events")
    marks = screen.marks
    causes = [_cause(cause) for cause in report["diagnosis"]["causes"][:_CAUSES_MAX]]
    directory = shlex.quote(str(address.run))
    steps = screen.steps.steps
    running = is_running(screen.path)
    overview: RunOverview = {
        "signature": screen.signature,
        "is_running": running,
        "state": condition_of(screen, running=running),
        "name": report["run"],
        "address": str(address),
        "last_step": int(steps[-1]) if len(steps) else None,
        "ranks": [rank.rank for rank in screen.report.ledger.ranks],
        "diagnosis": {
            "line": report["diagnosis"]["line"],
            "verdict": report["diagnosis"]["verdict"],
            "wall_ns": report["diagnosis"]["wall_ns"],
            "causes": causes,
        },
        "speed": chosen(report["speed"], SPEED),
        "mfu": mfu_of(report["mfu"]),
        "goodput": chosen(report["ledger"]["goodput"], GOODPUT),
        "memory": chosen(report["memory"], MEMORY),
        "ledger": _ledger(screen),
        "marks": _marks(marks),
        "stalls": cast(list[RunStall], screen.stalls),
        "columns": [{"name": name, "unit": unit_of(screen.steps, name)} for name in screen.steps.names],
        "faults": list(report["faults"]),
        "recordings": recordings["recordings"],
        "recordings_left_out": recordings["left_out"],
        "took_ms": took_ms,
        "commands": [f"penstock report {directory}", f"penstock report {directory} --json"],
    }
    return cast(RunOverview, sendable(overview))


def describe_curves(
    screen: RunScreen, first: int | None, end: int | None, name: str | None = None
) -> CurveSet:
    """Its curves, all of them or one, over all steps or some."""
    names = None if name is None else [name]
    return cast(CurveSet, sendable(screen.curves.to_json(first, end, names=names)))


def describe_heat_map(screen: RunScreen, column: str) -> HeatMap:
    """A column as rank by step."""
    return cast(HeatMap, sendable(screen.heat_map(column)))


def sendable(value: Any) -> Any:
    """Values that JSON can carry, whatever names and numbers a program gave."""
    if isinstance(value, dict):
        return {as_text(str(key)): sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(item) for item in value]
    if isinstance(value, str):
        return as_text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cause(cause: dict[str, Any]) -> RunCause:
    return {
        "kind": cause["kind"],
        "cost_ns": cause["cost_ns"],
        "share": cause["share"],
        "line": cause["line"],
        "next_step": cause["next_step"],
    }


def _ledger(screen: RunScreen) -> RunLedger:
    ledger = screen.report.ledger
    return {
        "wall_ns": ledger.wall,
        "ranks": len(ledger.ranks),
        "accounts": ledger.accounts,
        "parts": ledger.parts,
        "account_names": [{"name": name, "says": says} for name, says in ACCOUNTS.items()],
        "part_names": [{"name": name, "says": says} for name, says in PARTS.items()],
        "lives": cast(Any, screen.lives),
    }


def _marks(marks: dict[str, Any]) -> RunMarks:
    return {
        "lives": marks["lives"],
        "incidents": [chosen(incident, _INCIDENT) for incident in marks["incidents"]],
        "checkpoints": [chosen(checkpoint, _CHECKPOINT) for checkpoint in marks["checkpoints"]],
        "checkpoints_left_out": marks["checkpoints_left_out"],
        "skips": [chosen(skip, ("first", "end", "reason")) for skip in marks["skips"]],
    }
