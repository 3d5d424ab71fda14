"""Texts that are not lines of UTF-8 yet, written down as such: UTF-16 and UTF-32, JSON arrays, and objects over several lines.

Raw line ends cannot stand inside a JSON string, so they are only space. A transcript therefore exchanges single bytes: line
ends inside a value become spaces, and the comma after an element becomes the end of its line. Everything else, numbers and
keys as they are spelt, stays where it was: byte 1,000 of a transcript is byte 1,000 of the text.
"""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import FileUnusable

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF8_MARK = "\ufeff"
_SPACE = re.compile(r"[ \t\r\n]*")
#: Only for where values end: what numbers are, the scan of the lines says.
_DECODE = json.JSONDecoder(parse_int=len, parse_float=len).raw_decode
#: A word, a number or an escape that the end of a piece may have cut.
_CUT = re.compile(r"-?[A-Za-z]{0,8}|[.]|[eE][+-]|\\?u?[0-9a-fA-F]{0,4}")
_UNENDED = "Unterminated string"


@dataclass(frozen=True, slots=True)
class Form:
    """How a text has to be written down."""

    #: utf-8, utf-16 or utf-32.
    encoding: str = "utf-8"
    #: ``lines``, ``array`` (the elements of one JSON array) or ``values`` (JSON objects over several lines).
    layout: str = "lines"

    @property
    def is_plain(self) -> bool:
        """Whether the text is lines of UTF-8 as it is."""
        return self == Form()

    @property
    def name(self) -> str:
        """For the index."""
        return f"{self.layout} in {self.encoding}"


def encoding_of(head: bytes) -> str:
    """What a text is written in, as its byte order mark says; UTF-8 where it has none."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")


def text_head(head: bytes) -> str:
    """The beginning of a text, without its mark; bytes that are no text become surrogates."""
    decoder = codecs.getincrementaldecoder(encoding_of(head))("surrogateescape")
    try:
        return decoder.decode(head).removeprefix(_UTF8_MARK)
    except UnicodeError:
        return ""


def form_of(kind: str, head: bytes) -> Form:
    """The form of a text of lines (``text``) or of JSON (``jsonl``), from its beginning."""
    encoding = encoding_of(head)
    return Form(encoding, layout_of(text_head(head)) if kind == "jsonl" else "lines")


def layout_of(text: str) -> str:
    """Whether JSON, from its beginning, is lines, one array, or objects over several lines.

    A first line that is broken does not make the rest one object: then what follows it does not go on as JSON.
    """
    text = text.lstrip()
    if text.startswith("["):
        return "array"
    end = _end_of(text)
    return "values" if "\n" in text[:end].rstrip("\r\n") else "lines"


def _end_of(text: str) -> int:
    """Where the first value ends, or all of the text if it goes on; 0 if it is broken before."""
    if not text.startswith("{"):
        return 0
    try:
        return _DECODE(text)[1]
    except json.JSONDecodeError as problem:
        return len(text) if _is_cut(problem, text) else 0
    except RecursionError:
        return 0


def _is_cut(problem: json.JSONDecodeError, text: str) -> bool:
    """Whether a fault is only that the text ends here."""
    return problem.msg.startswith(_UNENDED) or _CUT.fullmatch(text, problem.pos) is not None


def in_utf8(pieces: Iterator[bytes], label: str) -> Iterator[bytes]:
    """A text in UTF-8. What is UTF-8 already is passed on as it is."""
    first = next(pieces, b"")
    encoding = encoding_of(first)
    if encoding == "utf-8":
        yield first
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    at = 0
    try:
        piece = first
        while piece:
            yield decoder.decode(piece).encode()
            at += len(piece)
            piece = next(pieces, b"")
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as problem:
        reason = f"it is not {encoding.upper()}, though its first bytes say so, at byte {at} or soon after"
        raise FileUnusable(path=label, reason=reason) from problem


def transcribe(form: Form, pieces: Iterator[bytes], label: str, row_bytes_max: int) -> Iterator[bytes]:
    """The text, given in UTF-8, as lines."""
    if form.layout == "lines":
        return pieces
    return _Values(form.layout, pieces, label, row_bytes_max).lines()


class _Values:
    """Walks over JSON values that come in pieces."""

    def __init__(self, layout: str, pieces: Iterator[bytes], label: str, row_bytes_max: int) -> None:
        self._in_array = layout == "array"
        self._pieces = pieces
        self._label = label
        self._row_bytes_max = row_bytes_max
        # What is no UTF-8 goes through as it is: the scan of the lines says where it stands.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        #: Text that has come, and the next character to look at.
        self._text = ""
        self._at = 0
        #: Bytes that were written down, and values among them.
        self._offset = 0
        self._count = 0

    def lines(self) -> Iterator[bytes]:
        """Every value on a line of its own."""
        self._more()
        if self._text.startswith(_UTF8_MARK):
            self._at = 1
            yield self._written("   ")
        yield self._space()
        if self._in_array:
            self._at += 1
            yield self._written(" ") + self._space()
        while self._here() not in ("", "]" if self._in_array else ""):
            self._count += 1
            yield self._value()
            yield self._between(self._space())
        if not self._in_array:
            return
        if not self._here():
            raise self._fault(self._at, "the array has no end")
        self._at += 1
        yield self._written(" ") + self._space()
        if self._here():
            raise self._fault(self._at, "nothing may follow the array")

    def _between(self, space: bytes) -> bytes:
        """What separates two values, after a space."""
        if not self._in_array:
            return space[:-1] + b"\n" if space else self._written("\n")
        if self._here() == "]":
            return space
        if self._here() != ",":
            end = "the array has no end" if not self._here() else "expected `,` or `]` after an element"
            raise self._fault(self._at, end)
        self._at += 1
        separator = space + self._written("\n") + self._space()
        if self._here() == "]":
            raise self._fault(self._at, "expected an element after `,`")
        return separator

    def _value(self) -> bytes:
        # Each turn reads at least as much again as there is, up to the limit.
        while True:
            try:
                _, end = _DECODE(self._text, self._at)
            except json.JSONDecodeError as problem:
                cut = _is_cut(problem, self._text)
                if cut and len(self._text) - self._at > self._row_bytes_max:
                    raise self._fault(self._at, f"it is longer than {self._row_bytes_max} bytes") from problem
                if not cut or not self._more():
                    raise self._fault(problem.pos, problem.msg) from problem
            except RecursionError as problem:
                raise self._fault(self._at, "it is nested too deep") from problem
            else:
                # A number may go on in the next piece.
                if end < len(self._text) or not self._more():
                    break
        value = self._text[self._at : end]
        self._at = end
        return self._written(value.replace("\n", " ").replace("\r", " "))

    def _space(self) -> bytes:
        """Space up to the next character that is none."""
        written = b""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None, "no space is a match too"
            written += self._written(" " * (match.end() - self._at))
            self._at = match.end()
            if self._at < len(self._text) or not self._more():
                return written

    def _here(self) -> str:
        return self._text[self._at : self._at + 1]

    def _more(self) -> bool:
        """Get further text; whether there was some."""
        wanted = len(self._text) - self._at
        self._text = self._text[self._at :]
        self._at = 0
        parts: list[str] = []
        while not parts or sum(map(len, parts)) < wanted:
            piece = next(self._pieces, b"")
            part = self._decoder.decode(piece, final=not piece)
            if not piece and not part:
                break
            parts.append(part)
        self._text += "".join(parts)
        return any(parts)

    def _written(self, text: str) -> bytes:
        data = text.encode("utf-8", "surrogateescape")
        self._offset += len(data)
        return data

    def _fault(self, at: int, reason: str) -> FileUnusable:
        before = self._text[self._at : at].encode("utf-8", "surrogateescape")
        said = f"JSON value {max(1, self._count):,} (byte {self._offset + len(before):,}): {reason}"
        hint = "its rows are parts of one JSON text, so none can be left out: mend the file"
        return FileUnusable(path=self._label, reason=said, hint=hint)
