"""Which place and which checkpoint a command is about."""

from pathlib import Path

from penstock.errors import CheckpointDamaged, CheckpointUnknown, NothingSaved, RunUnknown, UsageError
from penstock.run.directory import RunDirectory
from penstock.state import Checkpoint, Checkpoints
from penstock.state.checkpoint import checkpoint_of
from penstock.state.load.lookup import is_retired, retired_or
from penstock.state.log.history import Committed, History
from penstock.view.address import RUN, RunAddress, parse

#: How often the newest checkpoint may be retired just when it is looked at.
_LOOKS_MAX = 100
#: Where a run's name is looked for, beside the directory itself.
_RUNS = Path("runs")


def place_of(text: str) -> str:
    """The place of checkpoints that a text means: a directory, a URL, the directory of a run, a name below ``runs/``, or ``run:``
    and either of them.
    """
    if text.startswith(RUN):
        address = parse(text)
        assert isinstance(address, RunAddress), "it begins like one"
        places = map(RunDirectory, (Path(address.run), _RUNS / address.run))
        run = next((candidate for candidate in places if candidate.is_run()), None)
        if run is None:
            raise RunUnknown(directory=address.run)
        return _place_of_run(run)
    if "://" in text:
        return text
    named = Path(text) if Path(text).exists() else _RUNS / text
    run = next((one for one in map(RunDirectory, (Path(text), named)) if one.is_run()), None)
    return text if run is None else _place_of_run(run)


def _place_of_run(run: RunDirectory) -> str:
    """What lies in the run's own directory is meant first: the directory may have been moved since it was written down."""
    own = run.checkpoints
    return str(own) if (own / "log").is_dir() else run.about().checkpoints


def open_checkpoints(place: str, *, write: bool = False) -> Checkpoints:
    """The checkpoints of a place, or of a run; only for looking, unless said otherwise."""
    return Checkpoints(place_of(place), read_only=not write)


def refuse_empty(opened: Checkpoints) -> None:
    """Raise ``NothingSaved`` for a place without checkpoints."""
    if not opened.log.read().checkpoints():
        raise NothingSaved(place=opened.store.url)


def choose(opened: Checkpoints, wanted: str) -> Checkpoint:
    """The checkpoint that ``latest``, a step, or ``number=N`` of the log means.

    Of several of a step it is the newest good one, or the newest if none is good. Nothing is left out because files are missing: who
    asks for the latest should hear of that.
    """
    history = opened.log.read()
    committed = _find(history, wanted)
    if committed is None:
        refuse_empty(opened)
        known = [other.step for other in history.checkpoints()]
        words = wanted if wanted == "latest" else f"of step {wanted}"
        raise CheckpointUnknown(place=opened.store.url, wanted=words, known=known)
    return checkpoint_of(committed, opened.store)


def choose_readable(opened: Checkpoints, wanted: str) -> Checkpoint:
    """The same with its manifest read. A newest one that was retired just now is looked for again."""
    for _ in range(_LOOKS_MAX):
        checkpoint = choose(opened, wanted)
        try:
            # Kept by the checkpoint from now on.
            assert checkpoint.manifest
        except CheckpointDamaged as problem:
            if wanted != "latest" or not is_retired(opened.log, checkpoint.number):
                raise retired_or(problem, opened.log, checkpoint) from problem
        else:
            break
    return checkpoint


def _find(history: History, wanted: str) -> Committed | None:
    if wanted == "latest":
        return history.newest_good()
    if wanted.removeprefix("number=").isdecimal():
        number = int(wanted.removeprefix("number="))
        if wanted.startswith("number="):
            return history.living.get(number)
        of_step = [committed for committed in history.checkpoints() if committed.step == number]
        return history.at_step(number) or (of_step[-1] if of_step else None)
    raise UsageError(
        f"{wanted!r} is not a checkpoint", hint="a step such as 1000, latest, or number=12 of the list"
    )
