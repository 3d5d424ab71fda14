"""One slow rank: it takes longer in a part of its own, and the others wait for it where ranks meet.

Ranks meet in ``exchange`` and, with collectives inside, in ``backward`` and ``judge``. A rank that is slow inside of such a part cannot be told
from the others, which leave it together with the slow one.
"""

import numpy as np

from penstock.report.diagnosis.cause import Cause, seconds
from penstock.report.diagnosis.observation import Observation, middle_of_others
from penstock.report.diagnosis.program_line import line_of

#: Parts that a rank spends alone, and how a sentence says them. Saves that one rank makes are told as saves.
_ALONE = {
    "data": "waiting for data",
    "transfer": "moving batches to the device",
    "forward": "in forward",
    "optimizer": "in the optimizer",
    "eval": "in evaluation",
    "gc": "collecting garbage",
    "user": "in its own code",
    "rest": "between the recorded parts",
}
_TOGETHER = ("backward", "exchange", "judge")
#: Others wait for at least this share of what the rank takes longer, else it is no cost.
_WAIT_MIN = 0.5


def slow_rank(observation: Observation) -> list[Cause]:
    """The rank and the part with the largest excess over the other ranks, if those wait for it."""
    if len(observation.ranks) < 2 or not len(observation.steps):
        return []
    # Without hooks the collectives of backward are a part of `user`, so ranks meet there.
    is_apart = observation.matrix("host.backward") is not None
    together = _TOGETHER if is_apart else (*_TOGETHER, "user")
    meeting = [values for part in together if (values := observation.matrix(f"host.{part}")) is not None]
    if not meeting:
        return []
    waits = np.sum(meeting, axis=0)
    counts = ~observation.is_first
    best: tuple[int, int, str] | None = None
    for part in _ALONE:
        if part in together:
            continue
        values = observation.matrix(f"host.{part}")
        if values is None:
            continue
        longer = (values - middle_of_others(values))[:, counts].sum(axis=1)
        place = int(np.argmax(longer))
        if best is None or int(longer[place]) > best[0]:
            best = (int(longer[place]), place, part)
    if best is None or best[0] <= 0 or not counts.any():
        return []
    excess, place, part = best
    wait = int((middle_of_others(waits)[place] - waits[place])[counts].sum())
    if wait < _WAIT_MIN * excess:
        return []
    rank = observation.ranks[place].rank
    spent = seconds(excess // int(counts.sum()))
    line = line_of(observation, observation.steps, rank, part=part, is_spread=True)
    place_text = line.place if part in ("user", "rest") else ""
    evidence = f"the others wait {seconds(max(wait, 0))} for it" + (
        f"; {line.evidence}" if place_text else ""
    )
    facts: dict[str, object] = {"rank": rank, "part": part, "excess_ns": excess, "others_wait_ns": wait}
    sentence = f"rank {rank} takes {spent} longer a step than the others {_ALONE[part]}"
    advice = f"compare the machine, the files and the code of rank {rank} with those of another rank"
    return [Cause("slow_rank", excess, sentence, place_text, evidence, advice, facts)]
