"""Causes that are parts of a step: data, transfer, own code, checkpoints, evaluation, garbage, and steps that are long elsewhere.

Where the device's idle time is known, a part costs no more than that: what the host does while the device computes is free.
"""

from dataclasses import replace

import numpy as np

from penstock.report.accounts.timeline import Times
from penstock.report.diagnosis.cause import Cause, ordinal, seconds
from penstock.report.diagnosis.observation import Observation
from penstock.report.diagnosis.program_line import line_of
from penstock.report.diagnosis.recurrence import Recurrence, recurrence_of

#: Of a part that is all avoidable: its kind, how a sentence says it, what to do.
_PARTS = {
    "transfer": (
        "transfer",
        "moving batches to the device",
        "pin the batch's memory and copy with non_blocking=True, one batch ahead",
    ),
    "eval": ("evaluation", "in evaluation", "evaluate less often, on fewer batches, or beside training"),
    "gc": (
        "gc",
        "collecting garbage",
        "call gc.freeze() after the model is made, and gc.collect() every few hundred steps only",
    ),
}
_LOADER_ADVICE = "give the loader more workers, or do its work once and keep the result"
#: A save may cost this share of the time.
_SAVE_SHARE = 100
#: A stage limits the feed if it was busy for this share of the time that was waited for batches.
_LIMITING = 0.5
#: Parts in which only unusually long steps are a cost.
_STALLS = ("forward", "backward", "optimizer", "exchange", "judge", "rest")


def costing(observation: Observation, column: Times) -> Times:
    """What of a part holds up the device. The first step of a life fills queues and caches: what it takes longer is part of a start."""
    idle = observation.middle("device.idle")
    cost = column if idle is None else np.minimum(column, idle)
    usual = int(np.median(cost)) if len(cost) else 0
    return np.where(observation.is_first, np.minimum(cost, usual), cost)


def _recurrence(observation: Observation, part: str) -> Recurrence | None:
    column = observation.middle(f"host.{part}")
    if column is None or not len(column):
        return None
    return recurrence_of(costing(observation, column), observation.steps, observation.usual)


def plain_parts(observation: Observation) -> list[Cause]:
    """Transfer, evaluation, garbage."""
    causes = []
    for part, (kind, what, advice) in _PARTS.items():
        recurrence = _recurrence(observation, part)
        if recurrence is not None and recurrence.total > 0:
            causes.append(
                Cause(
                    kind,
                    recurrence.total,
                    recurrence.clause(what),
                    next_step=advice,
                    facts=_facts(recurrence),
                )
            )
    return causes


def data(observation: Observation) -> list[Cause]:
    """Waiting for batches, with the stage of the feed that is busiest."""
    recurrence = _recurrence(observation, "data")
    if recurrence is None or recurrence.total <= 0:
        return []
    busy = {
        stage: spent for stage in observation.stages() if (spent := observation.measured(f"feed.{stage}"))
    }
    place, evidence, advice = _stage(observation, busy, recurrence.total)
    facts = {**_facts(recurrence), "stages_ns": busy}
    return [
        Cause("data", recurrence.total, recurrence.clause("waiting for data"), place, evidence, advice, facts)
    ]


def _stage(observation: Observation, busy: dict[str, int], waited: int) -> tuple[str, str, str]:
    """The stage of the feed that limits it: where, what shows it, what to do."""
    advice = "measure the stream alone with `penstock data bench`"
    known = sorted(observation.stages())
    if not known:
        return "", "its stages were not timed", _LOADER_ADVICE
    stage = max(known, key=lambda name: busy.get(name, 0))
    if busy.get(stage, 0) < _LIMITING * waited:
        evidence = f"{', '.join(known)} were busy for {seconds(sum(busy.values()))} only"
        return (
            f"outside of the feed stages {', '.join(known)}: decoding, another process that shares batches, or a service",
            evidence,
            advice,
        )
    steps = int(observation.times.sum())
    evidence = f"busy for {seconds(busy[stage])} of {seconds(steps)}"
    place = f"limited by feed stage `{stage}`" + (", maps of your own" if stage == "map" else "")
    return place, evidence, f"give `{stage}` more threads, or do its work once and keep the result"


def own_code(observation: Observation) -> list[Cause]:
    """Code of the program, with the line that stacks saw most.

    Without hooks the model is a part of ``user`` as well; then only what some steps have more than the others is a cost.
    """
    recurrence = _recurrence(observation, "user")
    if recurrence is None or recurrence.total <= 0:
        return []
    is_apart = observation.middle("host.forward") is not None
    if not is_apart:
        if not recurrence.count:
            return []
        recurrence = replace(recurrence, is_concentrated=True)
    if recurrence.period is not None and 2 * recurrence.excess >= recurrence.total:
        # What comes at a period and is most of it has a place of its own; what all steps have beside it is another matter.
        recurrence = replace(recurrence, is_concentrated=True)
    cost = recurrence.excess if recurrence.is_concentrated else recurrence.total
    steps = observation.steps[recurrence.is_long] if recurrence.is_concentrated else observation.steps
    line = line_of(observation, steps, part="user", is_spread=not recurrence.is_concentrated)
    facts = _facts(recurrence)
    if line.is_loading:
        what = "waiting for data"
        return [
            Cause("data", cost, recurrence.clause(what), line.place, line.evidence, _LOADER_ADVICE, facts)
        ]
    what = "in your own code"
    advice = "look at that line" if line.place else "find it with `penstock stacks JOB` while it runs"
    return [Cause("own_code", cost, recurrence.clause(what), line.place, line.evidence, advice, facts)]


def checkpoints(observation: Observation) -> list[Cause]:
    """Saves that hold up training, and how rarely to save so that it costs 1 %."""
    values = observation.matrix("host.checkpoint")
    if values is None or not values.size:
        return []
    # A save that only some ranks make holds up all of them.
    column = costing(observation, values.max(axis=0))
    recurrence = recurrence_of(column, observation.steps, observation.usual)
    total = int(column.sum())
    if total <= 0:
        return []
    # Steps without a save have next to nothing here.
    is_save = column * 10 > column.max()
    saves = int(is_save.sum())
    stall = int(column[is_save].sum()) // saves
    usual = max(int(np.median(observation.times[:, ~is_save])) if (~is_save).any() else observation.usual, 1)
    interval = -(-stall * (_SAVE_SHARE - 1) // usual)
    apart = np.diff(observation.steps[is_save])
    every = int(np.median(apart)) if len(apart) else None
    sentence = (
        f"{saves} checkpoints hold up training for {seconds(stall)} each"
        if every is None
        else f"a checkpoint every {every} steps holds up training for {seconds(stall)}"
    )
    facts = {
        **_facts(recurrence),
        "saves": saves,
        "stall_ns": stall,
        "every_steps": every,
        "one_percent_steps": interval,
    }
    evidence = f"{saves} saves; every {interval} steps would cost 1 %"
    return [
        Cause("checkpoints", total, sentence, "", evidence, f"save every {interval} steps or more", facts)
    ]


def stalls(observation: Observation) -> list[Cause]:
    """Steps that take much longer than usual in parts that every step needs."""
    causes = []
    for part in _STALLS:
        recurrence = _recurrence(observation, part)
        if recurrence is None or recurrence.count == 0:
            continue
        steps = observation.steps[recurrence.is_long]
        line = line_of(observation, steps, part=part)
        place, evidence = line.place, line.evidence
        if part in ("backward", "exchange") and len(observation.ranks) > 1:
            # All ranks leave a collective together, so all look as slow as the one that came last.
            place = f"in {part}, rank not known"
        spent = seconds(recurrence.excess // recurrence.count)
        often = (
            f"every {ordinal(recurrence.period)}step takes"
            if recurrence.period is not None
            else f"{recurrence.count} of {len(observation.steps)} steps take"
        )
        sentence = (
            f"{often} {spent} longer in {part}" if not place.startswith("in ") else f"{often} {spent} longer"
        )
        advice = "compare these steps with `penstock view`, and what else ran on the machine then"
        causes.append(
            Cause(
                "stall",
                recurrence.excess,
                sentence,
                place,
                evidence,
                advice,
                {**_facts(recurrence), "part": part},
            )
        )
    return causes


def _facts(recurrence: Recurrence) -> dict[str, object]:
    return {
        "period": recurrence.period,
        "long_steps": recurrence.count,
        "excess_ns": recurrence.excess,
        "total_ns": recurrence.total,
    }
