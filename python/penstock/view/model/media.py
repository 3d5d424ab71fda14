"""What some bytes are, told by how they begin: a picture, a sound, a film, or just bytes. Names and claims are not believed."""

from dataclasses import dataclass

#: Enough to tell all of them.
LOOKED_BYTES = 64


@dataclass(frozen=True, slots=True)
class Media:
    """A kind of file."""

    #: ``image``, ``audio`` or ``video``.
    kind: str
    #: Its type, as browsers call it. Only types that cannot hold scripts are here.
    type: str


_BEGINNINGS: tuple[tuple[bytes, Media], ...] = (
    (b"\x89PNG\r\n\x1a\n", Media("image", "image/png")),
    (b"\xff\xd8\xff", Media("image", "image/jpeg")),
    (b"GIF87a", Media("image", "image/gif")),
    (b"GIF89a", Media("image", "image/gif")),
    (b"BM", Media("image", "image/bmp")),
    (b"fLaC", Media("audio", "audio/flac")),
    (b"ID3", Media("audio", "audio/mpeg")),
    (b"\x1a\x45\xdf\xa3", Media("video", "video/webm")),
)
_RIFF = {
    b"WEBP": Media("image", "image/webp"),
    b"WAVE": Media("audio", "audio/wav"),
    b"AVI ": Media("video", "video/x-msvideo"),
}
#: Brands of files that begin with a box ``ftyp``.
_BRANDS = {
    b"avif": Media("image", "image/avif"),
    b"heic": Media("image", "image/heic"),
    b"M4A ": Media("audio", "audio/mp4"),
    b"qt  ": Media("video", "video/quicktime"),
}


def media_of(data: bytes | memoryview) -> Media | None:
    """What bytes are, or None when they are nothing that is known."""
    head = bytes(data[:LOOKED_BYTES])
    for beginning, media in _BEGINNINGS:
        # Two letters are too little to believe; a bitmap says its own size.
        if head.startswith(beginning) and (beginning != b"BM" or _is_bitmap(head, len(data))):
            return media
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], Media("video", "video/mp4"))
    if head.startswith(b"OggS"):
        return Media("video", "video/ogg") if b"theora" in head else Media("audio", "audio/ogg")
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2:
        return Media("audio", "audio/mpeg")
    return None


def _is_bitmap(head: bytes, size: int) -> bool:
    return len(head) >= 26 and int.from_bytes(head[2:6], "little") == size
