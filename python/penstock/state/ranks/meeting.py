"""How ranks tell each other what they hold, on the training thread, before a save is divided.

Ranks that can talk to each other (``Tree.exchange``) compare one digest per rank at every save, and tell whole lists where one is
new. Others meet in the store: at the first save, and whenever a list has changed or a save has failed. In between they follow the last
division without a word; every part names it, so a rank that follows another one is noticed before anything is committed.
"""

from dataclasses import dataclass, field

import msgspec

from penstock.errors import ObjectMissing, RanksMissing, SaveFailed
from penstock.state.ranks.clock import Clock, Wait
from penstock.state.ranks.division import Division
from penstock.state.ranks.failure import Exchange, check_failure, exchanged
from penstock.state.ranks.holdings import Holdings
from penstock.store import Store


class _Post(msgspec.Struct, frozen=True):
    digest: str
    #: The list; empty from a rank that follows an earlier division.
    document: bytes
    #: The division that this rank follows; empty from one that waits for the lists of the others.
    division: str


@dataclass(slots=True)
class Board:
    """Where ranks that cannot talk to each other put what they hold: beside the parts of a save."""

    store: Store
    incarnation: int
    deadline_s: float
    clock: Clock = field(default_factory=Clock)

    def put(self, save: str, rank: int, post: _Post) -> None:
        """Say what this rank holds."""
        self.store.put_if_absent(self._name(save, rank), msgspec.json.encode(post))

    def await_all(self, save: str, step: int, ranks: int) -> list[_Post]:
        """What all ranks hold, as soon as all have said it."""
        posts: dict[int, _Post] = {}
        wait = Wait(self.deadline_s, self.clock)
        while True:
            for rank in range(ranks):
                if rank not in posts and (post := self._get(save, rank)) is not None:
                    posts[rank] = post
            missing = [rank for rank in range(ranks) if rank not in posts]
            if not missing:
                return [posts[rank] for rank in range(ranks)]
            check_failure(self.store, f"parts/{self.incarnation}/{save}", step)
            if not wait.again():
                raise RanksMissing(
                    what=f"what is held at the save of step {step}",
                    missing=missing,
                    ranks=ranks,
                    waited_s=wait.waited_s,
                )

    def _name(self, save: str, rank: int) -> str:
        return f"parts/{self.incarnation}/{save}/held-{rank}.json"

    def _get(self, save: str, rank: int) -> _Post | None:
        try:
            return msgspec.json.decode(self.store.get(self._name(save, rank)), type=_Post)
        except ObjectMissing:
            return None


class Meeting:
    """The lists and the division of one rank, from save to save."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self._ranks = rank, ranks
        self._division: Division | None = None
        #: Whether the next meeting in the store has to be a real one.
        self._doubtful = True
        #: Whether ranks meet in the store.
        self._in_store = False

    def doubt(self) -> None:
        """A save failed: perhaps because ranks followed different divisions."""
        self._doubtful = True

    def by_exchange(self, own: Holdings, exchange: Exchange, step: int) -> Division:
        """The division of a save, by ranks that can talk to each other."""
        known = "" if self._division is None else self._division.id
        answers = exchanged(exchange, f"{own.digest} {known}".encode(), step)
        digests, divisions = zip(*(said.decode().split(" ") for said in answers), strict=True)
        if self._division is not None and self._division.digests == digests and set(divisions) == {known}:
            return self._division
        # Of ranks with equal lists the first one tells it.
        tells = digests.index(own.digest) == self.rank
        documents = exchanged(exchange, own.document if tells else b"", step)
        told_lists = {digests[rank]: document for rank, document in enumerate(documents) if document}
        return self._divided(list(digests), told_lists, step)

    def by_board(self, own: Holdings, board: Board, save: str, step: int) -> Division:
        """The division of a save, by ranks that meet in the store alone."""
        self._in_store = True
        known = self._division
        if known is not None and not self._doubtful and known.digests[self.rank] == own.digest:
            return known
        board.put(save, self.rank, _Post(own.digest, own.document, ""))
        posts = board.await_all(save, step, self._ranks)
        digests = [post.digest for post in posts]
        followers = [rank for rank, post in enumerate(posts) if post.division]
        if not followers:
            self._doubtful = False
            return self._divided(digests, {post.digest: post.document for post in posts}, step)
        if known is None or known.digests != tuple(digests):
            raise SaveFailed(
                step=step,
                reason=f"rank {self.rank} holds other tensors than at the last save, and rank {followers[0]} does not",
                hint="let all ranks add and drop tensors before the same save; save again",
            )
        self._doubtful = False
        return known

    def follow(self, board: Board, save: str, division: Division) -> None:
        """Say which division this rank follows, so that nobody waits for its list. What it has said already stays."""
        if not self._in_store:
            return
        post = _Post(division.digests[self.rank], b"", division.id)
        board.put(save, self.rank, post)

    def _divided(self, digests: list[str], lists: dict[str, bytes], step: int) -> Division:
        self._division = None
        self._division = Division(self.rank, digests, lists, step)
        return self._division
