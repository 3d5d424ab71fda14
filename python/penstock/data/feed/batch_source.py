"""Where the batches of a feed come from: Rust alone, Rust and then Python, or a service.

``BatchSource`` is all that a feed knows of them; each source names its own stages. ``RustSource`` is the first of the three;
the others are in ``feed/python_stage.py`` and ``service/remote_feed.py``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock import _rust
from penstock.data.feed.share import Sharing
from penstock.data.feed.token_batch import TokenBatch
from penstock.data.monitor.statistics import Spread

if TYPE_CHECKING:
    from penstock.data.feed.batch import Batch
    from penstock.data.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Waits:
    """How a source kept up with its consumer."""

    #: Batches handed out, and batches that are made and wait.
    batches: int
    ready: int
    #: How long the consumer waited for each of the last batches.
    waits_s: list[float]

    @classmethod
    def of(cls, counts: tuple[int, int, bytes]) -> "Waits":
        """What Rust tells, with names."""
        batches, ready, waits = counts
        return cls(batches, ready, np.frombuffer(waits, dtype=np.float64).tolist())


class StageTimes(NamedTuple):
    """Seconds of all threads since opening."""

    plan_s: float
    read_s: float
    digest_s: float
    #: In maps of the recipe, which Python calls.
    map_s: float = 0.0


class BatchSource(Protocol):
    """Batches of one lane in order, and what is known of how they are made. Safe to ask from any thread, ``next`` aside."""

    def next(self) -> "Batch | None":
        """The next batch, or None at the end of the stream, which stays."""

    def ready(self) -> int:
        """Batches that are made and wait to be asked for."""

    def waits(self) -> Waits:
        """How often and how long the consumer waited."""

    def stage(self) -> str:
        """What is waited for now."""

    def stage_times(self) -> StageTimes:
        """How long the stages took in all; 0 where others did the work."""

    def stage_spread(self) -> dict[str, Spread]:
        """How the time of each stage is spread over batches, by the names that the source has for its stages."""

    def sharing(self) -> Sharing | None:
        """What this process is for others that read the same lane; None when batches are not shared."""

    def epochs_before(self, step: int, /) -> list[float | None]:
        """How often each source of the recipe has been read before a step; None where that is not known."""

    def recurrence(self, blocks_max: int, /) -> list[float]:
        """For each source of the recipe, the share of neighbours in packs that meet again in the next epoch, from a few blocks."""

    def close(self) -> None:
        """End the threads."""


class RustPlanned:
    """What a source knows of the plan that Rust follows, whoever finishes the batches."""

    def __init__(self, planned: _rust.Feed) -> None:
        #: What says which samples a step has.
        self.planned = planned

    def stage_times(self) -> StageTimes:
        """How long planning, reading and hashing in Rust took."""
        return StageTimes(*self.planned.stage_times())

    def epochs_before(self, step: int) -> list[float | None]:
        """How often each source of the recipe has been read before a step; None where that is not known."""
        return self.planned.epochs_before(step)

    def recurrence(self, blocks_max: int) -> list[float]:
        """The share of neighbours in packs that meet again, by source."""
        return self.planned.recurrence(blocks_max)


class RustSource(RustPlanned):
    """Batches of tokens that Rust makes alone."""

    def __init__(self, planned: _rust.Feed, plan: "Plan") -> None:
        super().__init__(planned)
        self._plan = plan

    def next(self) -> TokenBatch | None:
        """The next batch, or None at the end."""
        rust_batch = self.planned.next()
        return None if rust_batch is None else TokenBatch(rust_batch, self._plan)

    def ready(self) -> int:
        """Batches that are made and wait."""
        return self.planned.ready()

    def waits(self) -> Waits:
        """How often and how long the consumer waited."""
        return Waits.of(self.planned.waits())

    def stage(self) -> str:
        """What threads of Rust do now: read, plan, measure, share (another process makes the batch), or idle."""
        return self.planned.stage()

    def stage_spread(self) -> dict[str, Spread]:
        """How long planning, reading, hashing and, where batches are shared, getting them from others take."""
        return {name: Spread(*seconds) for name, seconds in self.planned.stage_spread().items()}

    def sharing(self) -> Sharing | None:
        """What this process is for others that read the same lane."""
        return Sharing.of(self.planned.sharing())

    def close(self) -> None:
        """End the threads."""
        self.planned.close()
