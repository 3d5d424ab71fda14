"""Looking at what runs: the batch that a rank has in its hands, rebuilt and compared; and what a training loop shows of its own."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.data.feed.lane import Lane
from penstock.view.address import RunAddress
from penstock.view.lint.checked_batch import checked_batch_of
from penstock.view.model.tokens.batch import BatchView, SourceView
from penstock.view.model.tokens.documents import Document
from penstock.view.model.tokens.lanes import unequal
from penstock.view.model.tokens.vocabulary import Vocabulary
from penstock.view.opener import OpenedStream
from penstock.view.tap.reader import TapEntry, Tapped
from penstock.view.wire.batch_answers import RankTap, TapComparison, TokenBatchIdentity


def compare_taps(stream: OpenedStream, taps: list[Tapped]) -> TapComparison:
    """Every rank's batch, rebuilt here and compared by digest; and ranks of one lane that differ from each other."""
    ranks: list[RankTap] = []
    for tapped in taps:
        rebuilt = "" if tapped.step is None else stream.batch(tapped.step, tapped.lane).digest
        ranks.append({**tapped.to_json(), "rebuilt": rebuilt, "equal": rebuilt == tapped.digest})
    said = {tap.name: (str(tap.lane), tap.step, tap.digest) for tap in taps if tap.step is not None}
    return {"ranks": ranks, "unequal": unequal(said)}


def shown_view(shown: TapEntry, name: str, run: str, vocabulary: Vocabulary | None) -> BatchView:
    """What a training loop showed, as a batch; the names of its arrays are those that lint knows."""
    batch = checked_batch_of(shown.arrays, shown.number, None)
    arrays: dict[str, Any] = {"tokens": batch.tokens}
    segments = np.ones(batch.tokens.shape, dtype=np.int64) if batch.segments is None else batch.segments
    arrays["segments"] = np.where(batch.real, np.maximum(segments, 1), 0)
    if batch.positions is not None:
        arrays["positions"] = batch.positions
    arrays["loss_mask"] = (batch.real if batch.loss is None else batch.loss).astype(np.uint8)
    arrays |= {key: array for key, array in shown.arrays.items() if key not in (*arrays, "input_ids")}
    facts: TokenBatchIdentity = {
        "step": shown.facts.get("step") or 0,
        "lane": str(Lane()),
        "digest": "",
        "cuts": shown.facts.get("cuts", []),
    }
    sources = [SourceView(name, f"shown by {run}", vocabulary)]
    return BatchView(
        arrays, address=RunAddress(run), sources=sources, documents=_Segments(arrays), facts=facts
    )


class _Segments:
    """Rows whose documents are their segments; where they came from nobody said."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._segments = arrays["segments"]

    def of_row(self, row: int) -> list[Document]:
        """The segments of a row."""
        numbers = self._segments[row]
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        return [
            Document(row, start, stop, 0, int(numbers[start]), 0, 0)
            for start, stop in pairwise(edges)
            if stop > start and numbers[start]
        ]

    def origin(self, document: Document) -> None:
        """Not known."""
        return
