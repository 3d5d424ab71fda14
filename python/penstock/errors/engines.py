"""Errors of engines that hosts are rented from."""

from typing import ClassVar

from penstock.errors.process import ProcessError


class EngineError(ProcessError):
    """Something about an engine, such as Slurm."""

    exit_code: ClassVar[int] = 1


class EngineMissing(EngineError):
    """The engine that was asked for is not here, or too old."""

    exit_code = 2

    def __init__(self, *, engine: str, reason: str, hint: str | None = None) -> None:
        self.engine, self.reason, self.hint = engine, reason, hint
        super().__init__(f"{engine} cannot be used: {reason}")


class EngineRefused(EngineError):
    """The engine said no, in its own words."""

    def __init__(self, *, engine: str, words: str, hint: str | None = None) -> None:
        self.engine, self.words, self.hint = engine, words, hint
        super().__init__(f"{engine} refused: {words}")


class EngineSilent(EngineError):
    """The engine does not answer."""

    hint = "hosts and ranks that run do not need it; ask again later"

    def __init__(self, *, engine: str, reason: str) -> None:
        self.engine, self.reason = engine, reason
        super().__init__(f"{engine} does not answer: {reason}")


class AllocationLost(EngineError):
    """Hosts were given back, or taken back, before the job said how it ended."""

    def __init__(self, *, engine: str, number: str, words: str, hint: str | None = None) -> None:
        self.engine, self.number, self.words, self.hint = engine, number, words, hint
        super().__init__(f"{engine} ended job {number} before it said how it ended: {words}")
