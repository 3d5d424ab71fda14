"""How bytes of data look on a screen: text as text, everything that would be invisible or would act as a visible mark.

Whole characters stay what they are. A line feed is ``⏎``, a tab ``⇥``, other control characters have their pictures (``␛``).
What has no shape, turns the direction of text, or stands for nothing is written as its number, ``⟨U+202E⟩``; bytes that are no
whole character are written as bytes, ``⟨E2⟩``, and never as U+FFFD. So nothing that data holds can reach a terminal as an
escape, or hide.
"""

import re
import unicodedata
from functools import lru_cache

#: What stands for a byte that is no character, and for a character that has no shape.
BYTE, POINT = "⟨{:02X}⟩", "⟨U+{:04X}⟩"
_NAMED = {"\n": "⏎", "\t": "⇥", " ": " ", "\x7f": "␡"}
#: Characters without a shape that Unicode counts among letters, marks or symbols.
_SHAPELESS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc\ufffd") | {
    chr(number) for number in (*range(0xFE00, 0xFE10), *range(0x180B, 0x1810), *range(0xE0100, 0xE01F0))
}
_QUIET = re.compile(r"[ -~]*")
_PICTURES = 0x2400


def shown(data: bytes) -> tuple[str, bool, bool]:
    """The display of some bytes; whether some are no whole character, and whether something in them is invisible."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if text and _QUIET.fullmatch(text):
        return text, False, False
    pieces: list[str] = []
    partial = invisible = False
    at = 0
    while at < len(data):
        whole, at = _whole(data, at)
        if whole:
            words, hidden = shown_text(whole)
            pieces.append(words)
            invisible |= hidden
        if at < len(data):
            pieces.append(BYTE.format(data[at]))
            partial = True
            at += 1
    return "".join(pieces), partial, invisible


def shown_text(text: str) -> tuple[str, bool]:
    """The display of text, and whether something in it is invisible."""
    if _QUIET.fullmatch(text):
        return text, False
    pieces = [glyph(character, first=at == 0) for at, character in enumerate(text)]
    # Ends of lines and tabs are in all text, and a mark that leans on nothing can be seen.
    hidden = any(
        piece[-1] != character and character not in _NAMED
        for piece, character in zip(pieces, text, strict=True)
    )
    return "".join(pieces), hidden


def safe_line(text: str) -> str:
    """Text on one line, for a terminal or a page."""
    return shown_text(text)[0]


def _whole(data: bytes, at: int) -> tuple[str, int]:
    """The characters from here on that are whole, and where they end."""
    try:
        return data[at:].decode(), len(data)
    except UnicodeDecodeError as reason:
        stop = at + reason.start
        return data[at:stop].decode(), stop


@lru_cache(maxsize=1 << 16)
def glyph(character: str, *, first: bool) -> str:
    """How one character looks; ``first`` where nothing stands before it."""
    if (named := _NAMED.get(character)) is not None:
        return named
    number = ord(character)
    if number < 0x20:
        return chr(_PICTURES + number)
    category = unicodedata.category(character)
    if character in _SHAPELESS or category[0] in "CZ":
        return POINT.format(number)
    # A mark would sit on whatever stands before the text.
    return f"◌{character}" if first and category[0] == "M" else character
