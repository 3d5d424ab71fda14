"""Fields of a sample as lines, each kind in its own way. Pictures and sounds are named, not drawn: the browser view shows them."""

from collections.abc import Sequence
from typing import Any

from penstock.view.model.fields import FieldView
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.styled_line import Line, StyledText

_BARS = "▁▂▃▄▅▆▇█"
_SHORT = 300


def field_lines(fields: Sequence[FieldView]) -> list[Line]:
    """All fields of a sample, one below the other."""
    found: list[Line] = []
    for field in fields:
        kind = field.type or field.kind
        size = f", {field.size}" if field.size else ""
        found.append([StyledText(field.name, looks.BOLD), StyledText(f"  {kind}{size}", looks.DIM)])
        found += [[StyledText(f"  {line}")] for line in _content(field)]
        if field.cut:
            found.append([StyledText(f"  … left out: {field.cut} (m shows more)", looks.DIM)])
        found.append([])
    return found[:-1]


def one_line(fields: Sequence[FieldView]) -> Line:
    """A sample on one line: names and the beginning of values."""
    pieces: list[StyledText] = []
    for field in fields:
        content = " ".join(_content(field)) or field.type or field.kind
        pieces += [StyledText(f"{field.name} ", looks.DIM), StyledText(f"{content[:_SHORT]}  ")]
    return pieces


def sparkline(values: Sequence[Any]) -> str:
    """Numbers as bars of eight heights; what is no number is a gap."""
    numbers = [float(each) if isinstance(each, int | float) else float("nan") for each in values]
    finite = [each for each in numbers if each == each and abs(each) != float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    return "".join(
        _BARS[min(7, int((each - low) / span * 8))] if low <= each <= high else " " for each in numbers
    )


def _content(field: FieldView) -> list[str]:
    if field.kind in ("image", "audio", "video"):
        return []
    if field.kind in ("trajectory", "array") and isinstance(field.preview, list):
        numbers = " ".join(f"{each:.4g}" if isinstance(each, float) else str(each) for each in field.preview)
        bars = sparkline(field.preview) if field.kind == "trajectory" else ""
        return [bars, numbers] if bars else [numbers]
    return str(field.preview).split("\n") if field.preview != "" else []
