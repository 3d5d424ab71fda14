"""Errors of counting and measuring."""

from penstock.errors.root import PenstockError


class ObserveError(PenstockError):
    """Something about what is counted or measured."""


class ModelUntraceable(ObserveError):
    """A model whose operators cannot be seen on fake tensors, so its FLOPs are not known."""

    def __init__(self, *, reason: str, module: str = "", operator: str = "", hint: str | None = None) -> None:
        self.reason, self.module, self.operator = reason, module, operator
        self.hint = hint or "try the same call with real tensors first; forward= says how the model is called"
        place = f" at {operator}" if operator else ""
        place += f" in {module}" if module else ""
        super().__init__(f"the model cannot be traced{place}: {reason}")


class BatchUnreadable(ObserveError):
    """A batch whose rows, tokens or boundaries cannot be read without waiting for a device."""

    def __init__(self, *, field: str, reason: str, hint: str | None = None) -> None:
        self.field, self.reason = field, reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"{field!r} of the batch cannot be read: {reason}")


class ExportTargetTaken(ObserveError):
    """A place that holds something else than earlier exports of the same run, or that another export is writing to."""

    hint = "name a place that does not exist yet; what is there is never overwritten"

    def __init__(self, *, target: str, reason: str) -> None:
        self.target, self.reason = target, reason
        super().__init__(f"{target} cannot be the target of this export: {reason}")


class ExportUnwritable(ObserveError):
    """The target of an export cannot be written: a full disk, a lost permission."""

    exit_code = 1
    hint = "make room or mend the place, and export again: it goes on where it was"

    def __init__(self, *, target: str, reason: str) -> None:
        self.target, self.reason = target, reason
        super().__init__(f"{target} cannot be written: {reason}")


class ReceiverFailed(ObserveError):
    """A receiver of metrics did not take them, after all retries."""

    exit_code = 1
    hint = "export again when it answers: it goes on where it was"

    def __init__(self, *, url: str, reason: str, tries: int) -> None:
        self.url, self.reason, self.tries = url, reason, tries
        times = "once" if tries == 1 else f"{tries} times"
        super().__init__(f"{url} did not take the metrics, asked {times}: {reason}")
