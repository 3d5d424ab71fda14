"""Agreement on resume: all ranks of an incarnation go on from the same checkpoint, and it is one that every rank could load.

For n = 0, 1, …: the n-th choice is one object, put if absent by whichever rank comes first. Every rank loads it and reports.
Rank 0 reads the reports and puts the verdict, which the others wait for: one small object instead of a report per rank. Damage
that any rank finds goes into the log as a quarantine before it is reported, so the next choice is another one.

Choice, reports and verdict never change, so ranks cannot come to different conclusions, whatever else happens to the log
meanwhile. They are deleted only when a higher fence stands in the log, and no rank returns without having seen after the verdict
that none does.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.errors import (
    CheckpointDamaged,
    CheckpointRetired,
    CheckpointUnknown,
    ObjectMissing,
    RanksMissing,
    ResumeFailed,
)
from penstock.state.log.commit import quarantine
from penstock.state.log.history import Committed, History
from penstock.state.log.incarnation import Member, check_newest
from penstock.state.log.log import Log
from penstock.state.ranks.clock import Clock, Wait
from penstock.store import Store

#: How many checkpoints in a row may turn out damaged.
CHOICES_MAX = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all ranks go on from."""

    #: None when there is nothing to resume from.
    checkpoint: Committed | None
    #: Which choice it was. A later agreement of the same incarnation begins with the next one.
    choice: int
    #: Length of the log as it was known then; commits that others made since are unknown to this state.
    seen: int


class _Choice(msgspec.Struct, frozen=True):
    #: Number of the commit; None when there is none to choose.
    commit: int | None
    #: Who put it.
    rank: int


class _Report(msgspec.Struct, frozen=True):
    rank: int
    good: bool
    #: What is wrong, if something is.
    reason: str = ""
    #: Whether it is no damage but trouble of that rank, so that trying an older checkpoint would be wrong.
    trouble: bool = False


def agree(
    log: Log,
    member: Member,
    load: Callable[[Committed], None],
    *,
    deadline_s: float = 1800.0,
    choose: Callable[[History], Committed | None] = History.newest_good,
    first: int = 0,
    clock: Clock | None = None,
) -> Agreed:
    """Load a checkpoint that every rank can load, and return when every rank has.

    ``member`` knows its incarnation, as ``fence`` returns it. ``load`` raises ``CheckpointDamaged`` for damage, and only for that;
    whatever else it raises ends the agreement, here and, as ``ResumeFailed``, on the other ranks. ``choose`` has to leave quarantined
    checkpoints out. The deadline holds for each wait for other ranks, from when this rank has loaded.
    """
    assert member.incarnation is not None, "fence first: it says which incarnation this is"
    clock = clock or Clock()
    history = log.read()
    check_newest(history, member.incarnation, log.store.url)
    for choice in range(first, first + CHOICES_MAX):
        table = _Table(log, member, choice, clock)
        chosen = table.choose(choose)
        try:
            report = table.report(table.try_to(load, chosen))
        except Exception as problem:
            table.report(_Report(member.rank, good=False, reason=str(problem), trouble=True))
            raise
        if report.good and table.all_good(deadline_s):
            history = log.read()
            check_newest(history, member.incarnation, log.store.url)
            checkpoint = None if chosen is None else history.living.get(chosen)
            if chosen is not None and checkpoint is None:
                # Retired since every rank loaded it: it is loaded, and that is what counts.
                checkpoint = Committed(chosen, history.commit(chosen))
            return Agreed(checkpoint, choice, history.length)
    raise CheckpointUnknown(place=log.store.url, wanted=f"that loads, after {CHOICES_MAX} choices", known=[])


def await_choice(log: Log, member: Member, choice: int, deadline_s: float) -> None:
    """Wait until a checkpoint was chosen, by a rank that has to see to something first."""
    wait = Wait(deadline_s, Clock())
    while _get(log.store, f"resume/{member.incarnation}/{choice}.json", _Choice) is None:
        if not wait.again():
            raise RanksMissing(
                what="the choice of a checkpoint", missing=[0], ranks=member.ranks, waited_s=wait.waited_s
            )


class _Table:
    """What the ranks put down about one choice."""

    def __init__(self, log: Log, member: Member, choice: int, clock: Clock) -> None:
        self._log, self._member, self._clock = log, member, clock
        self._name = f"resume/{member.incarnation}/{choice}"
        self._report_name = re.compile(re.escape(self._name) + r"/(\d+)\.json")

    def choose(self, choose: Callable[[History], Committed | None]) -> int | None:
        """The number of the commit that was chosen, by this rank or by one that was faster."""
        name = f"{self._name}.json"
        choice = _get(self._log.store, name, _Choice)
        if choice is None:
            proposed = choose(self._log.read())
            mine = _Choice(None if proposed is None else proposed.number, self._member.rank)
            choice = _put(self._log.store, name, mine)
        return choice.commit

    def try_to(self, load: Callable[[Committed], None], chosen: int | None) -> _Report:
        """Load what was chosen. Damage is put into the log before anybody is told of it."""
        rank = self._member.rank
        if chosen is None:
            return _Report(rank, good=True)
        checkpoint = self._log.read().living.get(chosen)
        if checkpoint is None:
            return _Report(rank, good=False, reason="it was retired")
        try:
            load(checkpoint)
        except CheckpointRetired as reason:
            return _Report(rank, good=False, reason=str(reason))
        except CheckpointDamaged as damage:
            quarantine(self._log, chosen, str(damage), rank=rank, at=self._clock.now())
            return _Report(rank, good=False, reason=str(damage))
        return _Report(rank, good=True)

    def report(self, report: _Report) -> _Report:
        """Tell the others."""
        standing = _put(self._log.store, f"{self._name}/{report.rank}.json", report)
        if standing.good and not report.good:
            # Somebody reported for this rank before, and others may have returned on its word.
            raise CheckpointDamaged(file=f"{self._name}/{report.rank}.json", reason=report.reason)
        if not standing.good and report.rank == 0:
            self._settle(standing)
        return standing

    def all_good(self, deadline_s: float) -> bool:
        """Wait until every rank has reported good, or one has not."""
        wait = Wait(deadline_s, self._clock)
        reports: dict[int, _Report] = {}
        while (verdict := self._verdict(reports)) is None:
            assert self._member.incarnation is not None
            check_newest(self._log.read(), self._member.incarnation, self._log.store.url)
            if not wait.again():
                raise RanksMissing(
                    what=f"loading a checkpoint ({self._name})",
                    # All are there, but not the verdict: rank 0 ended after its report.
                    missing=self._missing(reports) or [0],
                    ranks=self._member.ranks,
                    waited_s=wait.waited_s,
                )
        if verdict.trouble:
            raise ResumeFailed(rank=verdict.rank, reason=verdict.reason)
        return verdict.good

    def _verdict(self, reports: dict[int, _Report]) -> _Report | None:
        """The verdict, if it is known by now; rank 0 makes it from the reports, which it collects in ``reports``."""
        standing = _get(self._log.store, f"{self._name}/verdict.json", _Report)
        if standing is not None or self._member.rank != 0:
            return standing
        missing = self._missing(reports)
        bad = next((report for report in reports.values() if not report.good), None)
        if bad is not None:
            return self._settle(bad)
        return None if missing else self._settle(_Report(0, good=True))

    def _missing(self, reports: dict[int, _Report]) -> list[int]:
        """Ranks that have not reported; reports that are new are added."""
        for entry in self._log.store.entries(self._name):
            name = self._report_name.fullmatch(entry.name)
            if name is not None and int(name[1]) not in reports:
                report = _get(self._log.store, entry.name, _Report)
                if report is not None:
                    reports[int(name[1])] = report
        return [rank for rank in range(self._member.ranks) if rank not in reports]

    def _settle(self, verdict: _Report) -> _Report:
        return _put(self._log.store, f"{self._name}/verdict.json", verdict)


def _put(store: Store, name: str, value: T) -> T:
    """Put a document if absent, and return the one that stands there."""
    if store.put_if_absent(name, msgspec.json.encode(value)):
        return value
    standing = _get(store, name, type(value))
    # Gone again: a pruner deletes what a fenced incarnation left. The next look at the log says so.
    return value if standing is None else standing


def _get(store: Store, name: str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(store.get(name), type=kind)
    except ObjectMissing:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise CheckpointDamaged(file=name, reason=str(reason)) from reason
