"""Repetition: executing recorded steps again with the program that made them, in a place that nobody else uses.

The run's directory says how each of its lives was started; the same command is started again with the same variables, ranks and threads, and with
``PENSTOCK_REPEAT``, which turns its ``Run`` to the other place. There it finds the decisions of the run, its skips, and the checkpoint to begin with,
none of which is copied byte by byte. One start per stretch: interruptions are not repeated, changes of the layout are.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import RepetitionFailed, RepetitionImpossible
from penstock.run.determinism import VARIABLES
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from penstock.run.journal.journal import Entry
from penstock.run.journal.step_records import Whole
from penstock.run.journal.stretches import Stretch, between, stretches
from penstock.run.proof.repeat_mode import VARIABLE, Repeat
from penstock.state import Checkpoint, Checkpoints
from penstock.state.log.adoption import adopt
from penstock.store import open_store

#: Of what a program wrote, when it failed.
_LINES_SHOWN = 20
#: No part of what made the bits, and in the way of another start: launchers' variables, and planned accidents.
_LEFT_OUT = ("PENSTOCK_POINTS", "PENSTOCK_PULSES", "PENSTOCK_JOB", "PENSTOCK_INCARNATION", "PENSTOCK_ROLE")
_LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
#: A repetition that takes longer than this hangs.
TIMEOUT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run's directory says about it."""

    directory: RunDirectory
    steps: dict[int, Whole]
    entries: list[Entry]
    checkpoints: list[Checkpoint]

    @property
    def stretches(self) -> list[Stretch]:
        """All of them."""
        return stretches(self.steps, self.entries)

    def nearest(self, step: int) -> Checkpoint | None:
        """The newest checkpoint at a step or before it. None before the first one, and when nothing is to be loaded."""
        first = next(iter(self.steps), 0)
        candidates = [checkpoint for checkpoint in self.checkpoints if first < checkpoint.step <= step]
        return max(candidates, key=lambda checkpoint: checkpoint.step, default=None)


def look(directory: str | os.PathLike[str]) -> Recorded:
    """Read a run; nothing is changed."""
    place = RunDirectory(directory)
    about = place.about()
    kept = Checkpoints(about.checkpoints, read_only=True)
    checkpoints = [checkpoint for checkpoint in kept.list() if not checkpoint.damage]
    return Recorded(place, records.read(place.path), journal.read(place.path), checkpoints)


@dataclass(frozen=True, slots=True)
class Repetition:
    """What was executed again, and what came of it."""

    directory: RunDirectory
    first: int
    stop: int
    #: With the step of the checkpoint it began with; None from the start.
    loaded: int | None
    stretches: list[Stretch]
    wall_s: float


def repeat(
    run: Recorded, first: int, stop: int, scratch: Path, *, timeout_s: float = TIMEOUT_S
) -> Repetition:
    """Execute the steps from ``first`` up to ``stop`` again, beginning at the nearest checkpoint."""
    known = run.stretches
    if not known:
        reason = "no start of a life is in its journal" if run.steps else "no step was recorded"
        raise RepetitionImpossible(directory=str(run.directory.path), reason=reason)
    nearest = run.nearest(first)
    begin = known[0].first if nearest is None else nearest.step
    chosen = between(known, begin, stop)
    if not chosen:
        steps = f"{known[0].first} to {known[-1].stop - 1}"
        raise RepetitionImpossible(
            directory=str(run.directory.path), reason=f"steps {first}:{stop} were not recorded, only {steps}"
        )
    place = RunDirectory(scratch)
    furnish(run, place, nearest)
    began = time.monotonic()
    for number, stretch in enumerate(chosen):
        saves = tuple(
            checkpoint.step
            for checkpoint in run.checkpoints
            if stretch.first <= checkpoint.step < stretch.stop
        )
        wanted = Repeat(str(stretch.facts["run"]), str(place.path), stretch.stop, saves)
        document = place.path / f"repeat-{number}.json"
        document.write_bytes(msgspec.json.encode(wanted))
        _start(stretch.facts, document, timeout_s - (time.monotonic() - began))
    wall_s = time.monotonic() - began
    return Repetition(
        place, begin, chosen[-1].stop, None if nearest is None else nearest.step, chosen, wall_s
    )


def furnish(run: Recorded, place: RunDirectory, checkpoint: Checkpoint | None) -> None:
    """What the program finds there: decisions that are in force, skips, and a checkpoint."""
    place.path.mkdir(parents=True, exist_ok=True)
    adopt(checkpoint, open_store(place.checkpoints))
    if run.directory.skips.exists():
        shutil.copyfile(run.directory.skips, place.skips)
    with journal.Journal(place.path, 0, 0) as new_journal:
        for entry in run.entries:
            decided = entry.kind == "verdict" and entry.facts.get("action") != "stop"
            if entry.kind == "start" or decided or (entry.kind == "replayed" and entry.facts.get("equal")):
                new_journal.write(entry.kind, entry.step, **entry.facts)


def _start(facts: Mapping[str, Any], document: Path, timeout_s: float) -> None:
    command = [facts["interpreter"], *facts["command"][1:]]
    if facts["launcher"] != "none":
        launcher = [sys.executable, "-m", "penstock.cli.main", "run", "--ranks", str(facts["ranks"])]
        command = [*launcher, "--name", "repeat", "--", *command]
    output = document.with_suffix(".log")
    try:
        with output.open("wb") as file:
            done = subprocess.run(
                command,
                cwd=facts["directory"],
                env=_environment(facts, document),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=max(1.0, timeout_s),
                check=False,
            )
    except subprocess.TimeoutExpired as late:
        raise RepetitionFailed(
            command=shlex.join(command), reason=f"it took longer than {late.timeout:.0f} s"
        ) from late
    except OSError as reason:
        raise RepetitionFailed(command=shlex.join(command), reason=str(reason)) from reason
    if done.returncode:
        lines = output.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
        ending = f"exit code {done.returncode}, its last lines were\n" + "\n".join(
            f"  {line}" for line in lines
        )
        raise RepetitionFailed(command=shlex.join(command), reason=ending)


def _environment(facts: Mapping[str, Any], document: Path) -> dict[str, str]:
    """As it is here, but for what decides bits and where modules are."""
    names = {*VARIABLES, *_LEFT_OUT, *_LAUNCHED, "PYTHONPATH"}
    variables = {name: value for name, value in os.environ.items() if name not in names}
    variables |= facts["pinned"]["variables"]
    if facts["path"]:
        variables["PYTHONPATH"] = facts["path"]
    return {**variables, VARIABLE: str(document)}
