"""The rank lens of a page: what each lane of a step gets, and whether ranks that must agree do.

What lanes have and what stands twice is told by the model; here is added whether the lanes add up to the step, which rows hold
the same tokens, and, for ranks that share a lane, a batch that is built anew for each, so that a stage that is not deterministic
shows.
"""

from collections import defaultdict
from typing import Any

import numpy as np

from penstock._rust import digest
from penstock.data.feed.feed import batch_of
from penstock.data.feed.lane import Lane
from penstock.errors import UsageError
from penstock.view.address import VersionAddress, parse
from penstock.view.model import BatchView, RecordView
from penstock.view.model.tokens.lanes import LANES_MAX, rank_lens, unequal
from penstock.view.opener import OpenedStream
from penstock.view.wire.batch_answers import LaneLens, LensLane, LensRanks

ROWS_MAX = 4_096
REBUILT_MAX = 64
_NAMED_MAX = 200
_DOCUMENTS_MAX = 8


def look_at_lanes(stream: OpenedStream, *, lanes: int, equal: int) -> LaneLens:
    """All lanes of the address's step, dealt to so many; ``equal`` ranks share each."""
    step = stream.step
    whole = stream.batch(step, Lane())
    if lanes > LANES_MAX or whole.rows > ROWS_MAX:
        hint = f"at most {LANES_MAX} lanes and {ROWS_MAX:,} rows are looked at"
        raise UsageError(f"{lanes} lanes of {whole.rows:,} rows are too much for one page", hint=hint)
    if lanes * equal > REBUILT_MAX and equal > 1:
        raise UsageError(f"{lanes * equal} ranks are too many to build each", hint=f"at most {REBUILT_MAX}")
    lens = rank_lens(stream, step, lanes)
    contents = _contents(whole)
    same = _same_rows(contents, whole.rows // lanes)
    return {
        "step": step,
        "lanes": [_lane(lane, contents, number) for number, lane in enumerate(lens["lanes"])],
        "digest": whole.digest,
        "adds_up": lens["digest"] == whole.digest,
        "same_rows": same[:_NAMED_MAX],
        "same_rows_count": len(same),
        "repeats": [
            {
                "source": repeat["source"],
                "sample": repeat["sample"],
                "tokens": repeat["tokens"],
                "places": [_spot(place) for place in repeat["places"]],
            }
            for repeat in lens["repeats"]
        ],
        "repeats_count": lens["repeats_total"],
        "ranks": _ranks(stream, step, lanes, equal),
    }


def _lane(lane: dict[str, Any], contents: list[str], number: int) -> LensLane:
    """A lane of the model, its rows told by what tells them apart and by the first of their documents."""
    first = number * len(lane["rows"])
    return {
        "step": lane["step"],
        "lane": lane["lane"],
        "address": lane["address"],
        "digest": lane["digest"],
        "rows": [
            {
                "content": contents[first + at],
                "documents": [(source, sample) for source, sample, _, _ in row[:_DOCUMENTS_MAX]],
                "document_count": len(row),
            }
            for at, row in enumerate(lane["rows"])
        ],
    }


def _contents(view: BatchView | RecordView) -> list[str]:
    """What tells the rows of a whole step apart: a digest of their tokens, or where a record came from."""
    contents = []
    for row in range(view.rows):
        if isinstance(view, BatchView):
            tokens = np.ascontiguousarray(view.arrays["tokens"][row])
            contents.append(digest(tokens.tobytes())[3:19] if view.documents.of_row(row) else "")
        else:
            origins = view.origin(row)
            contents.append(f"{origins[0].version}/row/{origins[0].sample}" if origins else "")
    return contents


def _same_rows(contents: list[str], rows: int) -> list[list[tuple[int, int]]]:
    """Rows with the same content, each as lane and row of the lane."""
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, content in enumerate(contents):
        if content:
            places[content].append((at // rows, at % rows))
    return [group for group in places.values() if len(group) > 1]


def _spot(place: str) -> tuple[int, int]:
    """Lane and row of an address that the model gave."""
    address = parse(place)
    if isinstance(address, VersionAddress):
        raise AssertionError(f"{place} is not a place in a batch")
    lane, row = address.place.lane, address.place.row
    return (0 if lane is None else lane.number, row or 0)


def _ranks(stream: OpenedStream, step: int, lanes: int, equal: int) -> LensRanks:
    """Ranks that share a lane, each built anew, and those that differ."""
    if equal == 1:
        return {"count": 0, "unequal": []}
    built = {}
    for rank in range(lanes * equal):
        lane = Lane(rank // equal, of=lanes)
        built[str(rank)] = (str(lane), step, batch_of(stream.plan, step, lane).digest)
    return {"count": len(built), "unequal": unequal(built)}
