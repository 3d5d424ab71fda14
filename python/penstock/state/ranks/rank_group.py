"""The ranks of one start, as one of them sees it: which it is, by what they know each other, and who writes what of a save.

Whatever ranks have to say to each other is said here, on the thread that calls ``save``, ``resume`` or ``begin``, because all ranks make
these calls in the same order. Nothing in the background uses the program's process group.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from penstock.errors import PenstockError
from penstock.state.contract import Held, Tree
from penstock.state.ranks.division import Division
from penstock.state.ranks.failure import RankFailure, decline, exchanged
from penstock.state.ranks.holdings import Holdings
from penstock.state.ranks.launcher import launch_of
from penstock.state.ranks.meeting import Meeting
from penstock.state.save.durable import Finisher, tell_others
from penstock.state.save.stowage import Stowage, stow
from penstock.state.tree import as_tree, exchange_of, group_of_program, is_tree

#: Begins the incarnation as a rank of so many, unless it has begun.
Begin = Callable[[int, int], Finisher]


class Ranks:
    """The ranks of one start, as one of them sees it."""

    def __init__(self, rank: int | None, ranks: int | None, token: str, mode: str) -> None:
        #: As given; None where the program's process group says it.
        self._given = None if rank is None and ranks is None else (rank or 0, 1 if ranks is None else ranks)
        #: What ranks know each other by; empty until they have to.
        self.token = token
        #: Whether it was drawn for this start, so that no other one has it.
        self.drawn = False
        #: Drawn by this process, for the roll.
        self.process = uuid.uuid4().hex
        self._mode = mode
        self._meeting: Meeting | None = None
        #: What this rank held at the last save, and where its capture stood, under which division.
        self._own: Holdings | None = None
        self._stowed: tuple[Division | None, list[Stowage]] | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Which rank of how many, for trees that do not know it."""
        if self._given is not None:
            return self._given
        group = group_of_program()
        place: tuple[int, int] = (0, 1) if group is None else group.rank_and_ranks()
        return place

    def tree(self, root: Any) -> Tree:
        """A state as a tree of this rank."""
        return as_tree(root, *self.place)

    def agree_on_token(self, state: Tree, incarnation: int | None, step: int | None = None) -> None:
        """Have something by which ranks of this start know each other. Ranks that can talk make one up: a launcher's name is that
        of a job, which may be started twice. ``step``: of the save that needs it.
        """
        if self.token:
            return
        token = uuid.uuid4().hex
        exchange = exchange_of(state, state.rank, state.ranks) if state.ranks > 1 else None
        if exchange is not None and incarnation is None:
            tokens = exchanged(exchange, token.encode(), step)
            self.token, self.drawn = tokens[0].decode(), True
        elif state.ranks == 1:
            self.token, self.drawn = token, True
        else:
            launch = launch_of()
            self.token = "" if launch is None else launch.name

    def divided(
        self,
        state: Tree,
        save: tuple[int, int],
        finisher: Begin,
        memory_bytes: int | None,
    ) -> tuple[list[Held], Division | None, list[Stowage]]:
        """What this rank holds, who writes what of what all ranks hold (None for one rank), and where a capture of it stands.

        ``save`` is its step and attempt.
        """
        if state.ranks > 1 and self._meeting is None:
            self._meeting = Meeting(state.rank, state.ranks)
        with self.declining(state, save, finisher):
            held = state.held()
        holdings = Holdings(held, self._mode)
        if self._own is None or self._own.key != holdings.key:
            self._own, self._stowed = holdings, None
        division = self._division(state, self._own, save, finisher)
        if self._stowed is None or self._stowed[0] is not division:
            self._stowed = (division, stow(held, division, memory_bytes))
        return held, division, self._stowed[1]

    def _division(
        self, state: Tree, own: Holdings, save: tuple[int, int], finisher: Begin
    ) -> Division | None:
        if self._meeting is None or state.ranks == 1:
            return None
        exchange = exchange_of(state, state.rank, state.ranks)
        if exchange is None:
            return self._divided_in_store(self._meeting, own, save, finisher(state.rank, state.ranks))
        return self._meeting.by_exchange(own, exchange, save[0])

    @contextmanager
    def declining(self, root: Any, save: tuple[int, int], finisher: Begin) -> Iterator[None]:
        """Whatever is raised inside is told to the other ranks: they wait for what this one holds, in one exchange, be it for a token or
        for what is held. ``root`` may be no tree at all.
        """
        try:
            yield
        except Exception as problem:
            rank, ranks = self._place_of(root)
            exchange = exchange_of(root, rank, ranks) if ranks > 1 else None
            if exchange is not None:
                decline(exchange, RankFailure.of(rank, problem))
            elif ranks > 1:
                tell_others(partial(finisher, rank, ranks), save, rank, problem)
            raise

    def joined(self, root: Any, incarnation: int | None) -> Tree:
        """A state as a tree of this rank, whose ranks have something to know each other by."""
        try:
            state = self.tree(root)
        except Exception as problem:
            rank, ranks = self._place_of(root)
            exchange = exchange_of(root, rank, ranks) if ranks > 1 else None
            if exchange is not None and not self.token and incarnation is None:
                decline(exchange, RankFailure.of(rank, problem))
            raise
        self.agree_on_token(state, incarnation)
        return state

    def _place_of(self, root: Any) -> tuple[int, int]:
        return (root.rank, root.ranks) if is_tree(root) else self.place

    @staticmethod
    def _divided_in_store(
        meeting: Meeting, own: Holdings, save: tuple[int, int], finisher: Finisher
    ) -> Division:
        name = f"{save[0]}-{save[1]}"
        try:
            return meeting.by_board(own, finisher.board, name, save[0])
        except PenstockError as problem:
            meeting.doubt()
            finisher.tell(save, meeting.rank, problem)
            raise

    def follow(self, division: Division | None, finisher: Finisher, save: str) -> None:
        """Say in the store which division a save follows, where ranks meet there."""
        if division is not None and self._meeting is not None:
            self._meeting.follow(finisher.board, save, division)

    def doubt(self) -> None:
        """A save failed: what is known of the other ranks may be wrong."""
        if self._meeting is not None:
            self._meeting.doubt()
