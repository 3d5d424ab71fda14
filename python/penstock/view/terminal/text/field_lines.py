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
    lines: list[Line] = []
    for field in fields:
        kind = field.type or field.kind
        size = f", {field.size}" if field.size else ""
        lines.append([StyledText(field.name, looks.BOLD), StyledText(f"  {kind}{size}", looks.DIM)])
        lines += [[StyledText(f"  {line}")] for line in _content(field)]
        if field.cut:
            lines.append([StyledText(f"  … left out: {field.cut} (m shows more)", looks.DIM)])
        lines.append([])
    return lines[:-1]


def one_line(fields: Sequence[FieldView]) -> Line:
    """A sample on one line: names and the beginning of values."""
    pieces: list[StyledText] = []
    for field in fields:
        content = " ".join(_content(field)) or field.type or field.kind
        pieces += [StyledText(f"{field.name} ", looks.DIM), StyledText(f"{content[:_SHORT]}  ")]
    return pieces


def sparkline(values: Sequence[Any]) -> str:
    """Numbers as bars of eight heights; what is no number is a gap."""
    numbers = [float(value) if isinstance(value, int | float) else float("nan") for value in values]
    finite = [number for number in numbers if number == number and abs(number) != float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    return "".join(
        _BARS[min(7, int((number - low) / span * 8))] if low <= number <= high else " " for number in numbers
    )


def _content(field: FieldView) -> list[str]:
    if field.kind in ("image", "audio", "video"):
        return []
    if field.kind in ("trajectory", "array") and isinstance(field.preview, list):
        numbers = " ".join(
            f"{value:.4g}" if isinstance(value, float) else str(value) for value in field.preview
        )
        bars = sparkline(field.preview) if field.kind == "trajectory" else ""
        return [bars, numbers] if bars else [numbers]
    return str(field.preview).split("\n") if field.preview != "" else []
