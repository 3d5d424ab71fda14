"""What values are made of, for forms that cannot hold everything: the first part that has no place in a form, in words."""

import datetime
import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from penstock.errors import ExportRefused

#: What is said of values that JSON has no place for.
_NAMES: tuple[tuple[Any, str], ...] = (
    ((bytes, bytearray, memoryview), "bytes"),
    (Decimal, "a decimal number"),
    ((datetime.datetime, datetime.date, datetime.time, datetime.timedelta), "a time"),
)
_ARRAYS = {"S": "bytes", "V": "records", "M": "times", "m": "times", "c": "complex numbers"}


def plain(value: Any) -> Any:
    """Numbers and lists instead of numpy's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def word_for(value: Any) -> str:
    """What a value is, for messages."""
    if value is None:
        return "null"
    named = next((name for kinds, name in _NAMES if isinstance(value, kinds)), None)
    return named or f"a value of type {type(value).__name__}"


def json_flaw(value: Any, *, nan: bool = False) -> str | None:
    """What in a value JSON has no place for; ``nan`` says whether NaN and infinities have one."""
    if isinstance(value, dict):
        if any(not isinstance(key, str) for key in value):
            return "a key that is not text"
        return next((flaw for item in value.values() if (flaw := json_flaw(item, nan=nan))), None)
    # A tuple with names, such as an interval of months and days, is more than its parts.
    if type(value) in (list, tuple):
        return next((flaw for item in value if (flaw := json_flaw(item, nan=nan))), None)
    if isinstance(value, np.ndarray | np.generic):
        return _array_flaw(np.asarray(value), nan=nan)
    if isinstance(value, float):
        return None if nan or math.isfinite(value) else repr(value)
    return None if value is None or isinstance(value, bool | int | str) else word_for(value)


def _array_flaw(array: "np.ndarray[Any, Any]", *, nan: bool) -> str | None:
    kind = array.dtype.kind
    if kind == "O":
        return json_flaw(array.tolist(), nan=nan)
    if kind == "f" and not nan and not np.isfinite(array).all():
        return "NaN or an infinity"
    return _ARRAYS.get(kind)


def json_text(value: Any, *, nan: bool = False) -> bytes:
    """A value without flaws as JSON."""
    if not nan:
        try:
            return msgspec.json.encode(value, enc_hook=plain)
        except OverflowError:
            # A whole number of more than 64 bits.
            pass
    return json.dumps(value, default=plain, ensure_ascii=False, separators=(",", ":")).encode()


class Refusals:
    """Turns what a form cannot hold into an error that names row and field."""

    def __init__(self, path: str, form: str) -> None:
        self._path = path
        self._form = form

    def refuse(self, row: int, field: str, what: str) -> ExportRefused:
        """The error."""
        return ExportRefused(path=self._path, row=row, field=field, what=what, form=self._form)

    def demand(self, row: int, field: str, flaw: str | None) -> None:
        """Raise it if there is a flaw."""
        if flaw is not None:
            raise self.refuse(row, field, flaw)


def first_failing(values: list[Any], attempt: Callable[[list[Any]], Any], problems: Any) -> int:
    """The first value with which ``attempt`` fails on all values so far; it fails on all of them."""
    low, high = 0, len(values)
    # Halves the stretch each turn.
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(values[:middle])
        except problems:
            high = middle
        else:
            low = middle
    return high - 1


def pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    """All pairs of the maps among values."""
    return (pair for value in values if value is not None for pair in value)
