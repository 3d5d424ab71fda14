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
