"""What is known of the token under the cursor, as three lines: what it is, how it counts, where it came from."""

from typing import Any

from penstock.view.terminal.text import looks
from penstock.view.terminal.text.styled_line import Line, StyledText

_BYTES_SHOWN = 16
_BASIC = {
    "tokens",
    "segments",
    "positions",
    "loss_mask",
    "sources",
    "kinds",
    "row",
    "token",
    "id",
    "text",
    "bytes",
    "kind",
    "origin",
}


def token_lines(detail: dict[str, Any]) -> list[Line]:
    """Three lines about a token, as the view-model gives it."""
    data = detail["bytes"]
    if data is None:
        shown = "no tokenizer is known"
    else:
        pairs = [data[at : at + 2] for at in range(0, len(data), 2)]
        left = len(pairs) - _BYTES_SHOWN
        shown = " ".join(pairs[:_BYTES_SHOWN]) + (f" and {left} bytes more" if left > 0 else "")
    first: Line = [
        StyledText(f"row {detail['row']} token {detail['token']}", looks.BOLD),
        StyledText("  id "),
        StyledText(str(detail["id"]), looks.BOLD),
        StyledText(f"  {detail['kind']}  ", looks.DIM),
        StyledText(f"“{detail['text']}”"),
        StyledText(f"  bytes {shown}", looks.DIM),
    ]
    words = [
        f"{name} {detail[column]:g}"
        for name, column in (("segment", "segments"), ("position", "positions"), ("loss", "loss_mask"))
        if column in detail
    ]
    words += [f"{name} {value:.6g}" for name, value in detail.items() if name not in _BASIC]
    origins = detail["origin"]
    words.append(f"source {origins[0]['source']}" if origins else "no source")
    return [first, [StyledText("  ".join(words))], _origin_line(origins)]


def _origin_line(origins: list[dict[str, Any]]) -> Line:
    if not origins:
        return [StyledText("from no sample", looks.DIM)]
    origin = origins[0]
    span, place = origin["token_span"], origin["byte_range"]
    where = "" if place is None else f" bytes {place[0]}–{place[1]}"
    return [
        StyledText(f"{origin['version']}/row/{origin['sample']}", looks.BOLD),
        StyledText(
            f"  its tokens {span[0]}–{span[1]}  epoch {origin['epoch']}  {origin['shard']}{where}", looks.DIM
        ),
    ]
