"""What every batch is: the values of a step for one lane, and the way back to the bytes they came from; who finishes one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.data.monitor.spread import shards_of
from penstock.errors import RecipeInvalid

if TYPE_CHECKING:
    from penstock.data.feed.share import Sharing
    from penstock.data.feed.undecodable import Fault
    from penstock.data.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a stretch of a row came from."""

    #: What the recipe calls the source, and the version it names.
    source: str
    version: str
    #: Row of the version, its shard, and the bytes it has there.
    sample: int
    shard: str
    byte_range: tuple[int, int] | None
    #: Tokens of the sample, and where they stand in the row.
    token_span: tuple[int, int]
    row_span: tuple[int, int]
    epoch: int

    def to_json(self) -> dict[str, Any]:
        """The origin as plain values."""
        return asdict(self)


class Batch(Mapping[str, Any], ABC):
    """What a lane gets for a step, by field: of tokens (``TokenBatch``) or of records (``RecordBatch``).

    Its memory is reused only when nobody refers to it any more.
    """

    #: Whether Python had a hand in it, so that it is not just what Rust made.
    finished = False
    #: Rows whose samples could not be decoded.
    faults: "tuple[Fault, ...]" = ()

    def __init__(self, rust_batch: _rust.FeedBatch, plan: "Plan") -> None:
        self._rust_batch = rust_batch
        self._plan = plan

    @property
    def made(self) -> _rust.FeedBatch:
        """The batch as Rust made it."""
        return self._rust_batch

    @property
    def step(self) -> int:
        """The step of the recipe."""
        return self._rust_batch.step

    @property
    @abstractmethod
    def digest(self) -> str:
        """A hash of positions and values; those of all lanes of a step add up to the step's (see ``join``)."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Bytes of its values."""

    @property
    def padding(self) -> int:
        """How many tokens (rows, where rows are records) are padding."""
        return self._rust_batch.padding

    @property
    def shards(self) -> tuple[int, float]:
        """Distinct shards that it comes from, and how many a uniform draw of as many samples would touch."""
        return shards_of(self._plan, self)

    def origin(self, row: int) -> list[Origin]:
        """What a row is made of, in order: version, shard, sample, bytes and tokens."""
        row = check_row(row, self._rust_batch.rows)
        return [origin_of(self._plan, stretch) for stretch in self._rust_batch.origins(row)]


class Finisher(ABC):
    """Makes the batch of a step from what Rust planned of it, where Python has a hand in it. Safe to use from any thread."""

    @abstractmethod
    def __call__(self, rust_batch: _rust.FeedBatch) -> Batch:
        """The batch of a step."""

    def map_s(self) -> float:
        """Seconds that all threads have spent in maps of the recipe."""
        return 0.0

    def sharing(self) -> "Sharing | None":
        """What this process is for others that finish the same steps; None when each finishes its own."""
        return None

    def close(self) -> None:  # noqa: B027 - most hold nothing that has to be given back
        """Finish no more steps."""


def check_row(row: int, rows: int) -> int:
    """The number of a row, where negative ones count from the end."""
    if not -rows <= row < rows:
        raise RecipeInvalid(
            field="row", reason=f"must be between {-rows} and {rows - 1} in a batch of {rows} rows, got {row}"
        )
    return row % rows


def origin_of(plan: "Plan", stretch: tuple[int, int, int, int, int, int]) -> Origin:
    """A stretch of a row as Rust tells it, with the names that people know."""
    at, length, source, sample, start, epoch = stretch
    prepared = plan.prepared[source]
    shard, place = prepared.version.shard_of(sample)
    return Origin(
        source=prepared.source.alias,
        version=prepared.version.address,
        sample=sample,
        shard=shard.name,
        byte_range=prepared.version.byte_range(shard, place),
        token_span=(start, start + length),
        row_span=(at, at + length),
        epoch=epoch,
    )


def join(digests: list[str]) -> str:
    """The digest of a whole step from those of its lanes."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 128):032x}"
