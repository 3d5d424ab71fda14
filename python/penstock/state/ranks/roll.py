"""The roll of an incarnation: which processes it consists of, where only a name says so that another start may have had before.

Every rank puts a text that it has drawn under its number, rank 0 copies all of them into the roll, and whoever is on it has joined. A
rank that finds its number taken, or a roll without itself, has come upon the incarnation of other processes, and waits for the one that
its own rank 0 begins. So an incarnation is joined by those it was begun for, and by nobody else.
"""

from dataclasses import dataclass, replace

import msgspec

from penstock.errors import CheckpointDamaged, IncarnationTaken, ObjectMissing, RanksMissing
from penstock.state.log.incarnation import Member, begin, check_newest
from penstock.state.log.log import Log
from penstock.state.log.records import Fence
from penstock.state.ranks.clock import Clock, Wait
from penstock.store import Store


def call(
    log: Log, member: Member, process: str, *, deadline_s: float = 600.0, clock: Clock | None = None
) -> Member:
    """Begin an incarnation with exactly these processes. Returns the member with its incarnation's number, as ``fence`` does.

    ``process`` is drawn by each of them. Raises ``RanksMissing`` when one did not come, ``IncarnationTaken`` when the number that the
    launcher gave was used by other processes, and ``Fenced``.
    """
    clock = clock or Clock()
    own = _Caller(log, member, process, Wait(deadline_s, clock), clock).call()
    return replace(member, incarnation=own.incarnation, token=own.token)


class _Roll(msgspec.Struct, frozen=True):
    #: What each rank has drawn, in the order of ranks.
    processes: list[str]


@dataclass(slots=True)
class _Caller:
    """One member, while it looks for its incarnation."""

    log: Log
    member: Member
    #: Drawn by this process, and by no other.
    process: str
    wait: Wait
    clock: Clock

    def call(self) -> Fence:
        """Begin the incarnation, or join the one that rank 0 of this start begins."""
        if self.member.rank == 0:
            fence = begin(self.log, self.member, self.clock, anew=True)
            self._gather(fence)
            return fence
        return self._join()

    def _gather(self, own: Fence) -> None:
        """Wait until every rank has put its text, and call the roll."""
        processes = {0: self.process}
        while True:
            for entry in self.log.store.entries(_folder(own)):
                rank = entry.name.rpartition("/")[2]
                if rank.isdecimal() and int(rank) not in processes:
                    processes[int(rank)] = (_get(self.log.store, entry.name) or b"").decode()
            check_newest(self.log.read(), own.incarnation, self.log.store.url)
            missing = [rank for rank in range(own.ranks) if rank not in processes]
            if not missing:
                roll = _Roll([processes[rank] for rank in range(own.ranks)])
                self.log.store.put_if_absent(_name(own), msgspec.json.encode(roll))
                return
            if not self.wait.again():
                raise RanksMissing(
                    what=f"the beginning of incarnation {own.incarnation}",
                    missing=missing,
                    ranks=own.ranks,
                    waited_s=self.wait.waited_s,
                )

    def _join(self) -> Fence:
        member, foreign = self.member, ""
        while True:
            newest = self.log.read().fence
            if newest is not None and self._is_meant(newest):
                if newest.ranks != member.ranks:
                    foreign = f"it has {newest.ranks} ranks, and this start {member.ranks}"
                elif self._put(newest) != self.process:
                    foreign = f"another process was its rank {member.rank}"
                elif (roll := self._roll(newest)) is not None:
                    if roll.processes[member.rank] == self.process:
                        return newest
                    foreign = f"another process was its rank {member.rank}"
            if foreign and newest is not None and member.incarnation == newest.incarnation:
                raise IncarnationTaken(
                    incarnation=newest.incarnation, reason=foreign, place=self.log.store.url
                )
            if member.incarnation is not None and newest is not None:
                check_newest(self.log.known, member.incarnation, self.log.store.url)
            if not self.wait.again():
                raise self._alone(newest, foreign)

    def _is_meant(self, fence: Fence) -> bool:
        """Whether it has the name of this start."""
        member = self.member
        return member.incarnation in (None, fence.incarnation) and member.token in ("", fence.token)

    def _put(self, fence: Fence) -> str:
        """Put this rank's text; the one that stands there."""
        store, name = self.log.store, f"{_folder(fence)}/{self.member.rank}"
        if store.put_if_absent(name, self.process.encode()):
            return self.process
        # Gone again: a pruner deletes what a fenced incarnation left. The next look at the log says so.
        return (_get(store, name) or b"").decode()

    def _roll(self, fence: Fence) -> _Roll | None:
        data = _get(self.log.store, _name(fence))
        if data is None:
            return None
        try:
            roll = msgspec.json.decode(data, type=_Roll)
        except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
            raise CheckpointDamaged(file=_name(fence), reason=str(reason)) from reason
        if len(roll.processes) != fence.ranks:
            raise CheckpointDamaged(file=_name(fence), reason=f"it does not name {fence.ranks} ranks")
        return roll

    def _alone(self, newest: Fence | None, foreign: str) -> RanksMissing:
        """Rank 0 did not come."""
        what = "the beginning of this start"
        if newest is not None and foreign:
            what += f" (incarnation {newest.incarnation} has the same name, but {foreign})"
        return RanksMissing(what=what, missing=[0], ranks=self.member.ranks, waited_s=self.wait.waited_s)


def _name(fence: Fence) -> str:
    return f"{_folder(fence)}.json"


def _folder(fence: Fence) -> str:
    return f"resume/{fence.incarnation}/roll"


def _get(store: Store, name: str) -> bytes | None:
    try:
        return store.get(name)
    except ObjectMissing:
        return None
