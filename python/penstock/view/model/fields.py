"""Fields of rows and records by kind, each with a preview that says how much it leaves out.

Kinds are ``text``, ``number``, ``image``, ``audio``, ``video``, ``bytes``, ``trajectory`` (numbers over time: an array or a list of rows of
numbers), ``array``, ``nested`` (lists and tables) and ``nothing``. A preview is safe to show; whole values are fetched one by one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from penstock.view.model.media import media_of
from penstock.view.model.tokens.glyphs import shown_text
from penstock.view.wire.batch_answers import FieldPreview

TEXT_MAX = 2000
NUMBERS_MAX = 64
_NESTED_MAX = 2000
#: A trajectory has at least so many points in time, and no more values at each than people can tell apart.
_STEPS_MIN, _WIDTH_MAX = 4, 256


@dataclass(frozen=True, slots=True)
class FieldView:
    """A field of a row."""

    name: str
    kind: str
    #: What can be shown of it at once: text, or plain values.
    preview: Any
    #: How large the whole is, in words: characters, bytes, a shape.
    size: str
    #: What the preview leaves out; empty when nothing.
    cut: str = ""
    #: For media, its type as browsers call it.
    type: str = ""

    def to_json(self) -> FieldPreview:
        """As plain values."""
        preview: FieldPreview = {
            "name": self.name,
            "kind": self.kind,
            "preview": self.preview,
            "size": self.size,
        }
        if self.cut:
            preview["cut"] = self.cut
        if self.type:
            preview["type"] = self.type
        return preview


def field_of(name: str, value: Any, *, text_max: int = TEXT_MAX) -> FieldView:
    """A field with its kind and its preview."""
    if value is None:
        return FieldView(name, "nothing", "", "")
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        value = value[()]
    if isinstance(value, str):
        return _text(name, value, text_max)
    if isinstance(value, bool | int | float | np.bool_ | np.number):
        plain = value.item() if isinstance(value, np.generic) else value
        # JSON has neither infinities nor integers of any length.
        exact = isinstance(plain, bool) or (
            abs(plain) < 1 << 53 if isinstance(plain, int) else math.isfinite(plain)
        )
        return FieldView(name, "number", plain if exact else str(plain), type(value).__name__)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(name, bytes(value))
    if isinstance(value, np.ndarray):
        return _array(name, value)
    if isinstance(value, list | tuple | Mapping):
        return _nested(name, value)
    return _text(name, str(value), text_max)


def trajectory_of(value: Any) -> np.ndarray[Any, Any] | None:
    """Numbers over time, with one row for each point, or None when a value is something else."""
    if isinstance(value, list | tuple):
        if len(value) < _STEPS_MIN or not isinstance(value[0], int | float | list | tuple):
            return None
        try:
            value = np.asarray(value)
        except ValueError:
            return None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return None
    if value.ndim not in (1, 2) or len(value) < _STEPS_MIN:
        return None
    points = value.reshape(len(value), -1)
    return points if 1 <= points.shape[1] <= _WIDTH_MAX else None


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes as their length and beginning, arrays as lists, numbers that JSON lacks as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": len(value), "begins": bytes(value[:16]).hex()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _text(name: str, value: str, text_max: int) -> FieldView:
    size = f"{len(value):,} characters"
    cut = f"{len(value) - text_max:,} characters of {len(value):,}" if len(value) > text_max else ""
    words = "\n".join(shown_text(line)[0] for line in value[:text_max].split("\n"))
    return FieldView(name, "text", words, size, cut)


def _bytes(name: str, value: bytes) -> FieldView:
    size, media = f"{len(value):,} bytes", media_of(value)
    if media is not None:
        return FieldView(name, media.kind, "", size, type=media.type)
    cut = f"{len(value) - NUMBERS_MAX:,} bytes of {len(value):,}" if len(value) > NUMBERS_MAX else ""
    return FieldView(name, "bytes", value[:NUMBERS_MAX].hex(" "), size, cut)


def _array(name: str, value: np.ndarray[Any, Any]) -> FieldView:
    kind = "array" if trajectory_of(value) is None else "trajectory"
    size = f"{value.dtype} {'x'.join(map(str, value.shape)) or 'number'}"
    left = value.size - NUMBERS_MAX
    cut = f"{left:,} values of {value.size:,}" if left > 0 else ""
    return FieldView(name, kind, plain(value.reshape(-1)[:NUMBERS_MAX]), size, cut)


def _nested(name: str, value: Any) -> FieldView:
    array = trajectory_of(value)
    if array is not None:
        return _array(name, array)
    text = msgspec.json.encode(plain(value)).decode()
    cut = f"{len(text) - _NESTED_MAX:,} characters of {len(text):,}" if len(text) > _NESTED_MAX else ""
    return FieldView(name, "nested", shown_text(text[:_NESTED_MAX])[0], f"{len(value):,} entries", cut)
