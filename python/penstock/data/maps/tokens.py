"""Random maps on tokens: called for whole samples when a batch is made, in place of what was read.

A row may hold a part of a sample; the map still sees the whole sample, as it is after truncation, and the row gets its part of
what the map gives. So a sample is the same in every row that has a part of it. Where a map may change lengths, every
sample was planned with the most that it may have, and what it leaves of that is padding.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from penstock import _rust
from penstock.data.feed.batch import Finisher, origin_of
from penstock.data.feed.token_batch import TokenBatch
from penstock.data.feed.undecodable import Fault, fault_of
from penstock.data.maps.rows import Maps, StageFailed, is_drawn

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan

#: Place in the row, tokens, source, sample, first token in it, epoch.
_Stretch = tuple[int, int, int, int, int, int]


class MappedBatch(TokenBatch):
    """A batch whose tokens were changed by random maps."""

    finished = True

    def __init__(
        self,
        rust_batch: _rust.FeedBatch,
        plan: "Plan",
        tokens: npt.NDArray[Any],
        left: "Left",
        *,
        digest: int,
    ) -> None:
        super().__init__(rust_batch, plan)
        tokens.flags.writeable = False
        self._array = tokens
        #: What maps left out of it.
        self.left = left
        self._digest = digest
        self.faults = tuple(left.faults)

    @property
    def digest(self) -> str:
        """A hash of positions, mapped tokens and boundaries; those of all lanes of a step add up to the step's."""
        return f"{self._digest:032x}"

    @property
    def padding(self) -> int:
        """How many tokens are padding, what maps have left of their samples' length included."""
        return self._rust_batch.padding + int((self.left.real == 0).sum())

    @cached_property
    def _real_tokens(self) -> npt.NDArray[np.uint8]:
        return super()._real_tokens * self.left.real

    @cached_property
    def _loss_mask(self) -> npt.NDArray[np.uint8]:
        return super()._loss_mask * self.left.real * self.left.heard


class Left:
    """What maps leave out of a batch: tokens that are padding after all, and samples that do not count."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.real = np.ones(shape, dtype=np.uint8)
        self.heard = np.ones(shape, dtype=np.uint8)
        self.faults: list[Fault] = []


class TokenMapper(Finisher):
    """Calls the random maps of a plan. Safe to use from any thread."""

    def __init__(self, plan: "Plan") -> None:
        self._plan = plan
        self._sources = [_MappedSource(plan, number) for number in range(len(plan.prepared))]

    def __call__(self, rust_batch: _rust.FeedBatch) -> MappedBatch:
        """The batch of a step."""
        stored = np.frombuffer(memoryview(rust_batch), dtype=self._plan.dtype)
        tokens = stored.reshape(rust_batch.rows, rust_batch.length).copy()
        left = Left((rust_batch.rows, rust_batch.length))
        rows = [rust_batch.origins(row) for row in range(rust_batch.rows)]
        mapped = self._outcomes([origin for origins in rows for origin in origins])
        for row, origins in enumerate(rows):
            for stretch in origins:
                outcome = mapped.get((stretch[2], stretch[3], stretch[5]))
                if outcome is not None:
                    self._put(row, stretch, outcome, tokens, left)
        digest = _rust.digest_rows(rust_batch.position, self._encoded(rust_batch, rows, tokens, left))
        return MappedBatch(rust_batch, self._plan, tokens, left, digest=digest)

    def map_s(self) -> float:
        """Seconds that all threads have spent in maps of the recipe."""
        return sum(source.maps.busy_s for source in self._sources)

    def _outcomes(
        self, stretches: list[_Stretch]
    ) -> "dict[tuple[int, int, int], _MappedTokens | StageFailed]":
        """What the maps make of the samples of a batch, each once, by source, sample and epoch."""
        outcomes: dict[tuple[int, int, int], _MappedTokens | StageFailed] = {}
        for number, source in enumerate(self._sources):
            if source.drawn:
                wanted = sorted({(stretch[3], stretch[5]) for stretch in stretches if stretch[2] == number})
                for (sample, epoch), outcome in zip(wanted, source.outcomes(wanted), strict=True):
                    outcomes[number, sample, epoch] = outcome
        return outcomes

    def _put(
        self,
        row: int,
        stretch: _Stretch,
        outcome: "_MappedTokens | StageFailed",
        tokens: npt.NDArray[Any],
        left: Left,
    ) -> None:
        at, length, number, _, start, _ = stretch
        source = self._sources[number]
        if isinstance(outcome, StageFailed):
            left.faults.append(self._fault(row, stretch, outcome))
            left.heard[row, at : at + length] = 0
            if source.length is not None:
                left.real[row, at : at + length] = 0
                tokens[row, at : at + length] = source.pad
            return
        part = outcome.tokens[start - outcome.first : start - outcome.first + length]
        tokens[row, at : at + len(part)] = part
        tokens[row, at + len(part) : at + length] = source.pad
        left.real[row, at + len(part) : at + length] = 0

    def _fault(self, row: int, stretch: _Stretch, failure: StageFailed) -> Fault:
        origin = origin_of(self._plan, stretch)
        return fault_of(row, origin, failure, self._plan.recipe.undecodable)

    def _encoded(
        self, rust_batch: _rust.FeedBatch, rows: list[list[_Stretch]], tokens: npt.NDArray[Any], left: Left
    ) -> list[bytes]:
        """Rows as the Rust side hashes them: lengths, tokens, mask; and, where maps left something out, what that is."""
        mask = rust_batch.mask()
        masks = None if mask is None else np.frombuffer(mask, dtype=np.uint8).reshape(tokens.shape)
        encoded = []
        for row, origins in enumerate(rows):
            parts = [
                np.array([origin[1] for origin in origins], dtype="<u4").tobytes(),
                tokens[row].tobytes(),
            ]
            if masks is not None and origins and self._sources[origins[0][2]].masked:
                parts.append(masks[row].tobytes())
            kept = left.real[row] * left.heard[row]
            if not kept.all():
                parts.append(kept.tobytes())
            encoded.append(b"".join(parts))
        return encoded


class _MappedTokens:
    """What the maps gave for a sample, and where in the stored sample it begins."""

    __slots__ = ("first", "tokens")

    def __init__(self, first: int, tokens: npt.NDArray[Any]) -> None:
        self.first = first
        self.tokens = tokens


class _MappedSource:
    """The samples of one source, as its random maps give them."""

    def __init__(self, plan: "Plan", number: int) -> None:
        prepared = plan.prepared[number]
        stages = plan.recipe.stages_of(prepared.source)
        self.drawn = is_drawn(stages)
        #: What every sample was planned with, where maps may change lengths.
        self.length = prepared.drawn_length
        self.pad = prepared.pad
        #: Whether stored samples say which of their tokens count in the loss.
        self.masked = prepared.loss is not None
        self._tokens = prepared.tokens
        self._cut = prepared.packing.truncate
        self._most = np.iinfo(plan.dtype).max
        self.maps = Maps(plan.recipe, prepared.source.alias, prepared.version.digest)

    def outcomes(self, samples: list[tuple[int, int]]) -> list[_MappedTokens | StageFailed]:
        """What the maps make of samples, given as row and epoch."""
        if not samples:
            return []
        stored = self._tokens.take([sample for sample, _ in samples], parallel=False)
        return [
            self._mapped(next(iter(row.values())), *sample)
            for row, sample in zip(stored, samples, strict=True)
        ]

    def _mapped(self, stored: npt.NDArray[Any], sample: int, epoch: int) -> _MappedTokens | StageFailed:
        whole, first = stored, 0
        if self._cut is not None and len(stored) > self._cut.length:
            first = len(stored) - self._cut.length if self._cut.keep == "end" else 0
            whole = stored[first : first + self._cut.length]
        try:
            # A copy, since the function may write into it.
            tokens = self.maps.tokens(whole.copy(), epoch=epoch, sample=sample)
            if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) <= self._most:
                reason = (
                    f"it gave {int(tokens.min())} to {int(tokens.max())}, but a token is 0 to {self._most}"
                )
                raise StageFailed("the random maps", ValueError(reason))
        except StageFailed as failed:
            return failed
        # Where lengths may change, rows were planned from the first token on, whatever was cut off.
        return _MappedTokens(first if self.length is None else 0, tokens)
