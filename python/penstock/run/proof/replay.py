"""Replaying: one step of a run, executed again from the nearest checkpoint, beside what was recorded of it."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import RepetitionImpossible
from penstock.run.journal.step_records import StepRecord, Whole
from penstock.run.proof.difference import Difference
from penstock.run.proof.proof import compare
from penstock.run.proof.repetition import TIMEOUT_S, look, repeat


@dataclass(frozen=True, slots=True)
class Replay:
    """A step, twice."""

    directory: str
    step: int
    #: The step of the checkpoint it began with; None from the start.
    loaded: int | None
    recorded: Whole
    repeated: Whole
    #: Of this step and those executed before it.
    differences: list[Difference]
    #: Rebuilds the batch, with the origins of its rows; empty for recipes that no file can hold.
    peek: list[str]

    @property
    def equal(self) -> bool:
        """Whether all is the same."""
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "equal": self.equal,
            "directory": self.directory,
            "step": self.step,
            "loaded": self.loaded,
            "batch": {"recorded": self.recorded.batch, "repeated": self.repeated.batch},
            "ranks": [
                {
                    "rank": rank,
                    "recorded": _plain(record),
                    "repeated": _plain(self.repeated.ranks[rank]) if rank in self.repeated.ranks else None,
                }
                for rank, record in self.recorded.ranks.items()
            ],
            "differences": [difference.to_json() for difference in self.differences],
            "peek": self.peek,
        }


def replay(directory: str | os.PathLike[str], step: int, *, timeout_s: float = TIMEOUT_S) -> Replay:
    """Execute a step again. Unlike a proof, a run that is not pinned is replayed too: what differs is told."""
    run = look(directory)
    if step not in run.steps:
        known = f"{min(run.steps)} to {max(run.steps)}" if run.steps else "none"
        raise RepetitionImpossible(
            directory=str(run.directory.path), reason=f"step {step} was not recorded, only {known}"
        )
    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as scratch:
        repetition = repeat(run, step, step + 1, Path(scratch) / "run", timeout_s=timeout_s)
        proof = compare(run, repetition)
        again = look(repetition.directory.path)
    if step not in again.steps:
        raise RepetitionImpossible(
            directory=str(run.directory.path), reason=f"step {step} was not executed this time"
        )
    recipe = run.directory.recipe(repetition.stretches[-1].facts["recipe"])
    peek = ["penstock", "data", "peek", str(recipe), "--step", str(step)]
    return Replay(
        directory=str(run.directory.path),
        step=step,
        loaded=repetition.loaded,
        recorded=run.steps[step],
        repeated=again.steps[step],
        differences=proof.differences,
        peek=[*peek, "--registry", run.directory.about().registry] if recipe.exists() else [],
    )


def _plain(record: StepRecord) -> dict[str, Any]:
    names = ("batch", "loss", "loss_bits", "grad_norm", "tokens", "parameters")
    values = {name: getattr(record, name) for name in names}
    # JSON has no NaN; it stands for what was not reported.
    return {name: value if value == value else None for name, value in values.items()}
