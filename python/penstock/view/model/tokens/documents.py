"""The documents of a batch's rows: which stretch of which sample stands where, as columns and as origins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.data.feed.batch import Batch, Origin, origin_of
from penstock.data.plan.plan import Plan

#: In the column ``sources``, for tokens that come from nowhere.
NO_SOURCE = 0xFFFF


@dataclass(frozen=True, slots=True)
class Document:
    """A stretch of a row that comes from one sample."""

    row: int
    #: Where it stands in the row.
    at: int
    stop: int
    #: Number of the source, row of its version, first token of the sample, and how often the source was read before.
    source: int
    sample: int
    start: int
    epoch: int


class Documents(Protocol):
    """Says what rows are made of."""

    def of_row(self, row: int) -> list[Document]:
        """The documents of a row, in order."""

    def origin(self, document: Document) -> Origin | None:
        """Where a document came from, by name; None where that is not known."""


class BatchDocuments:
    """The documents of a batch that a plan has made."""

    def __init__(self, batch: Batch, plan: Plan) -> None:
        self._rust_batch = batch.made
        self._plan = plan

    def of_row(self, row: int) -> list[Document]:
        """The documents of a row, in order."""
        return [
            Document(row, at, at + length, source, sample, start, epoch)
            for at, length, source, sample, start, epoch in self._rust_batch.origins(row)
        ]

    def origin(self, document: Document) -> Origin:
        """Where a document came from: version, shard and bytes; looked up for this one alone."""
        length = document.stop - document.at
        return origin_of(
            self._plan,
            (document.at, length, document.source, document.sample, document.start, document.epoch),
        )


def document_columns(documents: Sequence[Document]) -> dict[str, npt.NDArray[Any]]:
    """Documents as columns, for packing."""
    names = {
        "row": np.uint32,
        "at": np.uint32,
        "stop": np.uint32,
        "source": np.uint16,
        "sample": np.uint64,
        "start": np.uint64,
        "epoch": np.uint32,
    }
    return {
        f"document_{name}": np.array([getattr(document, name) for document in documents], dtype=dtype)
        for name, dtype in names.items()
    }


def source_column(
    documents: Sequence[Document], rows: tuple[int, int], tokens: tuple[int, int]
) -> npt.NDArray[np.uint16]:
    """The number of each token's source, in a window."""
    column = np.full((rows[1] - rows[0], tokens[1] - tokens[0]), NO_SOURCE, dtype=np.uint16)
    for document in documents:
        first, stop = max(document.at, tokens[0]) - tokens[0], min(document.stop, tokens[1]) - tokens[0]
        if first < stop:
            column[document.row - rows[0], first:stop] = document.source
    return column
