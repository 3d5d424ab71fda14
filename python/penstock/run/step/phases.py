"""Phases: what a program does between or inside of steps that is no part of training, such as an evaluation.

A phase has the patience of its kind, so it is no hang; its time is counted apart (O1), and it draws from generators of its own: afterwards the global ones stand
where they stood, so that a phase changes no bit of training.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import events
from penstock.data import Lane
from penstock.errors import UsageError
from penstock.run.contract import Trainable
from penstock.run.journal.journal import Journal
from penstock.run.journal.step_records import Records
from penstock.run.step.notices import Notices
from penstock.run.step.observation import Observation
from penstock.run.step.randomness import derive, kept_globals, restore_globals, seed_globals


class Phases:
    """Those of one life."""

    def __init__(self, state: Trainable, lane: Lane, seed: int, observed: Observation) -> None:
        self._state, self._lane, self._seed = state, lane, seed
        self._observed = observed
        #: How many are around what happens now.
        self._depth = 0

    def refuse_open(self, step: int) -> None:
        """A phase ends in the step in which it began: later it would put generators of this step back into another one."""
        if self._depth:
            raise UsageError(
                f"step {step} ends while a phase is open", hint='use it as a block: `with run.phase("eval"):`'
            )

    @contextmanager
    def phase(
        self, name: str, step: int, notices: Notices, records: Records, journal: Journal
    ) -> Iterator[None]:
        """One of them. Those inside of another count as a part of it."""
        began, self._depth = time.monotonic(), self._depth + 1
        is_outermost = self._depth == 1
        if is_outermost:
            records.begin_phase(name, step)
        try:
            span, part = events.span(f"run.phase.{name}", step=step), self._observed.part("eval")
            with notices.phase(name), span, part, self._aside(name, step):
                yield
        finally:
            self._depth -= 1
            if is_outermost:
                records.end_phase(name, step)
            if self._state.rank == 0:
                journal.write("phase", step, name=name, seconds=round(time.monotonic() - began, 6))

    @contextmanager
    def _aside(self, name: str, step: int) -> Iterator[None]:
        """Generators for a phase, and what they were before it afterwards."""
        of_python, of_framework = kept_globals(), self._state.entries()
        number = derive(self._seed, f"phase.{name}", step=step, lane=self._lane.number)
        seed_globals(number, step=step, lane=self._lane.number)
        self._state.seed(number)
        try:
            yield
        finally:
            restore_globals(of_python)
            self._state.load_entries(of_framework)
