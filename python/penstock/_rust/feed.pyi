"""The feed: a plan comes in, batches go out as buffers."""

from typing import Self, final

from typing_extensions import Buffer

from penstock._rust.plan import FeedPlan, PartPlan
from penstock._rust.share import SharingValues

@final
class Feed:
    """Batches of one lane, read ahead by threads."""

    def __new__(
        cls,
        plan: FeedPlan,
        lane: tuple[int, int],
        step: int,
        threads: int,
        memory_bytes: int,
        share: str | None = None,
    ) -> Self: ...
    def next(self) -> FeedBatch | None:
        """The next batch, or None at the end of the stream."""
    def ready(self) -> int:
        """Batches that are made and wait."""
    def waits(self) -> tuple[int, int, bytes]:
        """Batches delivered, batches ready, and the last waits in seconds (f64)."""
    def stage_times(self) -> tuple[float, float, float]:
        """Seconds of all threads since opening: planning, reading, hashing."""
    def stage(self) -> str:
        """What its threads do now: read, plan, measure, share (somebody else makes the batch), or idle."""
    def stage_spread(self) -> dict[str, tuple[float, float]]:
        """Seconds that half and 99 % of all batches did not pass, by stage: plan, read, digest, and share where others make them too."""
    def sharing(self) -> SharingValues | None:
        """What it is for other processes that read the same lane, and counts; None when batches are not shared."""
    def epochs_before(self, step: int) -> list[float | None]:
        """How often each source has been read before a step; None where that is not known."""
    def recurrence(self, blocks_max: int) -> list[float]:
        """For each source, the share of neighbours in packs that come together again in the next epoch, from a few blocks."""
    def add_part(self, source: int, part: PartPlan) -> None:
        """Add the next part of a source that grows."""
    def fail_source(self, source: int, problem: BaseException) -> None:
        """Say that no more parts of a source will come; steps that need more raise the exception."""
    def wanted(self) -> list[int]:
        """How many rows of each source the furthest step that was begun needs."""
    def close(self) -> None:
        """End the threads."""

@final
class FeedBatch(Buffer):
    """One batch; a buffer of its tokens, row after row."""

    @staticmethod
    def from_bytes(packed: bytes) -> FeedBatch:
        """The batch that bytes are; BatchDamaged when they are none."""
    def to_bytes(self) -> bytes:
        """The batch as bytes for another process, hash included."""
    @property
    def step(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def item_bytes(self) -> int: ...
    @property
    def digest(self) -> int: ...
    @property
    def padding(self) -> int: ...
    def boundaries(self) -> bytes:
        """Where documents begin and end in all rows taken as one sequence (i32)."""
    def real_tokens(self) -> bytes:
        """1 for every token and 0 for padding, row after row (u8)."""
    def mask(self) -> bytes | None:
        """1 for tokens that count in the loss, row after row (u8); None when no source has a mask."""
    def origins(self, row: int) -> list[tuple[int, int, int, int, int, int]]:
        """What a row is made of: place in the row, tokens, source, sample, first token in it, epoch."""
    def samples(self) -> tuple[bytes, bytes]:
        """The sample of each stretch of each row, in order: its source (u32) and its row of the version (u64)."""
    def places(self) -> bytes:
        """Row, source, sample and epoch of each stretch of each row, in order (u64)."""

@final
class Tally:
    """What was handed out, counted in one call per batch."""

    def __new__(cls, sources: int) -> Self: ...
    def add(self, batch: FeedBatch) -> int:
        """Count a batch; how many there were before it."""
    def read(self) -> tuple[int, int, int, list[int]]:
        """Rows, tokens with padding, tokens of padding, and rows of each source."""
