"""Characters that several tokens share, shown whole: at the first of these tokens, with a mark in the others.

A byte-level tokenizer often cuts a character of Chinese, Hindi or an emoji into several tokens. Each of them alone is only bytes
(``⟨E6⟩⟨97⟩⟨A5⟩``); together they are text a reader knows. Bytes that make no character together stay bytes. The exact bytes of
every token remain one key away.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.view.model.tokens.glyphs import BYTE, glyph
from penstock.view.model.tokens.vocabulary import TokenKind, Vocabulary

#: Shown for a token whose bytes belong to a character that began in a token before it.
CONTINUED = "◂"
#: A character has at most four bytes, so at most three tokens on either side of a token belong to its character.
REACH = 3
#: ``surrogateescape`` decodes a byte that is no character to this number plus the byte.
_ESCAPED = 0xDC00


def join(pieces: Sequence[bytes]) -> list[str]:
    """The display of neighbouring tokens, given their bytes; a shared character is shown at its first token."""
    displays: list[str] = []
    shown: list[str] = []
    #: Bytes of the text before the next token, and before the next character.
    end, at, token = len(pieces[0]) if pieces else 0, 0, 0
    last = len(pieces) - 1
    for character in b"".join(pieces).decode("utf-8", "surrogateescape"):
        while at >= end and token < last:
            displays.append("".join(shown))
            token += 1
            # A character that began earlier goes on in this token.
            shown = [CONTINUED] if at > end else []
            end += len(pieces[token])
        number = ord(character)
        if 0xDC80 <= number <= 0xDCFF:
            shown.append(BYTE.format(number - _ESCAPED))
            at += 1
        else:
            shown.append(glyph(character, first=not shown))
            at += 1 if number < 0x80 else 2 if number < 0x800 else 3 if number < 0x10000 else 4
    while len(displays) < len(pieces):
        displays.append("".join(shown))
        shown = [CONTINUED]
    return displays


def joined_tokens(
    ids: Sequence[int], texts: Sequence[str], kinds: Sequence[int], vocabulary: Vocabulary | None
) -> list[str]:
    """The display of the tokens of one text, with shared characters whole."""
    displays = list(texts)
    if vocabulary is None:
        return displays
    for first, stop in partial_runs(np.asarray(kinds)):
        displays[first:stop] = join([vocabulary.bytes_of(token) or b"" for token in ids[first:stop]])
    return displays


def partial_runs(
    kinds: npt.NDArray[Any], segments: npt.NDArray[Any] | None = None
) -> Iterator[tuple[int, int]]:
    """Where neighbouring tokens of one document are partial: only such tokens can share a character."""
    partial = kinds == TokenKind.PARTIAL
    documents = partial if segments is None else np.where(partial, segments.astype(np.int64) + 1, 0)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], documents, [0])).astype(np.int64))).tolist()
    for start, stop in pairwise(edges):
        if partial[start]:
            yield start, stop


def reach(segments: npt.NDArray[Any], start: int, stop: int) -> range:
    """Tokens of a row from start to stop, and their neighbours in the same document that may share a character with them."""
    same = segments[start]
    first, end = start, stop
    while first > max(0, start - REACH) and segments[first - 1] == same:
        first -= 1
    while end < min(len(segments), stop + REACH) and segments[end] == same:
        end += 1
    return range(first, end)
