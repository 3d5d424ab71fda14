"""What a lane gets for a step: tokens, boundaries, and the way back to the bytes they came from."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from penstock import _rust
from penstock.data.monitor.spread import shards_of
from penstock.errors import RecipeInvalid

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan

#: Made from the boundaries when asked for; the first two are there already.
FIELDS = ("tokens", "cu_seqlens", "segments", "positions", "loss_mask")


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


class Batch(Mapping[str, npt.NDArray[Any]]):
    """A mapping of numpy arrays. Its memory is reused only when nobody refers to it any more."""

    def __init__(self, made: _rust.FeedBatch, plan: "Plan") -> None:
        self._made = made
        self._plan = plan
        self._array: npt.NDArray[Any] | None = None

    #: Whether Python had a hand in it, so that it is not just what Rust made.
    finished = False

    @property
    def _tokens(self) -> npt.NDArray[Any]:
        # Not a cached property: those take a lock, which costs as much as making the array.
        array = self._array
        if array is None:
            made = self._made
            array = np.frombuffer(memoryview(made), self._plan.dtype)
            array.shape = (made.rows, made.length)
            self._array = array
        return array

    @property
    def made(self) -> _rust.FeedBatch:
        """The batch as Rust made it."""
        return self._made

    @property
    def size_bytes(self) -> int:
        """Bytes of its values."""
        return self._tokens.nbytes

    @property
    def step(self) -> int:
        """The step of the recipe."""
        return self._made.step

    @property
    def digest(self) -> str:
        """A hash of positions, tokens and boundaries; those of all lanes of a step add up to the step's (see ``join``)."""
        return f"{self._made.digest:032x}"

    @property
    def padding(self) -> int:
        """How many tokens are padding."""
        return self._made.padding

    @cached_property
    def cu_seqlens(self) -> npt.NDArray[np.int32]:
        """Where documents begin and end in all rows taken as one sequence; padding counts as a document of its own."""
        return np.frombuffer(self._made.boundaries(), dtype=np.int32)

    def __getitem__(self, field: str) -> npt.NDArray[Any]:
        if field == "tokens":
            return self._tokens
        if field == "cu_seqlens":
            return self.cu_seqlens
        if field in FIELDS:
            built: npt.NDArray[Any] = getattr(self, f"_{field}")
            return built
        raise KeyError(field)

    def __iter__(self) -> Iterator[str]:
        return iter(FIELDS)

    def __len__(self) -> int:
        return len(FIELDS)

    def __repr__(self) -> str:
        rows, length = self._tokens.shape
        return f"<Batch step {self.step}, {rows} x {length} {self._tokens.dtype}, {self.digest[:12]}>"

    @cached_property
    def _segments(self) -> npt.NDArray[np.int32]:
        """The number of its document within the row, from 1; 0 for padding."""
        ends = self.cu_seqlens
        rows, length = self._tokens.shape
        flat = np.repeat(np.arange(1, len(ends), dtype=np.int32), np.diff(ends)).reshape(rows, length)
        within = flat - flat[:, :1] + 1
        return np.where(self._real_tokens.astype(bool), within, 0).astype(np.int32)

    @cached_property
    def _positions(self) -> npt.NDArray[np.int32]:
        """The place of each token within its document's part in this row."""
        ends = self.cu_seqlens
        starts = np.repeat(ends[:-1], np.diff(ends))
        flat = np.arange(self._tokens.size, dtype=np.int32) - starts
        return flat.reshape(self._tokens.shape).astype(np.int32)

    @cached_property
    def _loss_mask(self) -> npt.NDArray[np.uint8]:
        """1 for tokens that count in the loss, 0 for others, for padding and for samples that the skips mask."""
        masked, stored = self._plan.skips.masked, self._made.mask()
        counts = self._real_tokens
        if stored is not None:
            counts = np.frombuffer(stored, dtype=np.uint8).reshape(self._tokens.shape)
        if not masked:
            return counts
        mask = counts.copy()
        aliases = [prepared.source.alias for prepared in self._plan.prepared]
        for row in range(mask.shape[0]):
            for at, length, source, sample, _, _ in self._made.origins(row):
                if (aliases[source], sample) in masked:
                    mask[row, at : at + length] = 0
        return mask

    @cached_property
    def _real_tokens(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._made.real_tokens(), dtype=np.uint8).reshape(self._tokens.shape)

    @property
    def shards(self) -> tuple[int, float]:
        """Distinct shards that it comes from, and how many a uniform draw of as many samples would touch."""
        return shards_of(self._plan, self)

    def origin(self, row: int) -> list[Origin]:
        """What a row is made of, in order: version, shard, sample, bytes and tokens."""
        return [origin_of(self._plan, each) for each in self._made.origins(check_row(row, self._made.rows))]


def check_row(row: int, rows: int) -> int:
    """The number of a row, where negative ones count from the end."""
    if not -rows <= row < rows:
        raise RecipeInvalid(field="row", reason=f"there is no row {row} in a batch of {rows}")
    return row % rows


def origin_of(plan: "Plan", each: tuple[int, int, int, int, int, int]) -> Origin:
    """A stretch of a row as Rust tells it, with the names that people know."""
    at, length, source, sample, start, epoch = each
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
    return f"{sum(int(each, 16) for each in digests) % (1 << 128):032x}"
