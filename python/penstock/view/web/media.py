"""Pictures, sound and film as browsers get them: a type that we recognised ourselves, never one that data claims.

A few bytes at the beginning decide. What is not recognised is bytes, which a browser is only ever offered to save. SVG and
HTML are text here: both can hold scripts.
"""

import re
from dataclasses import dataclass

_HEAD_BYTES = 64
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class Medium:
    """What some bytes are."""

    #: image, audio, video, or bytes.
    kind: str
    content_type: str


UNKNOWN = Medium("bytes", "application/octet-stream")
_BEGINNINGS = (
    (b"\xff\xd8\xff", Medium("image", "image/jpeg")),
    (b"\x89PNG\r\n\x1a\n", Medium("image", "image/png")),
    (b"GIF87a", Medium("image", "image/gif")),
    (b"GIF89a", Medium("image", "image/gif")),
    (b"BM", Medium("image", "image/bmp")),
    (b"fLaC", Medium("audio", "audio/flac")),
    (b"OggS", Medium("audio", "audio/ogg")),
    (b"ID3", Medium("audio", "audio/mpeg")),
    (b"\xff\xfb", Medium("audio", "audio/mpeg")),
    (b"\xff\xf3", Medium("audio", "audio/mpeg")),
    (b"\x1aE\xdf\xa3", Medium("video", "video/webm")),
)
_BRANDS = {b"avif": Medium("image", "image/avif"), b"M4A ": Medium("audio", "audio/mp4")}


def recognise(data: bytes | memoryview) -> Medium:
    """What bytes are, by how they begin."""
    head = bytes(data[:_HEAD_BYTES])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Medium("image", "image/webp")
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return Medium("audio", "audio/wav")
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], Medium("video", "video/mp4"))
    for beginning, medium in _BEGINNINGS:
        # Two letters are too few to tell a picture: a bitmap also says where its pixels begin.
        if head.startswith(beginning) and (beginning != b"BM" or head[6:10] == bytes(4)):
            return medium
    return UNKNOWN


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
    end = min(size, int(last) + 1) if last else size
    return (begin, end) if begin < end else (size, size)
