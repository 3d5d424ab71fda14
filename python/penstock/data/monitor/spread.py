"""How far a batch is spread over the shards of its sources, against a uniform draw.

A shuffle is judged by the shards that a batch comes from: as many as a uniform draw of as many samples would touch, if it is a
good one.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from penstock.data.feed.batch import Batch
    from penstock.data.plan.plan import Plan, Prepared


def shards_of(plan: "Plan", batch: "Batch") -> tuple[int, float]:
    """Distinct shards that a batch comes from, and how many a uniform draw of as many samples would touch."""
    sources, samples = batch.made.samples()
    of_source, rows = np.frombuffer(sources, dtype=np.uint32), np.frombuffer(samples, dtype=np.uint64)
    counts = [
        _shards(prepared, np.unique(rows[of_source == number]))
        for number, prepared in enumerate(plan.prepared)
    ]
    return sum(touched for touched, _ in counts), sum(uniform for _, uniform in counts)


def _shards(prepared: "Prepared", samples: Any) -> tuple[int, float]:
    """Distinct shards of some samples, and the expectation for as many distinct rows of the version."""
    sizes = np.array([shard.rows for shard in prepared.version.manifest.shards], dtype=np.float64)
    touched = len(np.unique(np.searchsorted(np.cumsum(sizes), samples, side="right")))
    return touched, uniform_shards(sizes, len(samples))


def uniform_shards(sizes: Any, count: int) -> float:
    """How many shards of these sizes ``count`` rows touch that are drawn without putting back, each equally likely."""
    total = float(np.sum(sizes))
    left = np.maximum(total - sizes - count, 0.0)
    # A shard is missed when all rows come from the others; nothing is missed when those are too few.
    missed = _log_factorial(total - sizes) + _log_factorial(np.array(total - count))
    missed = missed - _log_factorial(left) - _log_factorial(np.array(total))
    return float(np.sum(np.where(total - sizes < count, 1.0, -np.expm1(np.minimum(missed, 0.0)))))


def _log_factorial(numbers: Any) -> Any:
    """Stirling's series; right to four digits from 1 on, which is more than a mean over batches is."""
    safe = np.maximum(numbers, 1.0)
    series = (
        (safe + 0.5) * np.log(safe) - safe + 0.5 * np.log(2 * np.pi) + 1 / (12 * safe) - 1 / (360 * safe**3)
    )
    return np.where(numbers < 1.0, 0.0, series)
