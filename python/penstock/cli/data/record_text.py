"""Records on the screen: fields with their shapes, and a short look at each value."""

import math
from typing import Any

import numpy as np

from penstock.cli.escape import harmless
from penstock.data.records import RecordBatch
from penstock.report.quantities import size

_SHOWN_CHARACTERS = 60
_NUMBERS_SHOWN = 6
_NESTED_SHOWN = 200
_ROWS_SHOWN = 64


def record_document(batch: RecordBatch, rows: range) -> dict[str, object]:
    """Rows of a batch as JSON, with previews of values that are long or no JSON."""
    part = {} if len(rows) == batch.rows else {"rows_shown": [rows.start, rows.stop]}
    return {
        **part,
        "step": batch.step,
        "digest": batch.digest,
        "rows": batch.rows,
        "padding": batch.padding,
        "fields": {name: _kind(batch[name]) for name in batch},
        "values": [{name: _json(batch[name][row]) for name in batch} for row in rows],
        "origins": [[origin.to_json() for origin in batch.origin(row)] for row in rows],
        "undecodable": [fault.to_json() for fault in batch.faults],
    }


def print_records(batch: RecordBatch, rows: range) -> None:
    """A batch for people: what its fields are, then rows with their origin."""
    print(
        f"step {batch.step}: {batch.rows} records, {batch.padding} padding, {size(batch.size_bytes)}, digest {batch.digest}"
    )
    for name in batch:
        print(harmless(f"  {name}: {_kind(batch[name])}"))
    reasons = {fault.row: fault.reason for fault in batch.faults}
    for row in rows[:_ROWS_SHOWN]:
        origins = batch.origin(row)
        print(harmless(f"  row {row}: {_place(origins[0]) if origins else 'padding'}"))
        if row in reasons:
            print(harmless(f"    cannot be decoded: {reasons[row]}"))
        elif origins:
            for name in batch:
                print(harmless(f"    {name} = {_preview(batch[name][row])}"))
    if batch.rows > len(rows[:_ROWS_SHOWN]):
        print(f"  and {batch.rows - len(rows[:_ROWS_SHOWN])} rows more")


def _place(origin: Any) -> str:
    where = "" if origin.byte_range is None else f", bytes {origin.byte_range[0]}–{origin.byte_range[1]}"
    return f"{origin.version} row {origin.sample} ({origin.shard}{where})"


def _kind(values: Any) -> str:
    """What a field holds, in a few words."""
    if isinstance(values, np.ndarray):
        return f"{values.dtype} {list(values.shape)}"
    kinds = sorted({_kind_of(value) for value in values if value is not None})
    return f"list of {' or '.join(kinds) or 'nothing'}"


def _kind_of(value: Any) -> str:
    return f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__


def _preview(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{size(len(value))}: {value[:16].hex(' ')}{' …' if len(value) > 16 else ''}"
    if isinstance(value, np.ndarray):
        first = " ".join(map(str, value.reshape(-1)[:_NUMBERS_SHOWN].tolist()))
        return f"{value.dtype} {list(value.shape)}: {first}{' …' if value.size > _NUMBERS_SHOWN else ''}"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"


def _json(value: Any) -> object:
    """Numbers, text and small arrays as they are; everything else as its preview."""
    if isinstance(value, np.generic):
        return _json(value.item())
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size <= _NESTED_SHOWN:
        return _json(value.tolist())
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (type(value) is float and math.isfinite(value))
    ):
        return value
    if isinstance(value, list) and len(value) <= _NESTED_SHOWN:
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    return _preview(value)
