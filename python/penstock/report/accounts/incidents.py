"""Incidents: deaths and returns to earlier steps, each with everything that it cost.

The time of a rank belongs to one incident at most. A death costs what it tore and what passed until training went on: the gap after it, and
the beginning of the next life. A return costs its ``restore``. Both cost the steps that were executed again because of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.report.accounts.account_names import ACCOUNTS, CODE, UNKNOWN
from penstock.report.accounts.life_accounts import Stretches, sums_of
from penstock.report.accounts.timeline import UNMEASURED, LifeTimeline
from penstock.report.accounts.undone_steps import UndoneSteps

NOT_OBSERVED = "not observed"
#: How long each of these took is asked after a death, in the order in which they follow.
REPAIR_PARTS = (
    "hang",
    "torn",
    "drain",
    "backoff",
    "down",
    UNKNOWN,
    "queue",
    "spawn",
    "start",
    "rendezvous",
    "compile",
    "restore",
    "lost",
    "suspended",
)
_LOST = CODE["lost"]
_RETURN = "training went back to an earlier step"


@dataclass(slots=True)
class Incident:
    """What one death, restart or return cost, over all ranks."""

    kind: str
    life: int
    cause: str
    #: Nanoseconds of device time by account; one rank has one device.
    accounts: dict[str, int] = field(default_factory=dict)
    ranks: int = 0
    lost_steps: int = 0
    #: Where a rank's clock began anew, the estimate of the gap by wall clocks.
    gap_estimate: int | None = None

    @property
    def cost(self) -> int:
        """Nanoseconds of device time."""
        return sum(self.accounts.values())

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "kind": self.kind,
            "life": self.life,
            "cause": self.cause,
            "ranks": self.ranks,
            "device_ns": self.cost,
            "device_s": self.cost / 1e9,
            "accounts": {name: self.accounts[name] for name in ACCOUNTS if self.accounts.get(name)},
            "lost_steps": self.lost_steps,
            "gap_estimate_ns": self.gap_estimate,
        }


#: Kind, life, and the number of the return in that life: the same on all ranks.
IncidentKey = tuple[int, int, str]


def incidents_of(
    lives: Sequence[LifeTimeline], stretches: Sequence[Stretches], undone: UndoneSteps
) -> dict[IncidentKey, Incident]:
    """Those of one rank."""
    incidents: dict[IncidentKey, Incident] = {}
    for place in range(len(lives) - 1):
        life, following = lives[place], lives[place + 1]
        fine, later = stretches[place], stretches[place + 1]
        incident = _death(life)
        _spend(incident, fine, _solid_before(life, None), int(fine.edges[-1]))
        begins = _trains_from(following)
        _spend(incident, later, int(later.edges[0]), following.sign if begins is None else begins)
        incidents[life.number, 0, "death"] = incident
    for life, fine in zip(lives, stretches, strict=True):
        for number in range(1, len(life.resumed.times)):
            at = int(life.resumed.times[number])
            incident = Incident("return", life.number, _RETURN, ranks=1)
            _spend(incident, fine, _solid_before(life, number), at)
            incidents[life.number, number, "return"] = incident
    _charge_lost(lives, stretches, undone, incidents)
    return incidents


def merged(per_rank: Sequence[dict[IncidentKey, Incident]]) -> list[Incident]:
    """The incidents of all ranks, in order."""
    together: dict[IncidentKey, Incident] = {}
    for incidents in per_rank:
        for key, incident in incidents.items():
            if key not in together:
                together[key] = Incident(incident.kind, incident.life, incident.cause)
            total = together[key]
            total.ranks += 1
            # Where ranks say different things, the first in the alphabet stands, whatever their order.
            total.cause = _clearest(total.cause, incident.cause)
            total.lost_steps = max(total.lost_steps, incident.lost_steps)
            estimates = [one for one in (total.gap_estimate, incident.gap_estimate) if one is not None]
            total.gap_estimate = max(estimates, default=None)
            for name, spent in incident.accounts.items():
                total.accounts[name] = total.accounts.get(name, 0) + spent
    return [together[key] for key in sorted(together)]


def _clearest(one: str, other: str) -> str:
    known = sorted({one, other} - {NOT_OBSERVED})
    return known[0] if known else NOT_OBSERVED


def _death(life: LifeTimeline) -> Incident:
    if life.ended is not None:
        incident = Incident("restart", life.number, life.cause or "ended in order", ranks=1)
    else:
        observed = life.died is not None
        incident = Incident(
            "death", life.number, life.cause or ("no cause noted" if observed else NOT_OBSERVED), ranks=1
        )
    incident.gap_estimate = life.gap_estimate
    return incident


def _trains_from(life: LifeTimeline) -> int | None:
    """When training began; None if it never did."""
    begins = [int(at) for column in (life.resumed.times, life.steps.begins) for at in column[:1]]
    return min(begins, default=None)


def _solid_before(life: LifeTimeline, mark: int | None) -> int:
    """The last moment up to which a life trained undisturbed; of all of it, or before one of its marks."""
    ends = life.steps.ends[life.steps.ends != UNMEASURED]
    marks = life.resumed.times
    if mark is not None:
        ends = ends[: int(np.searchsorted(ends, marks[mark], side="right"))]
        marks = marks[:mark]
    moments = [int(moment) for column in (ends, marks) for moment in column[-1:]]
    return max(moments, default=life.sign if mark is None else life.first)


def _spend(incident: Incident, fine: Stretches, begin: int, end: int) -> None:
    """Charge what lies between two edges. The end of a life in order is no cost of what came after it."""
    is_between = (fine.edges[:-1] >= begin) & (fine.edges[1:] <= end)
    sums = sums_of(fine.codes[is_between], fine.lengths[is_between])
    for name in ACCOUNTS:
        if sums[name] and name != "finish":
            incident.accounts[name] = incident.accounts.get(name, 0) + sums[name]


def _charge_lost(
    lives: Sequence[LifeTimeline],
    stretches: Sequence[Stretches],
    undone: UndoneSteps,
    incidents: dict[IncidentKey, Incident],
) -> None:
    """Steps that do not count are charged to what made training go back before them."""
    for place, fine in enumerate(stretches):
        is_lost = fine.codes == _LOST
        if not is_lost.any():
            continue
        marks = undone.by_life[place][fine.steps[is_lost]]
        lengths, steps = fine.lengths[is_lost], fine.steps[is_lost]
        for mark in np.unique(marks).tolist():
            life = undone.mark_lives[mark]
            key: IncidentKey
            if undone.is_first[mark] and life > 0:
                key = (lives[life - 1].number, 0, "death")
            else:
                key = (lives[life].number, undone.mark_numbers[mark], "return")
            incident = incidents.setdefault(key, Incident("return", key[0], _RETURN, ranks=1))
            spent = int(lengths[marks == mark].sum())
            incident.accounts["lost"] = incident.accounts.get("lost", 0) + spent
            executions = np.unique(steps[marks == mark])
            incident.lost_steps += int(lives[place].steps.counts[executions].sum())
