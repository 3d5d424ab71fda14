"""How batches are read, and how a training loop wants them: nothing here changes a bit of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from penstock.errors import RecipeInvalid

#: For batches that wait; a few small ones are as good as many.
MEMORY_BYTES = 32 << 20
#: Of a feed, unless the caller says otherwise. The caller's own thread helps when it would have to wait.
THREADS = max(1, min(4, (os.cpu_count() or 1) - 1))
#: A wait that is longer is a stall.
STALL_S = 10.0
Copies = Literal["auto", "always", "never"]
COPIES = ("auto", "always", "never")


class ReadKeywords(TypedDict, total=False):
    """What may be said about reading where a feed or a loader is opened."""

    threads: int | None
    share: bool
    stall_s: float | None
    copies: Copies


class BatchKeywords(TypedDict, total=False):
    """How batches are wanted: what ``Run.steps`` hands to the state. Each framework knows some of them and refuses the others."""

    #: Names of columns, or names with types.
    fields: Any
    #: Batches that are made ready before they are asked for.
    prefetch: int
    threads: int
    #: With torch: where tensors are wanted.
    device: Any
    #: With JAX: over which devices, and along which of their axes, rows are divided.
    mesh: Any
    axis: str | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """``threads`` read ahead (0: the caller's own reads). ``share``: with processes of this host that read the same lane.

    ``stall_s``: how long a wait may last before it is told; by default ``PENSTOCK_STALL_S``, or 10 seconds.
    ``copies``: whether shuffled records of parquet and Arrow are read through a row-addressable copy; see ``copies.py``.
    """

    threads: int | None = None
    share: bool = False
    stall_s: float | None = None
    memory_bytes: int = MEMORY_BYTES
    copies: Copies = "auto"

    def __post_init__(self) -> None:
        if self.threads is not None and not (type(self.threads) is int and self.threads >= 0):
            raise RecipeInvalid(
                field="threads", reason=f"must be a whole number from 0 on, got {self.threads!r:.50}"
            )
        if self.stall_s is not None and not (isinstance(self.stall_s, int | float) and self.stall_s > 0):
            raise RecipeInvalid(
                field="stall_s", reason=f"must be a positive number of seconds, got {self.stall_s!r:.50}"
            )
        if self.copies not in COPIES:
            raise RecipeInvalid(
                field="copies", reason=f"must be one of {', '.join(COPIES)}, got {self.copies!r:.50}"
            )

    @property
    def thread_count(self) -> int:
        """Threads, where nobody said how many."""
        return THREADS if self.threads is None else self.threads

    @property
    def patience_s(self) -> float:
        """How long a wait may last before it is told."""
        if self.stall_s is not None:
            return self.stall_s
        text = os.environ.get("PENSTOCK_STALL_S", "")
        try:
            seconds = float(text) if text else STALL_S
        except ValueError:
            seconds = -1.0
        if not seconds > 0:
            raise RecipeInvalid(
                field="PENSTOCK_STALL_S", reason=f"must be a positive number of seconds, got {text!r:.50}"
            )
        return seconds
