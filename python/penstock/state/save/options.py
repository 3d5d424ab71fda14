"""How checkpoints are saved: what is rarely said, and what happens when a save does not work."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from penstock.errors import UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.log.retention import Keep
from penstock.state.log.watch import PERIOD_S


@dataclass(frozen=True, slots=True)
class Failure:
    """What happens when a save does not work."""

    #: How often a write is tried again, with growing pauses.
    retries: int = 2
    #: Another place for data files when the first is full or down.
    spill: str | None = None
    #: ``raise``: by ``wait``, or by the next save. ``continue``: it is recorded and counted, and training goes on.
    then: Literal["raise", "continue"] = "raise"

    def __post_init__(self) -> None:
        if self.retries < 0 or self.then not in ("raise", "continue"):
            raise UsageError(
                f"retries must not be negative and then must be 'raise' or 'continue', got {self.retries} and {self.then!r}",
                hint="retries=2, then='raise'",
            )


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """What is rarely said about saving."""

    #: Captures that may be in memory at once. Each is as large as what this rank writes; a save waits for one to be free.
    captures: int = 1
    #: The most that one capture may take. A state that is larger is saved in waves, and only the last of them behind training's
    #: back.
    memory_bytes: int | None = None
    failure: Failure = Failure()
    #: How long to wait for other ranks, and for memory.
    deadline_s: float = 600.0
    #: Never write anything: for looking at a run that goes on elsewhere.
    read_only: bool = False
    #: A second place, which gets a copy of the newest checkpoint in the background; and what to keep there.
    behind: str | None = None
    keep_behind: Keep | None = None
    #: A checkpoint of another run that this one builds on: tensors that stay as they are there are not written again, and it is
    #: pinned in the log of its run.
    base: Checkpoint | None = None
    #: How often the log is looked into for a newer incarnation, in seconds.
    watch_s: float = PERIOD_S
    #: The run's name in manifests and files; the last part of the place unless given.
    run: str = ""
    #: What to make of tensors that several ranks hold. ``sample``: they have to be equal, small ones are compared as a whole and others at
    #: some thousand places. ``check``: all are compared as a whole, and training waits for that. ``first``: those of the first rank are saved
    #: and loaded, whatever the others hold.
    replicas: Literal["sample", "check", "first"] = "sample"

    def __post_init__(self) -> None:
        for name in ("captures", "deadline_s", "memory_bytes", "watch_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(
                    f"{name} must be positive, got {value}", hint="captures=1, deadline_s=600, watch_s=10"
                )
        if self.replicas not in ("sample", "check", "first"):
            raise UsageError(
                f"replicas must be 'sample', 'check' or 'first', got {self.replicas!r}",
                hint="replicas='sample' compares some elements of every tensor that several ranks hold",
            )


class SaveKeywords(TypedDict, total=False):
    """``SaveOptions`` as keywords, so that editors complete them."""

    captures: int
    memory_bytes: int | None
    failure: Failure
    deadline_s: float
    read_only: bool
    behind: str | None
    keep_behind: Keep | None
    base: Checkpoint | None
    watch_s: float
    run: str
    replicas: Literal["sample", "check", "first"]
