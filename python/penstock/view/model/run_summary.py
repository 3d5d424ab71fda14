"""A run in a few numbers, for screens that show many. All of them come from ``penstock.report``; whether it runs is seen from its taps."""

import math
from pathlib import Path
from typing import Any

from penstock.report.curves.run_screen import RunScreen
from penstock.view.tap.reader import taps_in
from penstock.view.wire.run_answers import RunCondition, RunSummary

SPEED = ("steps", "p50_ns", "p99_ns", "steps_per_s", "tokens", "tokens_per_s")
GOODPUT = ("runtime", "runtime_high", "scheduling", "program")
MEMORY = ("rss", "memory_peak", "memory_reserved", "allocator_retries")


def is_running(run: Path) -> bool:
    """Whether a process of it is there, on this machine."""
    return any(tap.alive for tap in taps_in(run / "taps"))


def condition_of(screen: RunScreen, *, running: bool) -> RunCondition:
    """Running, or how its last life ended; ``silent`` where nobody noted an end."""
    lives = screen.marks["lives"]
    end = lives[-1]["end"] if lives else ""
    return "running" if running else "failed" if end == "failed" else "ended" if end else "silent"


def summary_of(screen: RunScreen, address: str) -> RunSummary:
    """The numbers of ``penstock report --json``, and where the run is."""
    report = screen.report
    return {
        "name": report.name,
        "address": address,
        "state": condition_of(screen, running=is_running(screen.path)),
        "step": screen.newest.step,
        "loss": screen.newest.loss,
        "ranks": len(report.ledger.ranks),
        "lives": len(screen.marks["lives"]),
        "incidents": len(report.ledger.incidents),
        "line": report.diagnosis.line,
        "verdict": _verdict(report.diagnosis.verdict),
        "wall_ns": report.ledger.longest,
        "speed": chosen(report.speed, SPEED),
        "mfu": mfu_of(report.mfu),
        "goodput": chosen(report.ledger.goodput(), GOODPUT),
        "memory": chosen(report.memory, MEMORY),
    }


def _verdict(word: str) -> Any:
    assert word in ("named", "none", "abstains"), word
    return word


def mfu_of(mfu: dict[str, Any]) -> Any:
    """The number, or why there is none."""
    return {"value": mfu["value"], "reason": str(mfu.get("reason", ""))}


def chosen(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Some of the values, in this order."""
    return {name: values[name] for name in names}


def memory_of(memory: Any) -> tuple[str, int | None]:
    """What is shown of it: the device's where that was measured, else the process's; None where neither was."""
    for name, label in (("memory_peak", "device memory"), ("rss", "memory")):
        value = memory[name]
        if isinstance(value, int | float) and math.isfinite(value):
            return label, int(value)
    return "memory", None
