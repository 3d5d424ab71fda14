"""What happened at which step of a run: lives, incidents, checkpoints, and steps that were left out."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.data import SkipJournal
from penstock.errors import RecipeInvalid, RunDamaged
from penstock.report.accounts.incidents import Incident
from penstock.report.accounts.timeline import LifeTimeline, RankTimeline
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal
from penstock.run.journal.journal import Entry

#: Of each kind, the newest; what is left out is counted.
MARKS_MAX = 1_000


def run_marks(
    run: str | os.PathLike[str], timelines: Sequence[RankTimeline], incidents: Sequence[Incident]
) -> dict[str, Any]:
    """Marks of every kind, in order of steps or of time."""
    try:
        entries = journal.read(run)
    except RunDamaged:
        entries = []
    lives = _lives(timelines)
    saved = [entry for entry in entries if entry.kind == "commit" and entry.step is not None]
    skips = _skips(run)
    return {
        "lives": [_life(number, of_ranks, entries) for number, of_ranks in sorted(lives.items())][
            -MARKS_MAX:
        ],
        "incidents": [_incident(incident, lives) for incident in incidents][-MARKS_MAX:],
        "checkpoints": [_checkpoint(entry) for entry in saved[-MARKS_MAX:]],
        "checkpoints_left_out": max(0, len(saved) - MARKS_MAX),
        "skips": skips[-MARKS_MAX:],
    }


def _lives(timelines: Sequence[RankTimeline]) -> dict[int, list[LifeTimeline]]:
    lives: dict[int, list[LifeTimeline]] = {}
    for timeline in timelines:
        for life in timeline.lives:
            lives.setdefault(life.number, []).append(life)
    return lives


def _life(number: int, of_ranks: Sequence[LifeTimeline], entries: Sequence[Entry]) -> dict[str, Any]:
    """A life begins at the first step that it executed; how it ended is in the journal, if at all."""
    begun = [int(life.steps.numbers[0]) for life in of_ranks if len(life.steps.numbers)]
    last = [int(life.steps.numbers.max()) for life in of_ranks if len(life.steps.numbers)]
    of_life = [entry for entry in entries if entry.incarnation == number]
    start = next((entry for entry in of_life if entry.kind == "start"), None)
    end = next((entry for entry in of_life if entry.kind == "end"), None)
    # A loop that was only observed has no journal.
    is_over = not entries and all(life.ended is not None for life in of_ranks)
    return {
        "life": number,
        "step": min(begun, default=None),
        "last_step": max(last, default=None),
        "ranks": len(of_ranks),
        "began_s": None if start is None else start.at,
        "end": str(end.facts.get("how", "")) if end is not None else "done" if is_over else "",
    }


def _incident(incident: Incident, lives: dict[int, list[LifeTimeline]]) -> dict[str, Any]:
    """A death stands behind the last step of its life; a return where training went on."""
    of_life = lives.get(incident.life, [])
    if incident.kind == "return":
        steps = [int(step) for life in of_life for step in life.resumed.steps[1:]]
    else:
        steps = [int(np.max(life.steps.numbers)) for life in of_life if len(life.steps.numbers)]
    return {**incident.to_json(), "step": max(steps, default=None)}


def _checkpoint(entry: Entry) -> dict[str, Any]:
    facts = entry.facts
    return {
        "step": entry.step,
        "life": entry.incarnation,
        "at_s": entry.at,
        "bytes": _number(facts.get("bytes")),
        "written": _number(facts.get("written")),
        "stall_ns": _nanoseconds(facts.get("blocked_s")),
        "durable_ns": _nanoseconds(facts.get("durable_s")),
        "digest": str(facts.get("digest", "")),
    }


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and abs(value) < 2**53 else None


def _nanoseconds(seconds: object) -> int | None:
    return round(seconds * 1e9) if isinstance(seconds, int | float) and abs(seconds) < 1e9 else None


def _skips(run: str | os.PathLike[str]) -> list[dict[str, Any]]:
    try:
        decisions = SkipJournal(RunDirectory(run).skips).decisions()
    except RecipeInvalid:
        return []
    return [
        {"first": int(first), "end": int(end), "reason": decision.reason, "samples": len(decision.samples)}
        for decision in decisions
        for first, end in decision.steps
    ]
