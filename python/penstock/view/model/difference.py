"""What differs between two batches, two streams or two versions, beginning with the first place that does."""

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.feed.feed import batch_of
from penstock.errors import FeedClosed, UsageError
from penstock.view.model.fields import plain
from penstock.view.model.records import RecordView
from penstock.view.model.rows import VersionView
from penstock.view.model.tokens.batch import BatchView

if TYPE_CHECKING:
    from penstock.view.opener import OpenedStream

#: Steps of streams, and rows of versions, that are compared before the search is given up.
STEPS_MAX, ROWS_MAX = 200, 20_000
_PAGE = 500


def compare_batches(one: BatchView | RecordView, other: BatchView | RecordView) -> dict[str, Any]:
    """Two batches: equal or not, the first differing row and token with both sides, and how much differs."""
    result: dict[str, Any] = {
        "kind": "batches",
        "sides": [str(one.address), str(other.address)],
        "digests": [one.digest, other.digest],
        "equal": one.digest == other.digest and one.rows == other.rows,
        "first": None,
        "summary": {"rows": [one.rows, other.rows]},
    }
    if isinstance(one, RecordView) or isinstance(other, RecordView):
        if type(one) is not type(other):
            raise UsageError("a batch of records and a batch of tokens have nothing that can be compared")
        assert isinstance(one, RecordView)
        assert isinstance(other, RecordView)
        return result | _records(one, other)
    return result | _tokens(one, other)


def compare_streams(
    one: "OpenedStream", other: "OpenedStream", *, steps_max: int = STEPS_MAX
) -> dict[str, Any]:
    """Two recipes: which of their fields differ, and the first step whose batch does; says how many were compared."""
    documents = [stream.plan.recipe.document(stream.plan.versions) for stream in (one, other)]
    fields = sorted(
        name for name in documents[0] | documents[1] if documents[0].get(name) != documents[1].get(name)
    )
    first = max(one.step, other.step)
    compared = 0
    differing: int | None = None
    for step in range(first, first + steps_max):
        try:
            digests = [batch_of(stream.plan, step, stream.lane).digest for stream in (one, other)]
        except FeedClosed:
            break
        compared += 1
        if digests[0] != digests[1]:
            differing = step
            break
    return {
        "kind": "streams",
        "sides": [str(one.address), str(other.address)],
        "fields": {name: [plain(document.get(name)) for document in documents] for name in fields},
        "equal": not fields and differing is None,
        "compared_steps": compared,
        "first_step": differing,
        "batch": None if differing is None else compare_batches(one.batch(differing), other.batch(differing)),
    }


def compare_versions(one: VersionView, other: VersionView, *, rows_max: int = ROWS_MAX) -> dict[str, Any]:
    """Two versions: schema, rows, and the first row and field that differ; says how many rows were compared."""
    schemas = [{field.name: field.kind for field in view.version.schema} for view in (one, other)]
    count = min(one.rows, other.rows, rows_max)
    first: dict[str, Any] | None = None
    compared = 0
    same = one.version.digest == other.version.digest
    for start in range(0, 0 if same else count, _PAGE):
        numbers = range(start, min(count, start + _PAGE))
        pairs = zip(numbers, one.version.take(numbers), other.version.take(numbers), strict=True)
        first = next((difference for n, a, b in pairs if (difference := _row(n, a, b)) is not None), None)
        compared += len(numbers)
        if first is not None:
            break
    return {
        "kind": "versions",
        "sides": [str(one.address), str(other.address)],
        "equal": same,
        "rows": [one.rows, other.rows],
        "schema": {
            name: [schema.get(name) for schema in schemas]
            for name in sorted(schemas[0] | schemas[1])
            if schemas[0].get(name) != schemas[1].get(name)
        },
        "compared_rows": compared,
        "first": first,
    }


def _tokens(one: BatchView, other: BatchView) -> dict[str, Any]:
    a, b = (np.asarray(view.arrays["tokens"]).astype(np.int64) for view in (one, other))
    rows, length = min(one.rows, other.rows), min(one.length, other.length)
    differing = a[:rows, :length] != b[:rows, :length]
    masks = [np.asarray(view.arrays["loss_mask"])[:rows, :length] for view in (one, other)]
    summary = {
        "rows": [one.rows, other.rows],
        "length": [one.length, other.length],
        "rows_differing": int(differing.any(axis=1).sum()) + abs(one.rows - other.rows),
        "tokens_differing": int(differing.sum()),
        "masks_differing": int((masks[0] != masks[1]).sum()),
    }
    anything = differing | (masks[0] != masks[1])
    if not anything.any():
        return {"summary": summary, "equal": one.digest == other.digest}
    row, token = (int(index) for index in np.argwhere(anything)[0])
    sides = [view.token(row, token) for view in (one, other)]
    data = [bytes.fromhex(side["bytes"] or "") for side in sides]
    byte = next((at for at, (x, y) in enumerate(zip(*data, strict=False)) if x != y), min(map(len, data)))
    return {
        "summary": summary,
        "equal": False,
        "first": {"row": row, "token": token, "byte": byte, "sides": sides},
    }


def _records(one: RecordView, other: RecordView) -> dict[str, Any]:
    rows = min(one.rows, other.rows)
    names = sorted({*one.batch, *other.batch})
    for row in range(rows):
        for name in names:
            values = [view.batch[name][row] if name in view.batch else None for view in (one, other)]
            if not _same(*values):
                return {"first": {"row": row, "field": name, "sides": [_short(value) for value in values]}}
    return {}


def _row(number: int, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    for name in {**one, **other}:
        if not _same(one.get(name), other.get(name)):
            return {"row": number, "field": name, "sides": [_short(one.get(name)), _short(other.get(name))]}
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic) or isinstance(other, np.ndarray | np.generic):
        left, right = np.asarray(one), np.asarray(other)
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return bool(type(one) is type(other) and one == other)


def _short(value: Any) -> Any:
    from penstock.view.model.fields import field_of

    return field_of("value", value).to_json()
