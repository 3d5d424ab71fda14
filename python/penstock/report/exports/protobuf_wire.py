"""The wire format of protocol buffers, as far as traces, summaries and metrics need it: a tag, then a varint, eight bytes, or a length and bytes.

Written by hand because it is this little, and because classes for it would be three packages more, with protobuf below them. Their own classes read
everything back in the tests.
"""

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
#: Bytes of the longest number.
_WIDTH_MAX = 10


def varint(number: int) -> bytes:
    """A number in as few bytes as it needs; negative ones in ten."""
    rest = number & _MASK
    data = bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    data.append(rest)
    return bytes(data)


def tag(field: int, kind: int) -> bytes:
    """What stands before a value."""
    return varint(field << 3 | kind)


def integer(field: int, number: int) -> bytes:
    """An integer, an enumeration's number or a truth value."""
    return tag(field, _VARINT) + varint(number)


def fixed64(field: int, number: int) -> bytes:
    """An integer of eight bytes."""
    return tag(field, _FIXED64) + struct.pack("<q" if number < 0 else "<Q", number)


def double(field: int, number: float) -> bytes:
    """A number of eight bytes."""
    return tag(field, _FIXED64) + struct.pack("<d", number)


def message(field: int, *parts: bytes) -> bytes:
    """A message, a string's bytes, or packed numbers."""
    body = b"".join(parts)
    return tag(field, _BYTES) + varint(len(body)) + body


def text(field: int, words: str) -> bytes:
    """A string. What UTF-8 has no form for is written as an escape."""
    return message(field, words.encode("utf-8", "backslashreplace"))


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field of a message; a ValueError when it is none."""
    place = 0
    while place < len(data):
        head, place = _varint_at(data, place)
        kind = head & 7
        value: int | bytes
        if kind == _VARINT:
            value, place = _varint_at(data, place)
        elif kind in (_FIXED64, _FIXED32, _BYTES):
            length = {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
            if kind == _BYTES:
                length, place = _varint_at(data, place)
            value, place = data[place : place + length], place + length
            if place > len(data):
                raise ValueError("a field ends behind the message")
        else:
            raise ValueError(f"a field has the unknown kind {kind}")
        yield head >> 3, value


def _varint_at(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(_WIDTH_MAX):
        if place + shift >= len(data):
            break
        byte = data[place + shift]
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, place + shift + 1
    raise ValueError("a number does not end")
