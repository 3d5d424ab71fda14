"""What every token of a tokenizer stands for, in exact bytes, read from the tokenizer's file once.

The file alone is read, never the tokenizer: what a token stands for depends on the way the vocabulary is written. *Byte level*: every
character of a token is a byte (GPT-2's alphabet). *Metaspace*: ``▁`` is a space, and ``<0x0A>`` a byte where the model falls back to
bytes. *Pieces*: ``##ing`` continues a word. Otherwise a token is its text. Added tokens are always their text.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from penstock.data.stages import Chat, Stage, Tokenize
from penstock.errors import UsageError
from penstock.view.model.tokens.glyphs import shown

_BYTES_MAX = 1 << 28
_METASPACE = "▁"
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenKind(IntEnum):
    """What a token is, as the column ``kinds`` says it."""

    TEXT = 0
    SPECIAL = 1
    #: Its bytes are no whole characters: together with its neighbours they may be.
    PARTIAL = 2
    #: It has control characters, or others that have no shape.
    INVISIBLE = 3
    PADDING = 4
    #: The tokenizer has no such number.
    UNKNOWN = 5
    #: There is no tokenizer, so the number is all there is.
    NUMBER = 6


KIND_NAMES = [kind.name.lower() for kind in TokenKind]


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by number. Bytes are made when a token is asked for: most of a vocabulary is never on a screen."""

    #: Where it was read, and how it is written.
    path: str
    style: str
    #: Tokens as the file has them, and what makes bytes of one.
    texts: Mapping[int, str]
    read: Callable[[str], bytes]
    #: Tokens that are their text, special ones among them.
    added: Mapping[int, str]
    specials: Mapping[int, str]

    @cached_property
    def size(self) -> int:
        """One more than the largest number."""
        return max(max(self.texts, default=-1), max(self.added, default=-1)) + 1

    @cached_property
    def _shown(self) -> dict[int, tuple[bytes, TokenKind]]:
        return {}

    @cached_property
    def _bytes(self) -> dict[int, bytes | None]:
        return {}

    def bytes_of(self, token: int) -> bytes | None:
        """What a token stands for; None where the tokenizer has no such number. Made once for each number."""
        data = self._bytes.get(token, b"")
        if data == b"":
            data = self._bytes[token] = self._read(token)
        return data

    def _read(self, token: int) -> bytes | None:
        if token in self.added:
            return _utf8(self.added[token])
        text = self.texts.get(token)
        return None if text is None else self.read(text)

    def display(self, token: int) -> tuple[bytes, TokenKind]:
        """How a token looks, and what it is. Looked up once for each number that was ever shown."""
        display = self._shown.get(token)
        if display is None:
            display = self._shown[token] = self._display(token)
        return display

    def _display(self, token: int) -> tuple[bytes, TokenKind]:
        data = self.bytes_of(token)
        if data is None:
            return f"⟨{token}⟩".encode(), TokenKind.UNKNOWN
        # A piece that continues a word says so.
        written = _utf8(self.texts[token]) if self.style == "pieces" and token not in self.added else data
        words, partial, invisible = shown(written)
        if token in self.specials:
            return words.encode(), TokenKind.SPECIAL
        kind = TokenKind.PARTIAL if partial else TokenKind.INVISIBLE if invisible else TokenKind.TEXT
        return words.encode(), kind


class _Model(msgspec.Struct):
    """What of a tokenizer's model says what tokens stand for; merges are not read."""

    vocab: dict[str, int] | list[tuple[str, float]]
    type: str = ""
    byte_fallback: bool = False
    continuing_subword_prefix: str | None = None


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _File(msgspec.Struct):
    """A ``tokenizer.json``."""

    model: _Model
    added_tokens: list[_Added] | None = None
    decoder: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    normalizer: dict[str, Any] | None = None


def tokenizing(stages: Sequence[Stage]) -> Tokenize | Chat | None:
    """The stage that makes a source's tokens, if one does."""
    return next((stage for stage in stages if isinstance(stage, Tokenize | Chat)), None)


def vocabulary_of(stage: Tokenize | Chat) -> Vocabulary:
    """The vocabulary of the tokens that a stage makes."""
    if isinstance(stage, Tokenize) and stage.has_ranks:
        return read_ranks(Path(stage.tokenizer), dict(stage.special_tokens))
    return read_vocabulary(Path(stage.tokenizer))


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a ``tokenizer.json``, or of a file of ranks without special tokens."""
    if path.suffix == ".tiktoken":
        return read_ranks(path, {})
    try:
        file = msgspec.json.decode(_content(path), type=_File)
        style = _style(file)
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as reason:
        raise UsageError(f"{path} is not a tokenizer.json that can be shown: {reason}") from reason
    vocab = file.model.vocab
    # A unigram model has a list of tokens and scores.
    texts = (
        {number: text for text, number in vocab.items()}
        if isinstance(vocab, dict)
        else {number: text for number, (text, _) in enumerate(vocab)}
    )
    added = {token.id: token.content for token in file.added_tokens or ()}
    specials = {token.id: token.content for token in file.added_tokens or () if token.special}
    return Vocabulary(str(path), style, texts, _reading(style, file.model), added, specials)


def read_ranks(path: Path, specials: Mapping[str, int]) -> Vocabulary:
    """The vocabulary of a file of ranks, as tiktoken reads them."""
    texts: dict[int, str] = {}
    try:
        for line in _content(path).decode("ascii").splitlines():
            if line:
                token, rank = line.split()
                texts[int(rank)] = token
        for token in texts.values():
            base64.b64decode(token, validate=True)
    except ValueError as reason:
        raise UsageError(f"{path} holds no ranks: {reason}") from reason
    named = {number: text for text, number in specials.items()}
    return Vocabulary(str(path), "ranks", texts, base64.b64decode, named, named)


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise UsageError(f"{path} has {path.stat().st_size:,} bytes, at most {_BYTES_MAX:,} are read")
        return path.read_bytes()
    except OSError as reason:
        raise UsageError(f"cannot read tokenizer {path}: {reason.strerror}") from reason


def _style(file: _File) -> str:
    parts = [*_parts(file.decoder), *_parts(file.pre_tokenizer)]
    kinds = [part["type"] for part in parts]
    replaced = [part for part in (*parts, *_parts(file.normalizer)) if part["type"] == "Replace"]
    if "ByteLevel" in kinds:
        return "byte level"
    if "Metaspace" in kinds or any(_METASPACE in str(part) for part in replaced):
        return "metaspace"
    if file.model.type == "Unigram":
        return "metaspace"
    # Older files have no type: pieces are told by their prefix.
    if file.model.type == "WordPiece" or (not file.model.type and file.model.continuing_subword_prefix):
        return "pieces"
    return "text"


def _parts(step: Any) -> list[dict[str, Any]]:
    """A step of a tokenizer, or the steps of a sequence of them."""
    if not step:
        return []
    inner = step.get("decoders") or step.get("pretokenizers") or step.get("normalizers")
    return [part for inner_step in inner for part in _parts(inner_step)] if inner else [step]


def _reading(style: str, model: _Model) -> Callable[[str], bytes]:
    """What makes bytes of a token as it is written."""
    if style == "byte level":
        table = {character: byte for byte, character in enumerate(_byte_alphabet())}
        return lambda text: _from_alphabet(text, table)
    if style == "metaspace":
        return lambda text: _from_metaspace(text, fallback=model.byte_fallback)
    if style == "pieces":
        prefix = model.continuing_subword_prefix or "##"
        return lambda text: _utf8(text.removeprefix(prefix))
    return _utf8


def _byte_alphabet() -> list[str]:
    """The character that GPT-2 has for every byte: those that can be seen are themselves, the others come after 255."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = iter(range(0x100, 0x200))
    return [chr(byte) if byte in seen else chr(next(other)) for byte in range(256)]


def _from_alphabet(text: str, table: dict[str, int]) -> bytes:
    try:
        return bytes(map(table.__getitem__, text))
    except KeyError:
        # A token that was put into the vocabulary as text.
        return _utf8(text)


def _from_metaspace(text: str, *, fallback: bool) -> bytes:
    match = _FALLBACK.fullmatch(text) if fallback else None
    return bytes([int(match[1], 16)]) if match else _utf8(text.replace(_METASPACE, " "))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
