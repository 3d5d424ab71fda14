"""Proof: a run that was interrupted is bit-equal to one that was not, shown by executing its steps again.

``prove`` repeats steps in one go from the nearest checkpoint, and compares batches, generators, losses and parameters of every step and rank,
and every tensor at every checkpoint. For tests of your own::

    def test_my_training_resumes_exactly(tmp_path):
        train_and_kill_it_a_few_times(tmp_path / "run")
        prove(tmp_path / "run").require()
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import NotEqual, RepetitionImpossible, RunUnpinned, UsageError
from penstock.run.journal import step_records as records
from penstock.run.journal.step_records import Whole
from penstock.run.journal.stretches import Stretch
from penstock.run.proof import difference as differing
from penstock.run.proof import difference_detail as looking
from penstock.run.proof.difference import Difference
from penstock.run.proof.repetition import TIMEOUT_S, Recorded, Repetition, look, repeat


@dataclass(frozen=True, slots=True)
class Proof:
    """What was compared, and what differs."""

    directory: str
    #: The steps that were executed again: first, and after the last; and where that began.
    first: int
    stop: int
    loaded: int | None
    #: How many lives of the run executed any of them.
    lives: int
    #: Compared items by kind.
    compared: dict[str, int]
    #: The first is the one that others follow from, as far as can be told.
    differences: list[Difference]
    #: How long the run trained these steps, and how long it took to execute them again, all told.
    trained_s: float
    wall_s: float
    #: What is worth knowing, but decides nothing.
    notes: list[str]

    @property
    def equal(self) -> bool:
        """Whether all is the same."""
        return not self.differences

    @property
    def ratio(self) -> float | None:
        """Time of the proof over time of training; None where that is not known."""
        return self.wall_s / self.trained_s if self.trained_s > 0 else None

    def require(self) -> "Proof":
        """Raise ``NotEqual``, which names the first difference, unless all is the same."""
        if self.differences:
            first = self.differences[0].sentence
            raise NotEqual(directory=self.directory, first=first, differences=len(self.differences))
        return self

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        names = ("directory", "first", "stop", "loaded", "lives", "compared", "trained_s", "wall_s", "notes")
        return {
            "equal": self.equal,
            **{name: getattr(self, name) for name in (*names, "ratio")},
            "differences": [difference.to_json() for difference in self.differences],
        }


def prove(
    directory: str | os.PathLike[str],
    *,
    steps: tuple[int, int] | None = None,
    anyway: bool = False,
    keep: str | os.PathLike[str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Proof:
    """Execute steps of a run again and compare. All recorded steps, unless ``steps`` says first and after the last.

    Refuses runs that are not pinned, unless ``anyway``. What was executed again is deleted afterwards, unless ``keep`` names an empty place for it.
    """
    run = look(directory)
    first, stop = _range(run, steps)
    known = [stretch for stretch in run.stretches if stretch.first < stop]
    if not anyway:
        _refuse_unpinned(run, known)
    with tempfile.TemporaryDirectory(prefix="penstock-proof-") as scratch:
        place = Path(scratch) / "run" if keep is None else Path(keep)
        if place.exists() and any(place.iterdir()):
            raise UsageError(f"{place} must be an empty directory, and is not")
        return compare(run, repeat(run, first, stop, place, timeout_s=timeout_s))


def compare(run: Recorded, repetition: Repetition) -> Proof:
    """A run with what was executed again."""
    again = look(repetition.directory.path)
    recorded, repeated = (_only(side.steps, repetition) for side in (run, again))
    diffs = _of_settings(run, again, repetition)
    of_steps = differing.steps(recorded, repeated)
    of_states, states = _of_states(run, again, repetition)
    diffs += sorted([*of_steps, *of_states], key=_when)
    diffs = _closer(diffs, run, again)
    count = sum(len(whole.ranks) for whole in recorded.values())
    digests = sum(bool(record.parameters) for whole in recorded.values() for record in whole.ranks.values())
    return Proof(
        directory=str(run.directory.path),
        first=repetition.first,
        stop=repetition.stop,
        loaded=repetition.loaded,
        lives=_lives(run, repetition),
        compared={"steps": len(recorded), "batches": count, "losses": count, "parameters": digests, **states},
        differences=diffs,
        trained_s=trained_s(run.directory.path, recorded),
        wall_s=repetition.wall_s,
        notes=_notes(run, again, repetition),
    )


def differences(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> list[Difference]:
    """Between the records of two runs, such as one that was killed and one that was not."""
    return differing.steps(records.read(one), records.read(other))


def trained_s(directory: str | os.PathLike[str], steps: Mapping[int, Whole]) -> float:
    """How long rank 0 took for the executions that count of these steps."""
    total = 0.0
    for life in records.lives(directory):
        if life.rank:
            continue
        for before, moment in zip(life.moments, life.moments[1:], strict=False):
            whole = steps.get(moment.step)
            if moment.kind == "step" and whole is not None and whole.incarnation == life.incarnation:
                total += moment.at - before.at
    return total


def _range(run: Recorded, steps: tuple[int, int] | None) -> tuple[int, int]:
    if not run.steps:
        raise RepetitionImpossible(directory=str(run.directory.path), reason="no step was recorded")
    first, stop = (min(run.steps), max(run.steps) + 1) if steps is None else steps
    if not 0 <= first < stop:
        raise UsageError(
            f"steps must be a range that is not empty and begins at 0 or later, got {first}:{stop}",
            hint="--steps 100:200 are the steps from 100 to 199",
        )
    return first, stop


def _refuse_unpinned(run: Recorded, known: Iterable[Stretch]) -> None:
    lives = {life for stretch in known for life in stretch.lives}
    starts = [entry.facts for entry in run.entries if entry.kind == "start" and entry.incarnation in lives]
    unpinned = list(dict.fromkeys(reason for facts in starts for reason in facts.get("unpinned", ())))
    if unpinned:
        raise RunUnpinned(directory=str(run.directory.path), unpinned=unpinned)


def _lives(run: Recorded, repetition: Repetition) -> int:
    steps = range(repetition.first, repetition.stop)
    incarnations = {
        life.incarnation
        for life in records.lives(run.directory.path)
        if any(moment.kind == "step" and moment.step in steps for moment in life.moments)
    }
    return len(incarnations)


def _only(steps: Mapping[int, Whole], repetition: Repetition) -> dict[int, Whole]:
    return {step: whole for step, whole in steps.items() if repetition.first <= step < repetition.stop}


def _starts(of: Recorded) -> list[dict[str, Any]]:
    return [entry.facts for entry in of.entries if entry.kind == "start" and entry.incarnation > 0]


def _of_settings(run: Recorded, again: Recorded, repetition: Repetition) -> list[Difference]:
    diffs: list[Difference] = []
    by_life = {entry.incarnation: entry.facts for entry in run.entries if entry.kind == "start"}
    for stretch, facts in zip(repetition.stretches, _starts(again), strict=False):
        # Every life of the stretch, not only its first: a later one may have had other libraries.
        for life in stretch.lives:
            diffs += [
                difference
                for difference in differing.settings(by_life[life], facts)
                if difference not in diffs
            ]
    return diffs


def _of_states(
    run: Recorded, again: Recorded, repetition: Repetition
) -> tuple[list[Difference], dict[str, int]]:
    """What differs at checkpoints that both have."""
    repeated = {checkpoint.step: checkpoint for checkpoint in again.checkpoints if checkpoint.incarnation > 0}
    both = [checkpoint for checkpoint in run.checkpoints if checkpoint.step in repeated]
    newest = {
        checkpoint.step: checkpoint
        for checkpoint in both
        if repetition.first <= checkpoint.step <= repetition.stop
    }
    diffs = [
        diff
        for step, checkpoint in sorted(newest.items())
        for diff in looking.tensors(checkpoint, repeated[step])
    ]
    tensors = sum(len(checkpoint.manifest.tensors) for checkpoint in newest.values())
    return diffs, {"checkpoints": len(newest), "tensors": tensors}


def _when(difference: Difference) -> float:
    """A checkpoint of a step was made before the step, and after the one before."""
    assert difference.step is not None, "settings are no part of this"
    return difference.step - 0.5 if difference.kind in ("tensor", "value") else difference.step


def _closer(diffs: list[Difference], run: Recorded, again: Recorded) -> list[Difference]:
    """The first batch with its first row that differs, the first parameters with their tensors."""
    for kind, closer in (("batch", _rows), ("parameters", _tensors)):
        number = next((n for n, difference in enumerate(diffs) if difference.kind == kind), None)
        if number is not None:
            more = closer(diffs[number], diffs, run, again)
            diffs = [*diffs[:number], replace(diffs[number], more=more), *diffs[number + 1 :]]
    return diffs


def _rows(difference: Difference, diffs: list[Difference], run: Recorded, again: Recorded) -> dict[str, Any]:
    assert difference.step is not None, "a batch belongs to a step"
    wholes = run.steps[difference.step], again.steps[difference.step]
    recipes = tuple(
        next(e.facts["recipe"] for e in reversed(side.entries) if e.kind == "start") for side in (run, again)
    )
    return looking.row((run.directory, again.directory), (recipes[0], recipes[1]), wholes)


def _tensors(
    difference: Difference, diffs: list[Difference], run: Recorded, again: Recorded
) -> dict[str, Any]:
    """Those of the next checkpoint; right after the step they are the ones that differed first."""
    tensors = [other for other in diffs if other.kind in ("tensor", "value")]
    if not tensors:
        return {}
    next_step = tensors[0].step
    names = [other.name for other in tensors if other.step == next_step]
    return {f"at the checkpoint of step {next_step}": ", ".join(names[:5]) + (", …" if names[5:] else "")}


def _notes(run: Recorded, again: Recorded, repetition: Repetition) -> list[str]:
    notes = []
    programs = {stretch.facts.get("program") for stretch in repetition.stretches}
    if any(facts.get("program") not in programs for facts in _starts(again)):
        notes.append("the program's file has changed since")
    return notes
