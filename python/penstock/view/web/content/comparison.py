"""Two batches compared: what the model says, and which samples only one of them has."""

from typing import cast

from penstock.view.model import BatchView, RecordView
from penstock.view.model.difference import compare_batches
from penstock.view.wire.batch_answers import BatchDifference, FirstDifference

_SAMPLES_MAX = 100


def compare_views(a: BatchView | RecordView, b: BatchView | RecordView) -> BatchDifference:
    """Equal or not, where they first differ, how much does, and whose samples."""
    comparison = compare_batches(a, b)
    samples = [_samples(view) for view in (a, b)]
    only = [sorted(samples[0] - samples[1]), sorted(samples[1] - samples[0])]
    first = comparison["first"]
    place = None if first is None else {name: first[name] for name in first if name != "sides"}
    return {
        "kind": a.kind,
        "equal": comparison["equal"],
        "digests": comparison["digests"],
        "summary": comparison["summary"],
        "first": cast(FirstDifference | None, place),
        "only": [side[:_SAMPLES_MAX] for side in only],
        "only_counts": [len(side) for side in only],
        "both_count": len(samples[0] & samples[1]),
    }


def _samples(view: BatchView | RecordView) -> set[tuple[str, int]]:
    """Samples by version and row, whatever part of them a batch has."""
    if isinstance(view, RecordView):
        return {(origin.version, origin.sample) for row in range(view.rows) for origin in view.origin(row)}
    return {
        (view.sources[document.source].version, document.sample)
        for row in range(view.rows)
        for document in view.documents.of_row(row)
    }
