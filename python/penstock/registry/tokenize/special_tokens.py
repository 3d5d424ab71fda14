"""Special tokens of a tokenizer: which texts spell one, and what becomes of that; beginnings and ends of documents.

Text in the data is not a control token unless somebody says so. For ``plain`` a tokenizer is loaded under which no text spells
a special token: in a copy of its file every special token has a name of characters that Unicode keeps out of text. That
holds for models that know special tokens as pieces of their own too, where switching off the search for added tokens is not
enough. A text that spells none has the same tokens under both.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from penstock._rust import digest
from penstock.errors import UsageError
from penstock.registry.columns.column import SPECIAL_IN_TEXT

InText = Literal["plain", "token", "error"]
IN_TEXT: tuple[str, ...] = get_args(InText)
#: What models of pieces call bytes, which they fall back to for characters that they have no piece for.
_BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialUse:
    """What special tokens are used for."""

    #: Whether the tokenizer adds its own.
    add: bool = False
    #: What text that spells one becomes: the characters, the token, or an error.
    in_text: InText = "plain"
    #: Put before and after every text that is not empty.
    bos: int | None = None
    eos: int | None = None

    def identity(self, *, spellable: bool) -> dict[str, str]:
        """What tells it from uses as they were before there was a choice; nothing where no text could spell one."""
        identity = {SPECIAL_IN_TEXT: self.in_text} if spellable and self.in_text != "token" else {}
        ends = {"bos": self.bos, "eos": self.eos}
        return identity | {name: str(token) for name, token in ends.items() if token is not None}


class Spelling:
    """Finds special tokens in text."""

    def __init__(self, tokens: Iterable[str], *, folded: Iterable[str] = ()) -> None:
        exact, loose = (
            sorted(set(group), key=lambda token: (-len(token), token)) for group in (tokens, folded)
        )
        parts = ["|".join(map(re.escape, exact))] if exact else []
        parts += [f"(?i:{'|'.join(map(re.escape, loose))})"] if loose else []
        #: None where there are none.
        self.pattern = re.compile("|".join(parts)) if parts else None
        # Two characters are looked for much faster than a pattern, and most texts have none of them.
        self._beginnings = () if loose else tuple(sorted({token[:2] for token in exact}))

    def __contains__(self, text: str) -> bool:
        """Whether a text spells one."""
        if self.pattern is None or (
            self._beginnings and not any(beginning in text for beginning in self._beginnings)
        ):
            return False
        return self.pattern.search(text) is not None


class _Added(msgspec.Struct):
    """A token that was added to a tokenizer."""

    id: int
    content: str
    special: bool = False
    normalized: bool = True


class _Model(msgspec.Struct):
    """What is read of a tokenizer's model: the token for what it does not know."""

    unk_token: str | None = None
    unk_id: int | None = None


class _Facts(msgspec.Struct):
    """What is read of a tokenizer.json, apart from its vocabulary."""

    model: _Model = msgspec.field(default_factory=_Model)
    added_tokens: list[_Added] = []
    normalizer: Any = None
    truncation: dict[str, Any] | None = None
    padding: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None


class TokenizerFile:
    """A ``tokenizer.json``: what it says of itself, and the tokenizer without truncation and padding."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.content = self.path.read_bytes()
        except OSError as reason:
            hint = "give the path of a tokenizer.json, as Hugging Face tokenizers are saved"
            raise UsageError(f"cannot read tokenizer {self.path}: {reason.strerror}", hint=hint) from reason

    @property
    def digest(self) -> str:
        """Its identity."""
        return digest(self.content)

    @cached_property
    def _facts(self) -> _Facts:
        try:
            return msgspec.json.decode(self.content, type=_Facts)
        except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
            raise UsageError(f"{self.path} must be a tokenizer.json: {reason}") from reason

    @property
    def special_tokens(self) -> dict[str, int]:
        """Those that are marked special, by their text."""
        return {
            token.content: token.id for token in self._facts.added_tokens if token.special and token.content
        }

    @cached_property
    def spelling(self) -> Spelling:
        """Finds special tokens in text."""
        specials = [token for token in self._facts.added_tokens if token.special and token.content]
        folded = {token.content for token in specials if token.normalized and self._facts.normalizer}
        return Spelling({token.content for token in specials} - folded, folded=folded)

    @cached_property
    def _forgeable(self) -> dict[int, _Added]:
        """Special tokens that a model may make of other characters: a normalizer turns those into the token's own."""
        if not self._facts.normalizer:
            return {}
        unknown = self._facts.model
        return {
            token.id: token
            for token in self._facts.added_tokens
            if token.special
            and token.content
            and token.content not in _BYTE_TOKENS
            and token.content != unknown.unk_token
            and token.id != unknown.unk_id
        }

    def is_forged(self, number: int, text: str) -> bool:
        """Whether a token is a special one, though the characters it was made of do not spell it."""
        token = self._forgeable.get(number)
        if token is None:
            return False
        # Added tokens are looked for in the text as it is, or, where they say so, in what the normalizer makes of it.
        return (
            token.content.casefold() not in text.casefold() if token.normalized else token.content not in text
        )

    @property
    def is_forgeable(self) -> bool:
        """Whether text may become a special token that it does not spell."""
        return bool(self._forgeable)

    def forged_token(self, text: str, tokenizer: Any) -> str | None:
        """The first special token that a text becomes though it does not spell it."""
        if not self._forgeable:
            return None
        encoding = tokenizer.encode(text, add_special_tokens=False)
        for number, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            if self.is_forged(number, text[start:stop]):
                return self._forgeable[number].content
        return None

    @property
    def switched_off(self) -> dict[str, dict[str, Any]]:
        """What the file would do to tokens, and what is not done: ``truncation`` and ``padding``."""
        settings = {"truncation": self._facts.truncation, "padding": self._facts.padding}
        return {name: setting for name, setting in settings.items() if setting is not None}

    @property
    def notes(self) -> list[str]:
        """What users should know of it."""
        shown = {
            name: ", ".join(f"{key} {value}" for key, value in setting.items() if not isinstance(value, dict))
            for name, setting in self.switched_off.items()
        }
        return [f"{name} in {self.path.name} is switched off ({text})" for name, text in shown.items()]

    @property
    def post_processor(self) -> dict[str, Any]:
        """What the tokenizer does when it adds special tokens."""
        return self._facts.post_processor or {}

    def load(self) -> Any:
        """The tokenizer."""
        return self._loaded(self.content)

    def load_plain(self) -> Any:
        """The tokenizer under which no text spells a special token."""
        if not self.special_tokens:
            return self.load()
        tokenizer = self._loaded(json.dumps(_unspelt(json.loads(self.content)), ensure_ascii=False).encode())
        tokenizer.encode_special_tokens = True
        return tokenizer

    def _loaded(self, content: bytes) -> Any:
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_buffer(content)
        # The library raises bare Exceptions.
        except Exception as reason:
            raise UsageError(f"{self.path} must be a tokenizer.json: {reason}") from reason
        # Both are meant for a model's input, and would cut samples and fill them up before they are packed.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


def _unspelt(document: dict[str, Any]) -> dict[str, Any]:
    """The file of a tokenizer with other names for its special tokens."""
    model = document["model"]
    merged = {
        "".join(merge.split(" ") if isinstance(merge, str) else merge) for merge in model.get("merges") or ()
    }
    # A token that merges give, or that stands for a byte, cannot be called anything else; the search for it is switched off.
    kept = merged | (_BYTE_TOKENS if model.get("byte_fallback") else frozenset())
    names = {
        added["content"]: f"\ufdd0{added['id']}\ufdd1"
        for added in document["added_tokens"]
        if added["special"] and added["content"] not in kept
    }
    for token in document["added_tokens"]:
        if token["content"] in names:
            token |= {"content": names[token["content"]], "normalized": False}
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    elif isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): number for piece, number in vocabulary.items()}
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    return document


def check_in_text(choice: Any) -> None:
    """That text may be treated so."""
    if choice not in IN_TEXT:
        raise UsageError(f"{SPECIAL_IN_TEXT} must be plain, token or error, got {choice!r:.50}")


def named_token(which: str, token: Any, known: Mapping[str, int], tokenizer: Any = None) -> int:
    """The number of a token that is given by name or by number; ``which`` says what it is for."""
    if isinstance(token, str):
        number = known.get(token, tokenizer.token_to_id(token) if tokenizer is not None else None)
        if number is None:
            shown = ", ".join(sorted(known)[:8])
            hint = f"special tokens are {shown}" if known else "give its number"
            raise UsageError(f"{which}: the tokenizer has no token {token!r:.80}", hint=hint)
        return int(number)
    if type(token) is not int or not 0 <= token < 1 << 32:
        raise UsageError(
            f"{which} must be a token's number or name, got {token!r:.50}",
            hint='"<|endoftext|>", or 0, or "auto"',
        )
    if tokenizer is not None and tokenizer.id_to_token(token) is None:
        raise UsageError(f"{which}: the tokenizer has no token {token}")
    return token
