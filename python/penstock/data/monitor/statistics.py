"""Numbers of a feed: how much came, how long it took, and how well it is shuffled."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.data.feed.share import Sharing
from penstock.data.feed.undecodable import Undecodable
from penstock.data.monitor.spread import shards_of

if TYPE_CHECKING:
    from penstock.data.feed.batch import Batch
    from penstock.data.plan.plan import Plan

#: The first batches and then every so manieth are looked at closely, which costs more than counting.
LOOKED_FIRST, LOOKED_EVERY = 8, 1024
#: Blocks that are packed to say how often packs recur.
RECURRENCE_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """How long a stage takes: what half and 99 % of all batches do not pass."""

    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """What a feed has done since it was opened."""

    batches: int
    rows: int
    tokens: int
    bytes: int
    #: Share of tokens that are padding.
    padding_share: float
    #: Batches that are ready and wait to be asked for.
    ready: int
    wait_p50_s: float
    wait_p99_s: float
    #: Seconds of all threads: finding what stands where, reading and checking, hashing.
    plan_s: float
    read_s: float
    digest_s: float
    #: Distinct shards per batch, and how many a uniform draw of as many samples would touch; means over some batches.
    shards_per_batch: float
    shards_uniform: float
    #: Rows delivered per source.
    rows_by_source: dict[str, int]
    #: How often each source has been read since step 0, with the share of an epoch that is not over; None while its length
    #: is not known.
    epochs_by_source: dict[str, float | None]
    #: Rows that were masked because their samples cannot be decoded.
    undecodable: Undecodable
    #: Of samples next to each other in a pack, the share that shares a pack in the next epoch again; None unless asked for.
    pack_recurrence: dict[str, float] | None = None
    #: By stage: ``wait`` (of the consumer), ``plan``, ``read``, ``digest``, ``finish`` (in Python), ``share`` (made by another process).
    stages: dict[str, Spread] = field(default_factory=dict)
    #: Waits that were longer than the limit, and the seconds of those that are over.
    stalls: int = 0
    stalled_s: float = 0.0
    #: What this process is for others that read the same lane; None when batches are not shared.
    sharing: Sharing | None = None
    #: What this process has asked of stores and caches, all feeds together.
    store: dict[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The statistics as plain values."""
        return asdict(self)


class Counts:
    """What is counted of every batch that is handed out."""

    def __init__(self, plan: "Plan") -> None:
        self._plan = plan
        self._tally = _rust.Tally(len(plan.prepared))
        #: Of batches that Python finished: bytes of their values, and padding beyond what was planned.
        self._finished_bytes = self._finished_padding = 0
        self._looked = 0
        self._shards = self._uniform = 0.0

    def add(self, batch: "Batch") -> None:
        """Count a batch."""
        before = self._tally.add(batch.made)
        if before < LOOKED_FIRST or not before % LOOKED_EVERY:
            self._look(batch)
        if batch.finished:
            self._finished_bytes += batch.size_bytes
            self._finished_padding += batch.padding - batch.made.padding

    @property
    def rows(self) -> int:
        """Rows handed out."""
        return self._tally.read()[0]

    @property
    def padding(self) -> int:
        """Tokens (rows, where rows are records) that are padding."""
        return self._tally.read()[2] + self._finished_padding

    @property
    def tokens(self) -> int:
        """Tokens that are not."""
        return 0 if self._plan.records else self._tally.read()[1] - self.padding

    @property
    def bytes(self) -> int:
        """Bytes of all values."""
        return self._finished_bytes or self._tally.read()[1] * self._plan.dtype.itemsize

    @property
    def by_source(self) -> dict[str, int]:
        """Rows of each source."""
        aliases = [prepared.source.alias for prepared in self._plan.prepared]
        return dict(zip(aliases, self._tally.read()[3], strict=True))

    @property
    def padding_share(self) -> float:
        """Share of tokens (of rows, where rows are records) that are padding."""
        total = self.rows if self._plan.records else self.tokens + self.padding
        return self.padding / total if total else 0.0

    @property
    def shards(self) -> tuple[float, float]:
        """Distinct shards per batch, and how many a uniform draw would touch."""
        looked = max(1, self._looked)
        return self._shards / looked, self._uniform / looked

    def _look(self, batch: "Batch") -> None:
        touched, uniform = shards_of(self._plan, batch)
        self._shards += touched
        self._uniform += uniform
        self._looked += 1
