"""Which place and which checkpoint a command is about."""

from penstock.errors import CheckpointUnknown, UsageError
from penstock.state import Checkpoint, Checkpoints
from penstock.state.checkpoint import checkpoint_of
from penstock.state.history import Committed, History


def open_checkpoints(place: str, *, write: bool = False) -> Checkpoints:
    """The checkpoints of a place; only for looking, unless said otherwise."""
    return Checkpoints(place, read_only=not write)


def choose(opened: Checkpoints, wanted: str) -> Checkpoint:
    """The checkpoint that ``latest``, a step, or ``number=N`` of the log means.

    Of several of a step it is the newest good one, or the newest if none is good. Nothing is left out because files are missing: who
    asks for the latest should hear of that.
    """
    history = opened.log.read()
    found = _find(history, wanted)
    if found is None:
        known = [each.step for each in history.checkpoints()]
        words = wanted if wanted == "latest" else f"of step {wanted}"
        raise CheckpointUnknown(place=opened.store.url, wanted=words, known=known)
    return checkpoint_of(found, opened.store)


def _find(history: History, wanted: str) -> Committed | None:
    if wanted == "latest":
        return history.newest_good()
    if wanted.removeprefix("number=").isdecimal():
        number = int(wanted.removeprefix("number="))
        if wanted.startswith("number="):
            return history.living.get(number)
        of_step = [each for each in history.checkpoints() if each.step == number]
        return history.at_step(number) or (of_step[-1] if of_step else None)
    raise UsageError(
        f"{wanted!r} is no checkpoint", hint="a step such as 1000, latest, or number=12 of the list"
    )
