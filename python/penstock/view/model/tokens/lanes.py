"""The rank lens: which rows of a step each lane has, whether anything is there twice, and whether lanes that must be equal are.

Lanes partition a step, so two of them never share a row; what they may share is a sample, when a source is read again or when
somebody's own loader is at fault. Ranks of one lane (tensor or context parallel) must have equal bits.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.data.feed.batch import join
from penstock.data.feed.feed import batch_of
from penstock.data.feed.lane import Lane
from penstock.errors import UsageError
from penstock.view.model.tokens.repeats import Stretch, repeats_of
from penstock.view.wire.batch_answers import UnequalRanks

if TYPE_CHECKING:
    from penstock.view.opener import OpenedStream

#: Lanes, and documents, that one picture has.
LANES_MAX, DOCUMENTS_MAX = 256, 200_000
_REPEATS_SHOWN = 100


def rank_lens(stream: "OpenedStream", step: int, of: int, *, steps: int = 1) -> dict[str, Any]:
    """Every lane of a step (and of some after it): address, digest, rows and samples; and what is there twice."""
    if not (1 <= of <= LANES_MAX and 1 <= steps <= LANES_MAX):
        raise UsageError(f"{of} lanes of {steps} steps cannot be shown", hint=f"choose 1 to {LANES_MAX}")
    lanes: list[dict[str, Any]] = []
    stretches: list[Stretch] = []
    for at in range(step, step + steps):
        for number in range(of):
            lane = _lane(stream, at, Lane(number, of=of))
            lanes.append(lane)
            stretches += _stretches(lane["address"], lane["rows"])
        if len(stretches) > DOCUMENTS_MAX:
            raise UsageError(
                f"there are more than {DOCUMENTS_MAX:,} documents in step {at}, too many for one picture"
            )
    repeats = repeats_of(stretches)
    return {
        "step": step,
        "steps": steps,
        "of": of,
        "digest": join([lane["digest"] for lane in lanes[:of]]),
        "lanes": lanes,
        "repeats": [repeat.to_json() for repeat in repeats[:_REPEATS_SHOWN]],
        "repeats_total": len(repeats),
        "row_columns": ["source", "sample", "first token", "tokens"],
    }


def _lane(stream: "OpenedStream", step: int, lane: Lane) -> dict[str, Any]:
    """What one lane has."""
    aliases = [prepared.source.alias for prepared in stream.plan.prepared]
    batch = batch_of(stream.plan, step, lane)
    rows = [
        [
            [aliases[source], sample, start, length]
            for _, length, source, sample, start, _ in batch.made.origins(row)
        ]
        for row in range(batch.made.rows)
    ]
    address = str(stream.at(step, lane))
    return {"step": step, "lane": str(lane), "address": address, "digest": batch.digest, "rows": rows}


def unequal(digests: Mapping[str, tuple[str, int, str]]) -> list[UnequalRanks]:
    """Ranks that read the same lane at the same step and yet have other bits; given as rank → lane, step, digest."""
    groups: dict[tuple[str, int], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for rank, (lane, step, digest) in digests.items():
        groups[lane, step][digest].append(rank)
    return [
        {"lane": lane, "step": step, "ranks": dict(by_digest)}
        for (lane, step), by_digest in sorted(groups.items())
        if len(by_digest) > 1
    ]


def _stretches(address: str, rows: list[list[list[Any]]]) -> list[Stretch]:
    return [
        Stretch(source, sample, start, start + length, f"{address},row={row}")
        for row, documents in enumerate(rows)
        for source, sample, start, length in documents
    ]
