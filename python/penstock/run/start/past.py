"""Which checkpoint a life goes on from: the newest whose past is the one that counts now.

A checkpoint belongs to the steps that were left out before it. When others are left out, by a rollback or by a person, it belongs to a past
that was undone: it is passed over, and nobody's newest any more.
"""

import time
from dataclasses import dataclass, replace

import msgspec

from penstock.data import Cursor, Skips
from penstock.errors import CheckpointDamaged, RollbackImpossible, UsageError
from penstock.run.contract import Trainable
from penstock.run.policies import Verdict
from penstock.state import Checkpoint, Checkpoints
from penstock.state.log.commit import quarantine

#: What a checkpoint of a run has beside its tensors.
CURSOR, WINDOW = "cursor", "run.window"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was loaded, and what was saved with it."""

    checkpoint: Checkpoint
    cursor: Cursor
    #: Values that were accepted before it.
    window: list[float]


class Past:
    """Chooses the checkpoint that a life continues from."""

    def __init__(self, checkpoints: Checkpoints, state: Trainable) -> None:
        self._checkpoints, self._state = checkpoints, state

    def restore(self, skips: Skips, *, starting: bool) -> Restored | None:
        """Load the newest checkpoint that fits; None where a run starts and there is none."""
        refused: list[Checkpoint] = []
        checkpoint = self._checkpoints.resume(
            self._state, fits=lambda candidate: self._fits(candidate, skips, refused)
        )
        if checkpoint is None:
            if refused or not starting:
                raise self._impossible(skips, refused)
            return None
        entries = self._checkpoints.entries(checkpoint, rank=self._state.rank)
        if self._state.rank == 0:
            self._leave_behind(checkpoint, skips)
        window = [float.fromhex(loss) for loss in entries.get(WINDOW, [])]
        return Restored(checkpoint, Cursor.from_json(entries[CURSOR]), window)

    def feasible(self, verdict: Verdict, skips: Skips) -> Verdict:
        """A verdict to go back, or a stop where there is nothing to go back to: what is written down must be possible. All ranks call it."""
        first = verdict.step if verdict.leave_out is None else verdict.leave_out[0]
        # What is about to be retired is nothing to go back to.
        self._checkpoints.settle()
        mine = b"" if self._state.rank else msgspec.json.encode(self.reaches(first, skips))
        kept: list[int] | None = msgspec.json.decode(self._state.share(mine))
        if kept is None:
            return verdict
        steps = ", ".join(map(str, kept)) or "none"
        lacking = f"no checkpoint from before step {first} is left to go back to (there are: {steps})"
        return replace(verdict, action="stop", reason=f"{verdict.reason}; {lacking}")

    def reaches(self, step: int, skips: Skips) -> list[int] | None:
        """None if a checkpoint from before a step is there to go back to; otherwise the steps of those that are there."""
        good = [
            checkpoint
            for checkpoint in self._checkpoints.list()
            if not checkpoint.damage and self._fits(checkpoint, skips, [])
        ]
        return (
            None
            if any(checkpoint.step <= step for checkpoint in good)
            else sorted(checkpoint.step for checkpoint in good)
        )

    def _impossible(self, skips: Skips, refused: list[Checkpoint]) -> RollbackImpossible:
        first = min((steps[0] for steps in skips.steps), default=0)
        known = [checkpoint.step for checkpoint in refused]
        return RollbackImpossible(step=first, place=self._checkpoints.store.url, known=known)

    def _fits(self, checkpoint: Checkpoint, skips: Skips, refused: list[Checkpoint]) -> bool:
        """Whether a checkpoint was made with the same steps left out before it."""
        try:
            entries = self._checkpoints.entries(checkpoint, rank=0)
        except CheckpointDamaged:
            # Loading finds the same and quarantines it.
            return True
        if CURSOR not in entries:
            hint = "load it yourself into the state, and give the run another place for its checkpoints"
            raise UsageError(f"the checkpoint of step {checkpoint.step} has no cursor", hint=hint)
        cursor = Cursor.from_json(entries[CURSOR])
        if cursor.skips == skips.digest(cursor.step):
            return True
        refused.append(checkpoint)
        return False

    def _leave_behind(self, checkpoint: Checkpoint, skips: Skips) -> None:
        """Checkpoints of an undone past are nobody's newest any more."""
        log = self._checkpoints.log
        for commit in log.read().good():
            if commit.number > checkpoint.number and not self._fits_committed(commit.number, skips):
                quarantine(log, commit.number, "it was gone back behind", rank=0, at=time.time())

    def _fits_committed(self, number: int, skips: Skips) -> bool:
        known = [checkpoint for checkpoint in self._checkpoints.list() if checkpoint.number == number]
        return all(self._fits(checkpoint, skips, []) for checkpoint in known)
