"""The directory of a run, and what lies where in it.

::

    run.json                what the run is: seed, recipe, registry, place of its checkpoints; written once
    journal/LIFE-RANK.jsonl what happened and was decided
    records/LIFE-RANK.rec   what every step was
    events/LIFE-RANK.pev    spans and facts, for reports
    steps/LIFE-RANK-N.pst   what every step took (``penstock.observe.steps``)
    recipes/DIGEST.json     recipes as files, where that is possible: for ``penstock data peek``
    skips.jsonl             what is left out of the data (``penstock.SkipJournal``)
    alerts/HOST.jsonl       alerts that a watcher has raised (``penstock.report.watch``)
    feeds/RANK.page         what a rank's feeds have counted, where the run is watched
    places/TOKEN            of a job of many hosts: by which hosts see that they share the directory
    taps/RANK.tap           what a rank reads now, for ``penstock view``; gone when it ends
    checkpoints/            unless they are elsewhere

All ranks must see the same directory; ranks of one host may have one of their own, because what has to be the same on all of them goes
through rank 0.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.data import Recipe
from penstock.data.recipe.document import written
from penstock.errors import RunDamaged, RunOnlyObserved, RunUnknown
from penstock.observe.steps.columns import FOLDER as STEPS
from penstock.run.journal.append_file import sync_folder
from penstock.run.journal.journal import FOLDER as JOURNAL

FORM = 1
_DEPTH_MAX = 4
_PARTS_MAX = 10_000


class About(msgspec.Struct, frozen=True):
    """What a run is, from its first start on."""

    form: int
    made: float
    seed: int
    deterministic: bool
    #: As written; versions by address.
    recipe: dict[str, Any]
    recipe_digest: str
    #: Its place, or the address of the service that made the batches.
    registry: str
    checkpoints: str
    #: Whether it keeps the last few checkpoints when its policy says nothing; runs that were begun earlier keep all of them.
    keeps_few: bool = False


class RunDirectory:
    """Paths of what lies in the directory of a run, and its description."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def skips(self) -> Path:
        """The journal of skips."""
        return self.path / "skips.jsonl"

    @property
    def taps(self) -> Path:
        """What ranks have in their hands now, while they run."""
        return self.path / "taps"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are unless they are elsewhere."""
        return self.path / "checkpoints"

    def events(self, incarnation: int, rank: int) -> Path:
        """A new recording of a rank of a life; a life of several loops has several."""
        folder, stem = self.path / "events", f"{incarnation:06d}-{rank:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        parts = (folder / f"{stem}{f'-{part}' if part else ''}.pev" for part in range(_PARTS_MAX))
        free = next((path for path in parts if not path.exists()), None)
        if free is None:
            raise RunDamaged(file=str(folder), place=0, reason=f"{stem} has {_PARTS_MAX} recordings already")
        return free

    def recipe(self, digest: str) -> Path:
        """Where a recipe is kept as a file."""
        return self.path / "recipes" / f"{digest.removeprefix('b3:')[:16]}.json"

    def about(self) -> About:
        """What the run is."""
        path = self.path / "run.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=About)
        except (FileNotFoundError, NotADirectoryError):
            if self.is_only_observed():
                raise RunOnlyObserved(directory=str(self.path)) from None
            raise RunUnknown(directory=str(self.path)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
            raise RunDamaged(file=str(path), place=0, reason=str(reason)) from reason

    def is_run(self) -> bool:
        """Whether there is one, or a loop of somebody's own whose steps were recorded. Other folders may be called ``steps``."""
        if (self.path / "run.json").is_file() or (self.path / JOURNAL).is_dir():
            return True
        steps = self.path / STEPS
        return steps.is_dir() and any(path.suffix in (".pst", ".tail") for path in steps.iterdir())

    def is_only_observed(self) -> bool:
        """Whether it has steps, and nothing that ``penstock.Run`` writes."""
        return (self.path / STEPS).is_dir() and not (
            (self.path / "run.json").is_file() or (self.path / JOURNAL).is_dir()
        )

    def describe(self, about: About) -> None:
        """Say what the run is, unless that is known."""
        _write_once(self.path / "run.json", about)

    def keep_recipe(self, recipe: Recipe) -> None:
        """Keep it as a file, unless it has functions, which a file cannot hold."""
        document = written(recipe)
        if document is not None:
            _write_once(self.recipe(recipe.digest), document)


def _write_once(path: Path, document: Any) -> None:
    """A file that is whole or not there, and never changes."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    with beside.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def runs_below(folder: Path) -> Iterator[RunDirectory]:
    """Every run in a folder and the folders in it, a few levels deep."""
    yield from _below(folder, 0)


def _below(folder: Path, depth: int) -> Iterator[RunDirectory]:
    here = RunDirectory(folder)
    if here.is_run():
        yield here
        return
    if depth < _DEPTH_MAX and folder.is_dir():
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                yield from _below(entry, depth + 1)
