"""Pictures, sound and film as browsers get them: a type that we recognised ourselves, whole or by ranges of bytes.

What is not recognised is bytes, which a browser is only ever offered to save. SVG and HTML are bytes here: both can hold scripts.
"""

import re

from starlette.responses import Response

from penstock.view.model.media import media_of
from penstock.view.web.access import error_answer

OPEN_RANGE_BYTES = 8 << 20
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def media_answer(data: bytes, asked_range: str | None) -> Response:
    """Bytes under the type that we recognised; what is not recognised can only be saved."""
    media = media_of(data)
    headers = {"Accept-Ranges": "bytes"}
    if media is None:
        headers["Content-Disposition"] = 'attachment; filename="value.bin"'
    content_type = "application/octet-stream" if media is None else media.type
    span = byte_range(asked_range, len(data))
    if span is None:
        return Response(data, media_type=content_type, headers=headers)
    first, end = span
    if first >= end:
        refused = error_answer(416, "the range lies behind the end")
        refused.headers["Content-Range"] = f"bytes */{len(data)}"
        return refused
    headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(data)}"
    return Response(data[first:end], 206, media_type=content_type, headers=headers)


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and end of what a Range header asks for; None without one, or with one that we do not serve.

    A range that lies behind the end is ``(size, size)``, which the caller refuses.
    """
    match = _RANGE.fullmatch((header or "").strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        return max(0, size - int(last)), size
    begin = int(first)
    # A player that asks for everything from here on gets a good piece, and asks again if it goes on playing.
    end = min(size, int(last) + 1 if last else begin + OPEN_RANGE_BYTES)
    return (begin, end) if begin < end else (size, size)
