"""Token lengths under a Hugging Face ``tokenizer.json``, with the tokens themselves as the payload."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.formats.contract import Row
from penstock.registry.columns.library import installed
from penstock.registry.columns.measure import Computed, NothingToMeasure
from penstock.registry.tokenize.special_tokens import SpecialUse, Spelling, TokenizerFile

if TYPE_CHECKING:
    from penstock.registry.version import Version

_U16_MAX = 1 << 16
#: Text has about four bytes per token; a cautious estimate takes three.
BYTES_PER_TOKEN = 3


class TokenLength:
    """How many tokens a field has under a tokenizer."""

    name = "tokens"
    dtype = "<u4"

    def __init__(
        self, tokenizer: str | Path, *, field: str = "text", specials: SpecialUse | None = None
    ) -> None:
        self.file = TokenizerFile(tokenizer)
        self.field = field
        self.specials = specials or SpecialUse()

    def identity(self) -> dict[str, str]:
        """By the tokenizer's content, not its name."""
        identity = {
            "kind": "tokens",
            "tokenizer": self.file.digest,
            "field": self.field,
            "special": str(self.specials.add).lower(),
            "library": f"tokenizers {installed('tokenizers')}",
        }
        return identity | self.choices()

    def choices(self) -> dict[str, str]:
        """What of the identity came later: only where it changes tokens."""
        spellable = bool(self.file.special_tokens)
        choices = self.specials.identity(spellable=spellable) | dict.fromkeys(self.file.switched_off, "off")
        forged = {"forged": "error"} if self._refuses and self.file.is_forgeable else {}
        return choices | forged

    @property
    def _refuses(self) -> bool:
        return self.specials.in_text == "error"

    @cached_property
    def payloads(self) -> dict[str, str]:
        """The tokens, in the smallest type that holds every one."""
        # By the largest number: a vocabulary may have gaps.
        return {
            "tokens": token_dtype(max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=0))
        }

    @property
    def notes(self) -> list[str]:
        """What users should know of the tokenizer."""
        return self.file.notes

    def read(self, row: Row) -> str:
        """The text of a row."""
        text = text_of(row, self.field)
        if not self._refuses:
            return text
        if text in self.file.spelling:
            raise NothingToMeasure(spells(text, self.file.spelling))
        if (token := self.file.forged_token(text, self.tokenizer)) is not None:
            what = f"the text becomes the special token {token!r} when the tokenizer normalizes it"
            raise NothingToMeasure(f"{what}, which special_in_text forbids")
        return text

    def spelled(self, samples: list[str]) -> int:
        """How many texts spell a special token."""
        return sum(text in self.file.spelling for text in samples)

    def compute(self, samples: list[str]) -> Computed:
        """Encode some texts; the tokenizer's own threads do not hold the GIL."""
        encodings = self.tokenizer.encode_batch_fast(samples, add_special_tokens=self.specials.add)
        (dtype,) = self.payloads.values()
        tokens = [with_ends(np.array(encoding.ids, dtype=dtype), self.specials) for encoding in encodings]
        return [len(ids) for ids in tokens], {"tokens": tokens}

    def encoded(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of one text, and of which characters each was made."""
        encoding = self.tokenizer.encode(text, add_special_tokens=self.specials.add)
        if not encoding.ids:
            return [], []
        before = [] if self.specials.bos is None else [self.specials.bos]
        after = [] if self.specials.eos is None else [self.specials.eos]
        spans = [*((0, 0) for _ in before), *encoding.offsets, *((len(text), len(text)) for _ in after)]
        return [*before, *encoding.ids, *after], spans

    def payload_bytes(self, version: "Version") -> int:
        """From the size of the shards."""
        return version.bytes // BYTES_PER_TOKEN * int(self.payloads["tokens"][-1])

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer itself; threads may use it at the same time."""
        return self.file.load_plain() if self.specials.in_text == "plain" else self.file.load()

    def __getstate__(self) -> dict[str, Any]:
        # Workers load the tokenizer themselves.
        return {key: value for key, value in self.__dict__.items() if key != "tokenizer"}


def with_ends(tokens: "np.ndarray[Any, Any]", specials: SpecialUse) -> "np.ndarray[Any, Any]":
    """Tokens with those that begin and end a document; nothing is put around an empty one."""
    if not len(tokens) or (specials.bos is None and specials.eos is None):
        return tokens
    before = [] if specials.bos is None else [specials.bos]
    after = [] if specials.eos is None else [specials.eos]
    return np.concatenate([before, tokens, after]).astype(tokens.dtype)


def spells(text: str, spelling: Spelling) -> str:
    """Why a row is refused where special tokens may not be spelled."""
    assert spelling.pattern is not None
    match = spelling.pattern.search(text)
    return f"the text spells the special token {match[0] if match else ''!r}, which special_in_text forbids"


def token_dtype(largest: int) -> str:
    """The smallest type that holds every token."""
    return "<u2" if largest < _U16_MAX else "<u4"


def text_of(row: Row, field: str) -> str:
    """A field that is text, or bytes that are UTF-8; an empty one may be null, but it must be there."""
    value = row.get(field)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as problem:
            reason = f"field {field!r} is bytes that are not UTF-8 at byte {problem.start}"
            raise NothingToMeasure(reason) from problem
    if value is None and field in row:
        return ""
    kind = "missing" if field not in row else type(value).__name__
    raise NothingToMeasure(f"field {field!r} is {kind}, but tokens are made of text")
