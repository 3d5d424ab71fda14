"""The account of a run: where its wall time went, over all of its lives. Every second of a rank is in exactly one account (O1).

Computed from records alone, which survive ``kill -9``: when a process was born, when it began its life, when training went on, when each step
ended. From the first birth to the last sign of life these moments follow one another, so what lies between them adds up to the wall time
by construction, whatever was killed. What a killed life did after its last step, and until the next one was born, is ``down``.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.run.journal import step_records as records
from penstock.run.journal.step_records import LifeRecord, Moment

#: What time is spent on, in the order of a life.
ACCOUNTS = {
    "start": "from the birth of the process until it joined the run: imports, the group of ranks, the model",
    "restore": "from there until training went on, and going back to an earlier step",
    "train": "steps that count",
    "phase": "evaluations and whatever else `run.phase` was around",
    "lost": "steps that were executed again later, because they were not saved or were undone",
    "finish": "the last checkpoint, and the end",
    "down": "from the last step of a life until the next one was born",
}


@dataclass(slots=True)
class LifeAccount:
    """One life of one rank."""

    incarnation: int
    rank: int
    born: float
    #: Its last sign.
    last: float
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ACCOUNTS, 0.0))
    #: Steps that count, and that were lost.
    kept: int = 0
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        names = ("incarnation", "rank", "born", "last", "seconds", "kept", "lost")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Account:
    """Of one rank, over all lives."""

    rank: int
    lives: list[LifeAccount]

    @property
    def wall_s(self) -> float:
        """From the first birth to the last sign of life."""
        return self.lives[-1].last - self.lives[0].born if self.lives else 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """By account."""
        return {name: sum(life.seconds[name] for life in self.lives) for name in ACCOUNTS}

    @property
    def kept(self) -> int:
        """Steps that count."""
        return sum(life.kept for life in self.lives)

    @property
    def lost(self) -> int:
        """Executions of steps that do not."""
        return sum(life.lost for life in self.lives)

    @property
    def useful(self) -> float:
        """The share of steps that count."""
        return self.seconds["train"] / self.wall_s if self.wall_s > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        names = ("rank", "wall_s", "seconds", "kept", "lost", "useful")
        lives = [life.to_json() for life in self.lives]
        return {**{name: getattr(self, name) for name in names}, "lives": lives}


def account(directory: str | os.PathLike[str], rank: int = 0) -> Account:
    """Where the time of a rank went."""
    return account_of([life for life in records.lives(directory) if life.rank == rank], rank)


def account_of(lives: Iterable[LifeRecord], rank: int = 0) -> Account:
    """The same from records of one rank, in the order of lives. Pure."""
    known = list(lives)
    made: list[LifeAccount] = []
    for number, life in enumerate(known):
        later = [moment for other in known[number + 1 :] for moment in other.moments]
        # Lives from before births were recorded begin where their first mark is.
        born = life.born or life.began or life.moments[0].at
        if made:
            made[-1].seconds["down"] += born - made[-1].last
        made.append(_of_life(life, born, later))
    return Account(rank, made)


def _of_life(life: LifeRecord, born: float, later: list[Moment]) -> LifeAccount:
    """What lies between the moments of a life."""
    found = LifeAccount(life.incarnation, life.rank, born, born)

    aside, since = 0.0, 0.0

    def spend(name: str, until: float) -> None:
        nonlocal aside
        found.seconds[name] += until - found.last - aside
        found.seconds["phase"] += aside
        found.last, aside = until, 0.0

    spend("start", life.began or born)
    moments = life.moments
    for number, moment in enumerate(moments):
        if moment.kind == "phase":
            since = moment.at
        elif moment.kind == "training":
            aside, since = aside + (moment.at - since if since else 0.0), 0.0
        elif moment.kind == "mark":
            spend("restore", moment.at)
        elif moment.kind == "end":
            spend("finish", moment.at)
        elif _undone(moment.step, [*moments[number + 1 :], *later]):
            spend("lost", moment.at)
            found.lost += 1
        else:
            spend("train", moment.at)
            found.kept += 1
    return found


def _undone(step: int, following: list[Moment]) -> bool:
    """Whether training later went on from this step or an earlier one."""
    return any(moment.kind == "mark" and moment.step <= step for moment in following)
