"""The journal of skips: what was left out of a run, when and why, one line per decision, kept whatever dies.

A line is appended whole and synced before anybody acts on it. A last line that a dying process left half-written was never acted
on, so it is dropped; anything else that cannot be read is an error, because a run that forgets a skip is another run.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.data.recipe.skips import Skips
from penstock.errors import RecipeInvalid


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the journal."""

    #: Seconds since 1970.
    at: float
    reason: str
    steps: tuple[tuple[int, int], ...] = ()
    samples: tuple[tuple[str, int], ...] = ()


class SkipJournal:
    """What was left out of a run, one synced line per decision. One process appends; any number may read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(
        self,
        reason: str,
        *,
        steps: Sequence[tuple[int, int]] = (),
        samples: Sequence[tuple[str, int]] = (),
    ) -> Skips:
        """Leave out further steps, as (first, after the last), and mask further samples; everything that is skipped now."""
        checked = Skips(steps=tuple(steps), samples=tuple(samples))
        if not checked:
            raise RecipeInvalid(field="skips", reason="there is nothing to skip")
        # Read first: a journal that cannot be read is not written to.
        self.decisions()
        line = msgspec.json.encode(Decision(time.time(), reason, checked.steps, checked.samples)) + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            # A torn last line is cut off.
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        return self.read()

    def decisions(self) -> list[Decision]:
        """Every decision, in order."""
        try:
            *lines, torn = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        del torn
        try:
            return [msgspec.json.decode(line, type=Decision) for line in lines]
        except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
            raise RecipeInvalid(field="skips", reason=f"{self.path} cannot be read: {reason}") from reason

    def read(self) -> Skips:
        """Everything that is skipped."""
        decisions = self.decisions()
        return Skips(
            steps=tuple(steps for decision in decisions for steps in decision.steps),
            samples=tuple(dict.fromkeys(sample for decision in decisions for sample in decision.samples)),
        )
