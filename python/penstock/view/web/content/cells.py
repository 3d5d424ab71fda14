"""Values of rows as a page shows them: a kind, a text of limited length, and how much there is in all.

Nothing is cut silently: a cell that shows less than the value says how long the value is. Text is text; what it looks like
on the page (reordering and invisible characters spelled out) is decided where it is drawn.
"""

import math
from typing import Any

import numpy as np

from penstock.formats.contract import Row
from penstock.view.model.media import media_of
from penstock.view.wire.dataset_answers import CellValue

PREVIEW_MAX = 160
"""Characters of a value in a table of rows."""
WHOLE_MAX = 100_000
"""Characters of a value on the page of one row."""
_NUMBERS_MAX = 4_000
_FIELDS_MAX = 500
_DEPTH_MAX = 12


def row_cells(row: Row, names: list[str], limit: int) -> list[CellValue]:
    """The cells of a row, in the order of the schema."""
    return [cell(row.get(name), limit) for name in names[:_FIELDS_MAX]]


def cell(value: Any, limit: int) -> CellValue:
    """One value. ``of`` is its whole length where less is shown, in the unit of its kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return {"kind": "null", "text": "null"}
    if isinstance(value, bool):
        return {"kind": "bool", "text": "true" if value else "false"}
    if isinstance(value, int | float):
        return {"kind": "number", "text": _number(value)}
    if isinstance(value, str):
        return _cut("text", value, limit)
    if isinstance(value, bytes | memoryview):
        return _bytes(value, limit)
    if isinstance(value, np.ndarray):
        return _array(value, limit)
    if isinstance(value, list | tuple):
        return _cut("list", _nested(value, limit), limit, items=len(value))
    if isinstance(value, dict):
        inner = value.get("bytes")
        # Pictures and sounds as Hugging Face datasets write them: their bytes beside the name of a file.
        if isinstance(inner, bytes) and media_of(inner) is not None:
            return {**_bytes(inner, limit), "path": "bytes"}
        return _cut("object", _nested(value, limit), limit, items=len(value))
    return _cut("text", str(value), limit)


def safe(text: str) -> str:
    """Text that JSON can carry: lone surrogates (bytes that are not UTF-8) are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _cut(kind: str, text: str, limit: int, *, items: int | None = None) -> CellValue:
    cell_value: CellValue = {"kind": kind, "text": safe(text[:limit])}
    if items is not None:
        cell_value["items"] = items
    if len(text) > limit:
        cell_value["of"] = len(text)
    return cell_value


def _number(value: int | float) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    return str(value) if abs(value) < 10**300 else "a number of more than 300 digits"


def _bytes(value: bytes | memoryview, limit: int) -> CellValue:
    media = media_of(value)
    if media is not None:
        return {"kind": media.kind, "text": media.type, "size": len(value)}
    shown = min(len(value), limit // 3)
    cell_value: CellValue = {"kind": "bytes", "text": bytes(value[:shown]).hex(" "), "size": len(value)}
    return cell_value if shown == len(value) else {**cell_value, "of": len(value)}


def _array(value: "np.ndarray[Any, Any]", limit: int) -> CellValue:
    flat = value.reshape(-1)[: min(_NUMBERS_MAX, limit // 2)]
    text = " ".join(_plain_number(number) for number in flat.tolist())
    cell_value: CellValue = {
        "kind": "array",
        "text": safe(text[:limit]),
        "dtype": str(value.dtype),
        "shape": list(value.shape),
    }
    if len(flat) < value.size or len(text) > limit:
        cell_value["of"] = int(value.size)
    return cell_value


def _plain_number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _nested(value: Any, limit: int, depth: int = 0) -> str:
    """JSON as people write it, made only as far as it will be shown."""
    if depth > _DEPTH_MAX:
        return "…"
    if isinstance(value, dict):
        parts = []
        for key, item in list(value.items())[:limit]:
            parts.append(f"{_nested(str(key), limit)}: {_nested(item, limit, depth + 1)}")
            if sum(map(len, parts)) > limit:
                break
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list | tuple):
        items: list[str] = []
        length = 0
        for item in value:
            items.append(_nested(item, limit, depth + 1))
            length += len(items[-1]) + 2
            if length > limit:
                break
        return "[" + ", ".join(items) + "]"
    if isinstance(value, str):
        return '"' + value[: limit + 1].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, bytes | memoryview):
        return f"<{len(value)} bytes>"
    return str(cell(value, limit)["text"])
