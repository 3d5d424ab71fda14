"""The ledger of a run: accounts of every rank and life, goodput, and what every incident cost. Pure: the same timelines, the same bytes (O4)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.report.accounts.account_names import ACCOUNTS, PARTS, UNKNOWN
from penstock.report.accounts.device_split import DeviceSplit, summed
from penstock.report.accounts.incidents import (
    NOT_OBSERVED,
    REPAIR_PARTS,
    Incident,
    IncidentKey,
    incidents_of,
    merged,
)
from penstock.report.accounts.life_accounts import LifeAccounts, Stretches, accounts_of
from penstock.report.accounts.timeline import RankTimeline
from penstock.report.accounts.timeline_form import timelines_of
from penstock.report.accounts.undone_steps import undone_steps

FORM = 1
#: How each number of ``goodput`` is computed, from sums over ranks.
FORMULAS = {
    "runtime": "train / wall; the same as ETTR",
    "runtime_high": "(train + unmeasured) / wall",
    "scheduling": "(wall - queue) / wall",
    "program": "(forward + backward + optimizer) / (train - train.unmeasured)",
    "device_s": "sum over ranks of an incident's accounts, one device for each rank",
    "device": "parts + idle + rest = time between the marks of steps that count; beside the host's accounts, never added",
}


@dataclass(frozen=True, slots=True)
class RankLedger:
    """One rank, over all lives."""

    rank: int
    lives: list[LifeAccounts]
    #: Lives that began before the life before them was over, and by how much.
    overlaps: list[dict[str, int]]
    #: Lives after which another clock counts, and how long wall clocks say that took.
    clock_changes: list[dict[str, int | None]]

    @property
    def wall(self) -> int:
        """Sum of the lives, each up to the beginning of the next one."""
        return sum(life.wall for life in self.lives)

    @property
    def accounts(self) -> dict[str, int]:
        """Nanoseconds by account."""
        return {name: sum(life.accounts[name] for life in self.lives) for name in ACCOUNTS}

    @property
    def parts(self) -> dict[str, int]:
        """Nanoseconds of ``train`` by part."""
        return {name: sum(life.parts[name] for life in self.lives) for name in PARTS}

    @property
    def device(self) -> DeviceSplit:
        """What its device did in the steps that count."""
        return summed(life.device for life in self.lives)

    def steps(self, kind: str) -> int:
        """How many were ``kept``, ``lost``, ``torn`` or ``broken``."""
        return sum(getattr(life, f"{kind}_steps") for life in self.lives)

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "rank": self.rank,
            "wall_ns": self.wall,
            "accounts": self.accounts,
            "train": self.parts,
            "steps": {kind: self.steps(kind) for kind in ("kept", "lost", "torn", "broken")},
            "device": self.device.to_json(),
            "overlaps": self.overlaps,
            "clock_changes": self.clock_changes,
            "lives": [life.to_json() for life in self.lives],
        }


@dataclass(frozen=True, slots=True)
class Ledger:
    """All ranks."""

    ranks: list[RankLedger]
    incidents: list[Incident]

    @property
    def wall(self) -> int:
        """Device time: the sum over ranks."""
        return sum(rank.wall for rank in self.ranks)

    @property
    def accounts(self) -> dict[str, int]:
        """Nanoseconds by account, over all ranks."""
        of_ranks = [rank.accounts for rank in self.ranks]
        return {name: sum(accounts[name] for accounts in of_ranks) for name in ACCOUNTS}

    @property
    def parts(self) -> dict[str, int]:
        """Nanoseconds of ``train`` by part, over all ranks."""
        of_ranks = [rank.parts for rank in self.ranks]
        return {name: sum(parts[name] for parts in of_ranks) for name in PARTS}

    @property
    def device(self) -> DeviceSplit:
        """What all devices did in the steps that count."""
        return summed(rank.device for rank in self.ranks)

    @property
    def longest(self) -> int:
        """The wall time of the rank that was there longest."""
        return max((rank.wall for rank in self.ranks), default=0)

    def goodput(self) -> dict[str, float | str]:
        """Shares of the time that did what it should; ``unmeasured`` where that is not known."""
        accounts, parts = self.accounts, self.parts
        known = accounts["train"] - parts[UNKNOWN]
        work = parts["forward"] + parts["backward"] + parts["optimizer"]
        return {
            "runtime": _share(accounts["train"], self.wall),
            "runtime_high": _share(accounts["train"] + accounts[UNKNOWN], self.wall),
            "scheduling": _share(self.wall - accounts["queue"], self.wall),
            "program": _share(work, known) if work else UNKNOWN,
        }

    def repair(self) -> dict[str, object]:
        """The mean time to repair by part, in nanoseconds of one rank. A death that nobody saw cannot be divided."""
        deaths = [incident for incident in self.incidents if incident.kind == "death"]
        observed = [incident for incident in deaths if incident.cause != NOT_OBSERVED]
        devices = sum(incident.ranks for incident in observed)
        means: dict[str, int] | str = NOT_OBSERVED
        if observed:
            sums = {
                name: sum(incident.accounts.get(name, 0) for incident in observed) for name in REPAIR_PARTS
            }
            means = {name: spent // devices for name, spent in sums.items() if spent}
        return {"deaths": len(deaths), "observed": len(observed), "mean_ns": means}

    def to_json(self) -> dict[str, Any]:
        """As plain values, in an order of their own: the same ledger gives the same bytes."""
        return {
            "form": FORM,
            "wall_ns": self.wall,
            "accounts": self.accounts,
            "train": self.parts,
            "device": self.device.to_json(),
            "goodput": self.goodput(),
            "formulas": FORMULAS,
            "incidents": [incident.to_json() for incident in self.incidents],
            "repair": self.repair(),
            "ranks": [rank.to_json() for rank in self.ranks],
        }


def ledger_of(timeline: Any) -> Ledger:
    """The ledger of a timeline in the form of ``docs/spec/ledger.md``; a list has one object for each rank. Pure."""
    return ledger_from(timelines_of(timeline))


def ledger_from(timelines: Iterable[RankTimeline]) -> Ledger:
    """The same of timelines that are checked. Takes them one by one, so that only one has to be in memory."""
    ranks, incidents = [], []
    for timeline in timelines:
        rank, of_rank = _rank_ledger(timeline)
        ranks.append(rank)
        incidents.append(of_rank)
    ranks.sort(key=lambda rank: rank.rank)
    return Ledger(ranks, merged(incidents))


def _rank_ledger(timeline: RankTimeline) -> tuple[RankLedger, dict[IncidentKey, Incident]]:
    lives = timeline.lives
    undone = undone_steps(lives)
    open_part = timeline.open_part_of_spans
    accounts: list[LifeAccounts] = []
    stretches: list[Stretches] = []
    overlaps: list[dict[str, int]] = []
    changes: list[dict[str, int | None]] = []
    for place, life in enumerate(lives):
        until, later = None, lives[place + 1] if place + 1 < len(lives) else None
        if later is not None and later.clock != life.clock:
            changes.append({"life": life.number, "gap_estimate_ns": life.gap_estimate})
        elif later is not None and later.first < life.last:
            overlaps.append({"life": life.number, "overlap_ns": life.last - later.first})
        elif later is not None:
            until = later.first
        of_life, fine = accounts_of(life, undone.by_life[place], until, open_part, undone.lost_counts[place])
        accounts.append(of_life)
        stretches.append(fine)
    incidents = incidents_of(lives, stretches, undone)
    return RankLedger(timeline.rank, accounts, overlaps, changes), incidents


def _share(part: int, whole: int) -> float | str:
    return part / whole if whole > 0 else UNKNOWN
