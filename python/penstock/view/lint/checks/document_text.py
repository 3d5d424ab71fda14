"""What documents say, as text: characters that were decoded wrongly, controls, blobs, markup, whitespace, lost case.

Everything here needs a tokenizer, and judges documents one by one: a kind is found when too many of them have it.
"""

import re
from abc import abstractmethod
from collections import defaultdict

from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Cost, Finding, Severity, Tally

#: Characters that a document must have before shares of it mean something.
_CHARACTERS_MIN = 16
_DOCUMENTS_MIN = 2
#: Bytes 0x80 to 0xBF as Windows-1252 and Latin-1 show them.
_CONTINUED = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_MOJIBAKE = re.compile(
    f"[\u00c2-\u00df][{_CONTINUED}]|[\u00e0-\u00ef][{_CONTINUED}]{{2}}|[\u00f0-\u00f4][{_CONTINUED}]{{3}}"
)
#: Latin, Greek, Cyrillic, Hebrew and Arabic; punctuation and currencies; East Asian writing; pictures.
_WRITTEN = (
    (0xA0, 0x17F),
    (0x370, 0x6FF),
    (0x2010, 0x20BF),
    (0x2190, 0x27BF),
    (0x3000, 0xD7FF),
    (0x1F300, 0x1FAFF),
)
#: Without tab, line feed, vertical tab, form feed, carriage return and escape, which texts and programs have.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_SPACES = re.compile(r"[ \t\u00a0\u3000]{40,}|(?:[ \t\r]*\n){20,}|\s{200,}")
_BLOB = re.compile(r"[A-Za-z0-9+/_=-]{160,}|(?:\\x[0-9a-fA-F]{2}){40,}|(?:[A-Za-z0-9+/]{60,76}\r?\n){4,}")
_TAG = re.compile(
    r"</?(?:div|span|p|br|td|tr|table|tbody|ul|ol|li|a|img|script|style|meta|link|html|head|body|h[1-6]|input|button|form|"
    r"section|nav|footer|header|strong|em|b|i)\b[^<>]{0,400}>|&(?:nbsp|amp|quot|lt|gt|#\d{2,5});",
    re.IGNORECASE,
)


class _Text(Check):
    """Documents that have too much of something."""

    #: Documents from which on it is said, and from which on it is an error.
    share_min = 0.01
    share_error = 0.2
    #: What is wrong, as the end of a sentence.
    words = ""

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()
        self._example = ""

    @abstractmethod
    def first(self, text: str) -> int | None:
        """The first character that is wrong, or None where the text is good enough."""

    def look(self, batch: CheckedBatch) -> None:
        """Judge every document."""
        for piece in batch.pieces:
            text = batch.text(piece)
            if text is None or len(text) < _CHARACTERS_MIN:
                continue
            self._tally.of += 1
            at = self.first(text)
            if at is not None:
                token = batch.token_at(piece, at) if len(self._tally.places) < 5 else piece.at
                self._tally.add(batch, piece.row, token, tokens=piece.length)
                self._example = self._example or text[at : at + 24]

    def tell(self, tokens: int) -> list[Finding]:
        """Where there are too many."""
        tally = self._tally
        if tally.count < _DOCUMENTS_MIN or tally.share < self.share_min:
            return []
        severity: Severity = "error" if tally.share >= self.share_error else "warning"
        sentence = f"{tally} documents {self.words}, such as {self._example!a}"
        cost = Cost(tally.tokens / max(1, tokens))
        return [self.found(sentence, tally.places, cost, severity=severity, documents=tally.count)]


class Mojibake(_Text):
    """UTF-8 that was read as Latin-1 or Windows-1252."""

    kinds = ("mojibake",)
    words = "have characters that were decoded wrongly"

    def first(self, text: str) -> int | None:
        """Two places at least, since one may be what somebody wrote, and one of them no two letters."""
        matches = [match for match in _MOJIBAKE.finditer(text) if _was_meant(match[0])]
        if len(matches) < 2 or all(match[0].isalpha() for match in matches):
            return None
        return matches[0].start()


def _was_meant(text: str) -> bool:
    """Whether characters are the bytes of another one that people write."""
    try:
        data = b"".join(
            bytes([ord(character)]) if ord(character) < 0x100 else character.encode("cp1252")
            for character in text
        )
        number = ord(data.decode("utf-8"))
    except (UnicodeError, TypeError):
        return False
    return any(first <= number <= last for first, last in _WRITTEN)


class ReplacedCharacters(_Text):
    """Characters that were lost: U+FFFD."""

    kinds = ("replacement-characters",)
    words = "have lost characters (U+FFFD)"
    share_min = 0.02

    def first(self, text: str) -> int | None:
        """Two of them, or one in a few hundred characters."""
        place = text.find("\ufffd")
        if place < 0 or text.count("\ufffd") < max(2, len(text) / 1000):
            return None
        return place


class ControlCharacters(_Text):
    """Control characters that no text has."""

    kinds = ("control-characters",)
    words = "have control characters"
    share_min = 0.02

    def first(self, text: str) -> int | None:
        """Two of them, or one in a few hundred characters."""
        places = [match.start() for match in _CONTROL.finditer(text)]
        return places[0] if len(places) >= max(2, len(text) / 1000) else None


class WhitespaceRuns(_Text):
    """Long runs of spaces or empty lines."""

    kinds = ("whitespace-runs",)
    words = "are full of spaces or empty lines"
    share_min, share_error = 0.05, 2.0

    def first(self, text: str) -> int | None:
        """A fifth of the text."""
        matches = list(_SPACES.finditer(text))
        return matches[0].start() if matches and sum(map(_size, matches)) >= len(text) / 5 else None


class BinaryText(_Text):
    """Base64, hexadecimal and other binary data as text."""

    kinds = ("binary-text",)
    words = "are mostly binary data as text"
    share_min, share_error = 0.02, 0.5

    def first(self, text: str) -> int | None:
        """A third of the text, of runs with capitals, small letters and digits (base64), or of digits up to f."""
        matches = [match for match in _BLOB.finditer(text) if _is_blob(match[0])]
        return matches[0].start() if matches and sum(map(_size, matches)) >= len(text) / 3 else None


def _is_blob(run: str) -> bool:
    kinds = (re.search("[a-z]", run), re.search("[A-Z]", run), re.search("[0-9]", run))
    different = len(set(run))
    hexadecimal = re.fullmatch(r"[0-9a-fA-F]+|(?:\\x[0-9a-fA-F]{2})+", run) is not None
    return different >= 12 and (all(kinds) or hexadecimal)


class MarkupLeft(_Text):
    """HTML that should have been text."""

    kinds = ("markup",)
    words = "are full of HTML"
    share_min, share_error = 0.1, 2.0

    def first(self, text: str) -> int | None:
        """A sixth of the text."""
        matches = list(_TAG.finditer(text))
        return matches[0].start() if len(matches) >= 4 and sum(map(_size, matches)) >= len(text) / 6 else None


def _size(match: re.Match[str]) -> int:
    return match.end() - match.start()


class LostCase(Check):
    """Text without a single capital, or of capitals alone, with a tokenizer that knows both."""

    kinds = ("lost-case",)
    _LETTERS_MIN = 5_000

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._lower: defaultdict[str, int] = defaultdict(int)
        self._upper: defaultdict[str, int] = defaultdict(int)
        self._tokens: defaultdict[str, int] = defaultdict(int)
        self._places: dict[str, list[str]] = defaultdict(list)
        self._cased: dict[int, bool] = {}
        self._epochs: dict[str, int] = {}

    def look(self, batch: CheckedBatch) -> None:
        """Count letters that have a case."""
        for piece in batch.pieces:
            text, vocabulary = batch.text(piece), batch.of(piece).vocabulary
            # A hundred thousand letters of a source are enough, and those of an epoch count once.
            self._epochs.setdefault(piece.source, piece.epoch)
            if piece.epoch != self._epochs[piece.source]:
                continue
            if text is None or vocabulary is None or self._lower[piece.source] > 100_000:
                continue
            if id(vocabulary) not in self._cased:
                few = list(vocabulary.texts.values())[:20_000]
                self._cased[id(vocabulary)] = sum(word != word.lower() for word in few) > len(few) / 20
            if not self._cased[id(vocabulary)]:
                continue
            small, large = text.lower(), text.upper()
            if len(small) == len(text) == len(large):
                self._upper[piece.source] += sum(a != b for a, b in zip(text, small, strict=True))
                self._lower[piece.source] += sum(a != b for a, b in zip(text, large, strict=True))
            self._tokens[piece.source] += piece.length
            if len(self._places[piece.source]) < 3:
                self._places[piece.source].append(batch.place(piece.row, piece.at))

    def tell(self, tokens: int) -> list[Finding]:
        """A finding for every source that has but one of both."""
        findings = []
        for name, places in self._places.items():
            lower, upper = self._lower[name], self._upper[name]
            if lower + upper < self._LETTERS_MIN or min(lower, upper) > 0:
                continue
            what = "capital" if not upper else "small letter"
            sentence = (
                f"{lower + upper:,} letters{f' of {name}' if name else ''}, and not one {what} among them"
            )
            cost = Cost(self._tokens[name] / max(1, sum(self._tokens.values())))
            findings.append(self.found(sentence, places, cost, severity="warning", source=name))
        return findings
