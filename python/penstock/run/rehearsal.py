"""Rehearsals: executing steps of a run again, beside it, without touching it.

The same program is started with ``PENSTOCK_REHEARSAL`` in its environment. Its run then loads the newest good checkpoint at or before the
first wanted step, executes up to the last one with every decision of the original in force, saves nothing, and writes its
journal and records into another directory. Whoever started it compares the records.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import CheckpointUnknown, UsageError
from penstock.run.directory import RunDirectory
from penstock.run.life import Life
from penstock.run.policies import Policy
from penstock.run.settings import Settings
from penstock.state import Checkpoint, Checkpoints

VARIABLE = "PENSTOCK_REHEARSAL"


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What is executed again, and where that is written down."""

    into: Path
    #: The first step that is wanted; execution begins at the checkpoint before it.
    first: int
    #: The first step that is not executed any more.
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.stop:
            raise UsageError(f"{VARIABLE}: there are no steps from {self.first} to {self.stop}")

    def to_variable(self) -> dict[str, str]:
        """What the environment of the program needs."""
        return {VARIABLE: json.dumps({"into": str(self.into), "first": self.first, "stop": self.stop})}


def rehearsal_of(environment: Mapping[str, str] = os.environ) -> Rehearsal | None:
    """The rehearsal that this process is, if it is one."""
    text = environment.get(VARIABLE)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return Rehearsal(Path(found["into"]), int(found["first"]), int(found["stop"]))
    except (ValueError, KeyError, TypeError) as reason:
        raise UsageError(
            f"{VARIABLE} cannot be read: {reason}", hint='{"into": "DIRECTORY", "first": 40, "stop": 50}'
        ) from reason


def rehearsed(settings: Settings, rehearsal: Rehearsal) -> Settings:
    """The settings of the original, for executing some of its steps beside it."""
    # Verdicts of the original are in force; judging again could only add others.
    policy = Policy(save_every=None, stop_at=rehearsal.stop, non_finite=None, digest_every=1)
    return replace(
        settings, directory=RunDirectory(rehearsal.into), policy=policy, rehearsal_first=rehearsal.first
    )


class RehearsedLife(Life):
    """A life that reads from the original and writes elsewhere. Its number is that of the process's own start, from 0."""

    def _opened(self) -> Checkpoints:
        given = self.settings.checkpoints
        place = self.settings.source.checkpoints if given is None else given.store.url
        return Checkpoints(place, rank=self.state.rank, ranks=self.state.ranks, read_only=True)

    def _fenced(self) -> int:
        return 0

    def _resumed(self, refused: list[Checkpoint]) -> Checkpoint | None:
        first = self.settings.rehearsal_first or 0
        known = [each for each in self._checkpoints.list() if not each.damage]
        fitting = [each for each in known if each.step <= first and self._fits(each, refused)]
        if not fitting:
            raise CheckpointUnknown(
                place=self._checkpoints.store.url,
                wanted=f"at or before step {first}",
                known=[each.step for each in known],
            )
        found = max(fitting, key=lambda each: (each.step, each.number))
        self._checkpoints.load(found, self.state)
        return found

    def _leave_behind(self, found: Checkpoint) -> None:
        """Nothing of the original is changed."""

    def _save(self, why: str) -> None:
        """Nothing is saved."""
