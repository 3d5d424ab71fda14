"""Errors of training runs."""

from penstock.errors.root import PenstockError


class RunError(PenstockError):
    """Something about a training run."""

    exit_code = 1


class RunUnknown(RunError):
    """There is no run in that directory."""

    exit_code = 2
    hint = "a run is the directory that was given to penstock.Run; `penstock runs list FOLDER` finds them"

    def __init__(self, *, directory: str) -> None:
        self.directory = directory
        super().__init__(f"there is no run in {directory}")


class RunOnlyObserved(RunError):
    """A directory holds the steps of a loop that was observed, and nothing else of a run."""

    exit_code = 2
    hint = "`penstock report`, `penstock compare` and `penstock runs show` read its steps; a recipe, a journal and checkpoints come from penstock.Run"

    def __init__(self, *, directory: str) -> None:
        self.directory = directory
        super().__init__(f"{directory} holds the steps of a loop of your own: there is no recipe in it")


class RunDamaged(RunError):
    """A journal or a file of records cannot be read."""

    def __init__(self, *, file: str, place: int, reason: str) -> None:
        self.file, self.place, self.reason = file, place, reason
        super().__init__(f"{file} cannot be read from {place} on: {reason}")


class TimelineInvalid(RunError):
    """A timeline of a run that breaks the form, with the field and what was expected."""

    exit_code = 2
    hint = "the form is described in docs/spec/ledger.md"

    def __init__(self, *, field: str, reason: str) -> None:
        self.field, self.reason = field, reason
        super().__init__(f"timeline, {field.removeprefix('.')}: {reason}")


class AlertsInvalid(RunError):
    """A file of alerts that breaks the form, with the key and what was expected."""

    exit_code = 2
    hint = "the form is described in docs/guide/alerts.md"

    def __init__(self, *, file: str, key: str, reason: str) -> None:
        self.file, self.key, self.reason = file, key, reason
        super().__init__(f"{file}, {key}: {reason}" if key else f"{file}: {reason}")


class RunUnwritable(RunError):
    """Something that must be written before the run may go on cannot be written: a full disk, a lost permission."""

    hint = "make room or mend the place, and start again: the run goes on from its newest checkpoint"

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"{file} cannot be written: {reason}")


class RunStopped(RunError):
    """A policy decided to stop, and the decision is in force."""

    hint = "look at the batch with `penstock data peek`; go on with another policy, or leave the step out with skips.jsonl"

    def __init__(self, *, step: int, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(f"stopped at step {step}: {reason}")


class SilentCorruption(RunStopped):
    """The same step, executed again from the same checkpoint, gave other bits."""

    hint = "a device computes wrong, or something is not pinned (`run.unpinned`); test the hardware of these ranks"

    def __init__(self, *, step: int, ranks: list[int], reason: str) -> None:
        super().__init__(step=step, reason=reason)
        self.ranks = ranks


class RollbackImpossible(RunError):
    """No checkpoint is left from before the steps that are to be left out."""

    hint = "keep more checkpoints, penstock.Keep(last=…), or save more often"

    def __init__(self, *, step: int, place: str, known: list[int]) -> None:
        self.step, self.place, self.known = step, place, known
        steps = ", ".join(map(str, known)) or "none"
        super().__init__(
            f"step {step} is to be left out, but {place} has no checkpoint before it that fits (there are: {steps})"
        )


class WorldSizeUnfit(RunError):
    """The launcher may go on with a number of ranks that cannot train the batches of this run."""

    def __init__(self, *, size: int, reason: str, fitting: tuple[int, ...]) -> None:
        self.size, self.reason, self.fitting = size, reason, fitting
        fit = f"; of the sizes of this job, {', '.join(map(str, fitting))} fit" if fitting else ""
        self.hint = (
            f"choose a batch that every size divides, or name the numbers of hosts that fit with --sizes{fit}"
        )
        super().__init__(f"the job may go on with {size} ranks, and {reason}")


class RunUnpinned(RunError):
    """Something that decides bits was left open, so equal bits can neither be expected nor proved."""

    hint = (
        "make the run with deterministic=True and start it with PYTHONHASHSEED=0; --anyway tries all the same"
    )

    def __init__(self, *, directory: str, unpinned: list[str]) -> None:
        self.directory, self.unpinned = directory, unpinned
        super().__init__(f"{directory} is not pinned: {'; '.join(unpinned)}")


class RepetitionImpossible(RunError):
    """The run does not hold what is needed to execute its steps again."""

    exit_code = 2

    def __init__(self, *, directory: str, reason: str, hint: str | None = None) -> None:
        self.directory, self.reason = directory, reason
        self.hint = hint
        super().__init__(f"the steps of {directory} cannot be executed again: {reason}")


class RepetitionFailed(RunError):
    """The program did not come to the end of the steps that were to be executed again."""

    def __init__(self, *, command: str, reason: str) -> None:
        self.command, self.reason = command, reason
        super().__init__(f"{command} did not come to its end: {reason}")


class NotEqual(RunError):
    """Two executions of the same steps are not bit-equal."""

    def __init__(self, *, directory: str, first: str, differences: int) -> None:
        self.directory, self.first, self.differences = directory, first, differences
        super().__init__(f"{directory} is not bit-equal: {first}")
