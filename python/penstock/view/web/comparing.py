"""Two batches of tokens compared: equal or not, where they first differ, and which samples only one of them has."""

from typing import Any

import numpy as np

from penstock.view.model import BatchView

_ROWS_MAX = 4_096
_SAMPLES_MAX = 100


def compare_batches(a: BatchView, b: BatchView) -> dict[str, Any]:
    """Row by row and token by token, as far as both have any; what only one has counts as different."""
    rows, length = min(a.rows, b.rows), min(a.length, b.length)
    left, right = (np.asarray(view.arrays["tokens"])[:rows, :length] for view in (a, b))
    unlike = left.astype(np.int64) != right.astype(np.int64)
    masks = [np.asarray(view.arrays["loss_mask"])[:rows, :length] for view in (a, b)]
    per_row = unlike.sum(axis=1)
    places = np.argwhere(unlike)
    mask_places = np.argwhere(masks[0] != masks[1])
    samples = [_samples(view) for view in (a, b)]
    only = [sorted(samples[0] - samples[1]), sorted(samples[1] - samples[0])]
    return {
        "kind": "tokens",
        "equal": a.digest == b.digest and (a.rows, a.length) == (b.rows, b.length),
        "digests": [a.digest, b.digest],
        "shapes": [[a.rows, a.length], [b.rows, b.length]],
        "compared": [rows, length],
        "first": places[0].tolist() if len(places) else None,
        "differing": len(places),
        "first_mask": mask_places[0].tolist() if len(mask_places) else None,
        "masks_differing": len(mask_places),
        "rows": per_row[:_ROWS_MAX].tolist(),
        "rows_left_out": max(0, rows - _ROWS_MAX),
        "only": [[list(each) for each in side[:_SAMPLES_MAX]] for side in only],
        "only_counts": [len(side) for side in only],
        "both_count": len(samples[0] & samples[1]),
    }


def _samples(view: BatchView) -> set[tuple[str, int]]:
    """Samples by version and row, whatever part of them a batch has."""
    return {
        (view.sources[each.source].version, each.sample)
        for row in range(view.rows)
        for each in view.documents.of_row(row)
    }
