"""The report of a run: diagnosis, ledger, breakdown, speed, stalls and memory, computed once for every screen (O4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.observe.steps import StackSample
from penstock.observe.steps.compile_file import CompileSpan
from penstock.observe.steps.flop_record import FlopNote
from penstock.report.accounts.account_names import STEP_PARTS, UNKNOWN
from penstock.report.accounts.host_alignment import HostAlignment
from penstock.report.accounts.ledger import Ledger, ledger_from
from penstock.report.accounts.timeline import UNMEASURED, RankTimeline, Times
from penstock.report.diagnosis.cause import seconds
from penstock.report.diagnosis.compile_time import compiles_inside, less_compiling
from penstock.report.diagnosis.diagnosis import Diagnosis, diagnosis_of
from penstock.report.diagnosis.observation import Observation, RankSteps, observation_of
from penstock.report.diagnosis.program_line import line_of
from penstock.report.diagnosis.step_view import steps_of
from penstock.report.run_mfu import run_mfu

FORM = 1
#: A step that takes so many times the usual is listed as a stall; of those the longest.
_STALL_TIMES = 2
_STALLS_MAX = 20
_MEMORY = ("memory_peak", "memory_reserved", "rss")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a report is made from."""

    name: str
    timelines: tuple[RankTimeline, ...]
    stacks: tuple[StackSample, ...] = ()
    lost_rows: int = 0
    #: What could not be read or is missing, in words.
    faults: tuple[str, ...] = ()
    #: Of ranks and lives whose FLOPs were counted.
    flops: tuple[FlopNote, ...] = ()
    #: How clocks of hosts stand to each other; empty where there is one.
    alignments: tuple[HostAlignment, ...] = ()
    #: What was compiled while steps went on.
    compiles: tuple[CompileSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """The meaning of it."""

    name: str
    diagnosis: Diagnosis
    ledger: Ledger
    speed: dict[str, Any]
    breakdown: dict[str, Any]
    stalls: list[dict[str, Any]]
    memory: dict[str, Any]
    #: Model FLOPs utilisation; a reason where it is not known.
    mfu: dict[str, Any]
    faults: tuple[str, ...]
    scope: dict[str, Any] = field(default_factory=dict)
    clocks: tuple[HostAlignment, ...] = ()
    #: The steps of every rank that it is of, for curves; no part of its JSON.
    steps: tuple[RankSteps, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "form": FORM,
            "run": self.name,
            "scope": self.scope,
            "diagnosis": self.diagnosis.to_json(),
            "speed": self.speed,
            "mfu": self.mfu,
            "breakdown": self.breakdown,
            "stalls": self.stalls,
            "memory": self.memory,
            "clocks": [alignment.to_json() for alignment in self.clocks],
            "faults": list(self.faults),
            "ledger": self.ledger.to_json(),
        }


def report_of(evidence: Evidence, steps: range | None = None, rank: int | None = None) -> RunReport:
    """The report, or that of some steps or of one rank. Pure."""
    timelines = sorted(
        (one for one in evidence.timelines if rank in (None, one.rank)), key=lambda one: one.rank
    )
    ledger = ledger_from(timelines)
    views = [steps_of(one, steps) for one in timelines]
    compiles = compiles_inside(evidence.timelines, evidence.compiles)
    known = [less_compiling(view, compiles) for view in views if view is not None]
    faults = list(evidence.faults)
    if len(compiles) < len(evidence.compiles):
        outside = len(evidence.compiles) - len(compiles)
        faults.append(
            f"{outside} compilations are noted outside of the life that they are of; no account has them"
        )
    silent = [one.rank for one, view in zip(timelines, views, strict=True) if view is None]
    if silent and known:
        faults.append(f"rank {', '.join(map(str, silent))} has no rows of steps")
    thinned = sum(_thinned(timeline) for timeline in timelines)
    if thinned:
        faults.append(f"{thinned} older steps are kept as sums: the ledger has them, figures by step do not")
    is_part = steps is not None or (thinned > 0 and bool(known))
    wall = max((int(view.times.sum()) for view in known), default=0) if is_part else ledger.longest
    observation = observation_of(
        known, wall, None if is_part else ledger, evidence.stacks, evidence.lost_rows, faults
    )
    observation = replace(observation, compiles=compiles)
    diagnosis = diagnosis_of(observation)
    if diagnosis.start:
        faults.append(
            f"costs are shares of the {seconds(diagnosis.wall)} after the start, which took {seconds(diagnosis.start)}"
        )
    return RunReport(
        name=evidence.name,
        diagnosis=diagnosis,
        ledger=ledger,
        speed=speed_of(observation),
        breakdown=breakdown_of(observation),
        stalls=stalls_of(observation),
        memory=_memory(observation),
        mfu=run_mfu(observation, evidence.flops),
        faults=tuple(faults),
        scope={
            "steps": None if steps is None else [steps.start, steps.stop],
            "rank": rank,
            "ranks": [view.rank for view in known],
        },
        clocks=evidence.alignments,
        steps=tuple(known),
    )


def _thinned(timeline: RankTimeline) -> int:
    """How many steps of a rank have no row of their own any more."""
    counts = [life.steps.counts for life in timeline.lives]
    return sum(int(count[count > 1].sum()) for count in counts)


def quantiles(times: Sequence[int] | Times) -> dict[str, int | str]:
    """Median and 99th percentile as values that occurred: whole nanoseconds on every screen."""
    if not len(times):
        return {"p50_ns": UNKNOWN, "p99_ns": UNKNOWN}
    ordered = np.sort(np.asarray(times))
    last = len(ordered) - 1
    return {"p50_ns": int(ordered[last // 2]), "p99_ns": int(ordered[-(-last * 99 // 100)])}


def speed_of(observation: Observation) -> dict[str, Any]:
    """Step times and tokens. A step is as long as on its slowest rank."""
    times = observation.times.max(axis=0) if observation.times.size else np.empty(0, np.int64)
    tokens = observation.matrix("tokens")
    return speed_from(times, None if tokens is None or (tokens < 0).any() else int(tokens.sum()))


def speed_from(times: Times, real: int | None) -> dict[str, Any]:
    """The same from the times of steps and all tokens of them; None where tokens were not measured."""
    total = int(times.sum())
    return {
        "steps": len(times),
        **quantiles(times),
        "steps_per_s": len(times) / (total / 1e9) if total > 0 else UNKNOWN,
        "tokens": UNKNOWN if real is None else real,
        "tokens_per_s": UNKNOWN if real is None or total <= 0 else real / (total / 1e9),
    }


def breakdown_of(observation: Observation) -> dict[str, Any]:
    """Nanoseconds a step by part, mean over ranks and steps; host and device apart, because they overlap."""
    sides: dict[str, Any] = {}
    for side in ("host", "device"):
        parts: dict[str, Any] = {}
        for part in (*STEP_PARTS, *(("idle",) if side == "device" else ())):
            values = observation.matrix(f"{side}.{part}")
            parts[part] = UNKNOWN if values is None or not values.size else int(values.sum()) // values.size
        sides[side] = parts if any(value != UNKNOWN for value in parts.values()) else UNKNOWN
    return sides


def stalls_of(observation: Observation) -> list[dict[str, Any]]:
    """The longest steps, with the part that is longer than usual and the line that stacks saw."""
    if not observation.times.size:
        return []
    usual = observation.usual
    slowest = observation.times.max(axis=0)
    places = np.flatnonzero(slowest > _STALL_TIMES * max(usual, 1))
    places = places[np.lexsort((observation.steps[places], -slowest[places]))][:_STALLS_MAX]
    matrices = {part: observation.matrix(f"host.{part}") for part in STEP_PARTS}
    stalls = []
    for place in places.tolist():
        row = int(np.argmax(observation.times[:, place]))
        excess = {
            part: int(values[row, place] - np.median(values[row]))
            for part, values in matrices.items()
            if values is not None
        }
        part = max(excess, key=lambda name: excess[name]) if excess else UNKNOWN
        rank = observation.ranks[row].rank
        line = line_of(observation, observation.steps[place : place + 1], rank)
        stalls.append(
            {
                "step": int(observation.steps[place]),
                "rank": rank,
                "took_ns": int(slowest[place]),
                "usual_ns": usual,
                "part": part,
                "line": line.place.removeprefix("at "),
            }
        )
    return stalls


def _memory(observation: Observation) -> dict[str, Any]:
    """The largest value of each column on any rank, and how much the process grew."""
    memory: dict[str, Any] = {}
    for name in _MEMORY:
        columns = [
            measured
            for rank in observation.ranks
            if name in rank.columns and len(measured := _measured(rank.columns[name]))
        ]
        memory[name] = max((int(column.max()) for column in columns), default=UNKNOWN)
    retries = observation.increments("allocator_retries")
    memory["allocator_retries"] = UNKNOWN if retries is None else int(retries.sum())
    return memory


def _measured(column: Times) -> Times:
    return np.asarray(column[column != UNMEASURED])
