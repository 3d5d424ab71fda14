"""A batch of tokens: rows of one length, the boundaries of documents in them, and what follows from those."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.data.feed.batch import Batch

#: Made from the boundaries when asked for; the first two are there already.
FIELDS = ("tokens", "cu_seqlens", "segments", "positions", "loss_mask")


class TokenBatch(Batch):
    """A mapping of numpy arrays: tokens and boundaries are there; the rest is built from them when asked for."""

    #: The tokens, once somebody has asked for them.
    _array: npt.NDArray[Any] | None = None

    @property
    def _tokens(self) -> npt.NDArray[Any]:
        # Not a cached property: those take a lock, which costs as much as making the array.
        array = self._array
        if array is None:
            rust_batch = self._rust_batch
            array = np.frombuffer(memoryview(rust_batch), self._plan.dtype)
            array.shape = (rust_batch.rows, rust_batch.length)
            self._array = array
        return array

    @property
    def size_bytes(self) -> int:
        """Bytes of its values."""
        return self._tokens.nbytes

    @property
    def digest(self) -> str:
        """A hash of positions, tokens and boundaries; those of all lanes of a step add up to the step's (see ``join``)."""
        return f"{self._rust_batch.digest:032x}"

    @cached_property
    def cu_seqlens(self) -> npt.NDArray[np.int32]:
        """Where documents begin and end in all rows taken as one sequence; padding counts as a document of its own."""
        return np.frombuffer(self._rust_batch.boundaries(), dtype=np.int32)

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
        return f"<TokenBatch step {self.step}, {rows} x {length} {self._tokens.dtype}, {self.digest[:12]}>"

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
        masked, stored = self._plan.skips.masked, self._rust_batch.mask()
        counts = self._real_tokens
        if stored is not None:
            counts = np.frombuffer(stored, dtype=np.uint8).reshape(self._tokens.shape)
        if not masked:
            return counts
        mask = counts.copy()
        aliases = [prepared.source.alias for prepared in self._plan.prepared]
        for row in range(mask.shape[0]):
            for at, length, source, sample, _, _ in self._rust_batch.origins(row):
                if (aliases[source], sample) in masked:
                    mask[row, at : at + length] = 0
        return mask

    @property
    def real_tokens(self) -> npt.NDArray[np.uint8]:
        """1 for tokens, 0 for padding."""
        return self._real_tokens

    @cached_property
    def _real_tokens(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._rust_batch.real_tokens(), dtype=np.uint8).reshape(self._tokens.shape)
