"""The rank lens: what each lane of a step gets, whether two lanes get the same, and whether those that must agree do.

Every lane is built on its own, as its rank would build it. The digests of the lanes have to add up to the step's; the same
sample in two rows is named; and ranks that share a lane are built again each, so that a stage that is not deterministic
shows.
"""

from collections import defaultdict
from typing import Any

import numpy as np

from penstock._rust import digest
from penstock.data.batch import join
from penstock.data.feed import batch_of
from penstock.data.lane import Lane
from penstock.errors import UsageError
from penstock.view.model import BatchView, RecordView
from penstock.view.opening import OpenedStream

LANES_MAX = 256
ROWS_MAX = 4_096
REBUILT_MAX = 64
_NAMED_MAX = 200
_DOCUMENTS_MAX = 8


def look_at_lanes(stream: OpenedStream, *, lanes: int, equal: int) -> dict[str, Any]:
    """All lanes of the address's step, dealt to so many; ``equal`` ranks share each."""
    step = stream.step
    whole = stream.batch(step, Lane())
    if lanes > LANES_MAX or whole.rows > ROWS_MAX:
        hint = f"at most {LANES_MAX} lanes and {ROWS_MAX:,} rows are looked at"
        raise UsageError(f"{lanes} lanes of {whole.rows:,} rows are too much for one page", hint=hint)
    if lanes * equal > REBUILT_MAX and equal > 1:
        raise UsageError(f"{lanes * equal} ranks are too many to build each", hint=f"at most {REBUILT_MAX}")
    views = [stream.batch(step, Lane(number, of=lanes)) for number in range(lanes)]
    rows = [_rows(view) for view in views]
    return {
        "step": step,
        "lanes": [
            {"lane": str(Lane(n, of=lanes)), "digest": view.digest, "rows": rows[n]}
            for n, view in enumerate(views)
        ],
        "digest": whole.digest,
        "adds_up": join([view.digest for view in views]) == whole.digest,
        **_repeats(rows),
        "ranks": _ranks(stream, step, views, lanes, equal),
    }


def _rows(view: BatchView | RecordView) -> list[dict[str, Any]]:
    found = []
    for row in range(view.rows):
        if isinstance(view, BatchView):
            documents = view.documents.of_row(row)
            pieces = [[each.source, each.sample, each.start, each.epoch] for each in documents]
            tokens = np.ascontiguousarray(view.arrays["tokens"][row])
            content = digest(tokens.tobytes()) if documents else ""
        else:
            origins = view.origin(row)
            pieces = [[0, each.sample, each.token_span[0], each.epoch] for each in origins]
            content = f"{origins[0].version} row {origins[0].sample}" if origins else ""
        found.append(
            {
                "content": content[:19],
                "documents": pieces[:_DOCUMENTS_MAX],
                "document_count": len(pieces),
                "key": [tuple(piece) for piece in pieces],
            }
        )
    return found


def _repeats(lanes: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Rows with the same content, and stretches of samples that stand in several rows."""
    contents: dict[str, list[tuple[int, int]]] = defaultdict(list)
    pieces: dict[tuple[int, ...], set[tuple[int, int]]] = defaultdict(set)
    for lane, rows in enumerate(lanes):
        for number, row in enumerate(rows):
            if row["content"]:
                contents[row["content"]].append((lane, number))
            for piece in row.pop("key"):
                pieces[piece].add((lane, number))
    same = [places for places in contents.values() if len(places) > 1]
    shared = [(piece, sorted(places)) for piece, places in pieces.items() if len(places) > 1]
    return {
        "same_rows": same[:_NAMED_MAX],
        "same_rows_count": len(same),
        "shared_samples": [
            {"sample": list(piece), "places": places} for piece, places in shared[:_NAMED_MAX]
        ],
        "shared_samples_count": len(shared),
    }


def _ranks(
    stream: OpenedStream, step: int, views: list[BatchView | RecordView], lanes: int, equal: int
) -> list[dict[str, Any]]:
    """Ranks that share a lane, each built anew; one that differs has a stage that is not deterministic."""
    if equal == 1:
        return []
    found = []
    for rank in range(lanes * equal):
        lane = rank // equal
        again = batch_of(stream.plan, step, Lane(lane, of=lanes)).digest
        found.append({"rank": rank, "lane": lane, "digest": again, "equal": again == views[lane].digest})
    return found
