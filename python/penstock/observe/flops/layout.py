"""What a step's batch is to arithmetic: rows, their length, where documents end, and what of them is padding."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.observe.flops.dimension import Shape
from penstock.observe.flops.pairs import DocumentLengths


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """The shape of a batch and the documents in it."""

    shape: Shape
    #: Boundaries by field, as in ``cu_seqlens``: over all rows taken as one sequence, from 0 to the last token.
    boundaries: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    #: For each field of boundaries, which of its documents are padding.
    padding_documents: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    #: Tokens of each row that are not padding; None where none is.
    real: npt.NDArray[np.int64] | None = None

    #: Sums over documents by field, all of them and those of padding, once somebody asked.
    _sums: dict[str, tuple[DocumentLengths, DocumentLengths | None]] = field(default_factory=dict, repr=False)

    def documents(self, name: str) -> tuple[DocumentLengths, DocumentLengths | None]:
        """The documents of a field, and those of them that are padding."""
        sums = self._sums.get(name)
        if sums is None:
            boundaries = self.boundaries[name]
            lengths = boundaries[1:] - boundaries[:-1]
            padding = self.padding_documents.get(name)
            without = None if padding is None else DocumentLengths.of(lengths[padding])
            sums = self._sums[name] = (DocumentLengths.of(lengths), without)
        return sums

    @property
    def tokens(self) -> int:
        """All tokens, or rows where rows have no length."""
        return self.shape.rows * (1 if self.shape.length is None else self.shape.length)

    @property
    def real_tokens(self) -> int:
        """Tokens that are not padding."""
        return self.tokens if self.real is None else int(self.real.sum())

    def real_within(self, plus: int) -> int:
        """Tokens that are not padding when rows lose or gain ``plus`` at their ends."""
        length = self.shape.length or 0
        if self.real is None:
            return self.shape.rows * (length + plus)
        if plus >= 0:
            return int(self.real.sum()) + plus * self.shape.rows
        return int(np.minimum(self.real, length + plus).sum())
