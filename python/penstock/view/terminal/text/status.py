"""What is known of the token under the cursor, as three lines: what it is, how it counts, where it came from."""

from typing import Any

from penstock.view.terminal.text import looks
from penstock.view.terminal.text.styled_line import Line, Piece

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


def token_lines(found: dict[str, Any]) -> list[Line]:
    """Three lines about a token, as the view-model gives it."""
    data = found["bytes"]
    if data is None:
        shown = "no tokenizer is known"
    else:
        pairs = [data[at : at + 2] for at in range(0, len(data), 2)]
        left = len(pairs) - _BYTES_SHOWN
        shown = " ".join(pairs[:_BYTES_SHOWN]) + (f" and {left} bytes more" if left > 0 else "")
    first: Line = [
        Piece(f"row {found['row']} token {found['token']}", looks.BOLD),
        Piece("  id "),
        Piece(str(found["id"]), looks.BOLD),
        Piece(f"  {found['kind']}  ", looks.DIM),
        Piece(f"“{found['text']}”"),
        Piece(f"  bytes {shown}", looks.DIM),
    ]
    words = [
        f"{name} {found[column]:g}"
        for name, column in (("segment", "segments"), ("position", "positions"), ("loss", "loss_mask"))
        if column in found
    ]
    words += [f"{name} {value:.6g}" for name, value in found.items() if name not in _BASIC]
    origins = found["origin"]
    words.append(f"source {origins[0]['source']}" if origins else "no source")
    return [first, [Piece("  ".join(words))], _origin_line(origins)]


def _origin_line(origins: list[dict[str, Any]]) -> Line:
    if not origins:
        return [Piece("from no sample", looks.DIM)]
    origin = origins[0]
    span, place = origin["token_span"], origin["byte_range"]
    where = "" if place is None else f" bytes {place[0]}–{place[1]}"
    return [
        Piece(f"{origin['version']}/row/{origin['sample']}", looks.BOLD),
        Piece(
            f"  its tokens {span[0]}–{span[1]}  epoch {origin['epoch']}  {origin['shard']}{where}", looks.DIM
        ),
    ]
