"""Pins: a run that builds on a checkpoint of another run keeps it from being retired.

The pin stands in the log of the run that owns the checkpoint. A pin and a retire of the same checkpoint are records of one
log, so whichever comes second sees the first: the pin is refused, or the retire leaves the checkpoint out.
"""

from penstock.errors import CheckpointUnknown, UsageError
from penstock.state.log.history import Committed, History
from penstock.state.log.log import Log
from penstock.state.log.records import Pin, Unpin


def pin(log: Log, number: int, by: str, *, at: float) -> Committed:
    """Keep a checkpoint, by the number of its commit, for another run; ``by`` is that run's place.

    Raises ``CheckpointUnknown`` when it exists no longer. Pinning twice is the same as once.
    """
    _check_name(by)

    def decide(history: History) -> Pin | None:
        committed = history.living.get(number)
        if committed is None:
            steps = [other.step for other in history.good()]
            raise CheckpointUnknown(place=log.store.url, wanted=f"number {number}", known=steps)
        return None if by in committed.pins else Pin(commit=number, by=by, at=at)

    appended = log.append(decide)
    return (log.known if appended is None else appended.history).living[number]


def unpin(log: Log, number: int, by: str, *, at: float) -> bool:
    """Let go of a checkpoint; whether it was pinned. It is no error if it was not, or if there is none."""
    _check_name(by)

    def decide(history: History) -> Unpin | None:
        committed = history.living.get(number)
        return None if committed is None or by not in committed.pins else Unpin(commit=number, by=by, at=at)

    return log.append(decide) is not None


def unpin_all(log: Log, by: str, *, at: float) -> int:
    """Let go of everything that a run pinned, as when it ends for good; how many checkpoints that were."""
    pinned = [committed.number for committed in log.read().checkpoints() if by in committed.pins]
    return sum(unpin(log, number, by, at=at) for number in pinned)


def _check_name(by: str) -> None:
    if not by:
        raise UsageError("a pin needs the place of the run that it is for")
