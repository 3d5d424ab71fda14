"""Tokenize: text to tokens, with a Hugging Face ``tokenizer.json`` or a file of ranks as tiktoken reads them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from penstock._rust import digest
from penstock.errors import RecipeInvalid

RANKS = ".tiktoken"


@dataclass(frozen=True, slots=True)
class Tokenize:
    """Turns a field of text into tokens; the result is kept as a derived version."""

    kind: ClassVar[str] = "tokenize"
    #: Path of a ``tokenizer.json``, or of a ``.tiktoken`` file of ranks.
    tokenizer: str
    field: str = "text"
    #: Whether the tokenizer may add its special tokens (beginning and end of text).
    special: bool = False
    #: How a file of ranks splits text: a regular expression, or gpt2, r50k, cl100k or o200k.
    pattern: str = ""
    #: Special tokens of a file of ranks and their numbers; found in text when ``special`` is set.
    special_tokens: Mapping[str, int] | tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        given = self.special_tokens
        try:
            pairs = tuple(sorted(given.items() if isinstance(given, Mapping) else map(tuple, given)))
            good = all(isinstance(text, str) and text and type(number) is int for text, number in pairs)
        except (TypeError, ValueError):
            good = False
        if not good:
            hint = '{"<|endoftext|>" = 50256}'
            raise RecipeInvalid(field="special_tokens", reason=f"{given!r:.100} cannot be read", hint=hint)
        object.__setattr__(self, "special_tokens", pairs)
        check_tokenizer(self.tokenizer)
        if not isinstance(self.pattern, str):
            raise RecipeInvalid(field="pattern", reason=f"{self.pattern!r} is no regular expression")
        if self.has_ranks and not self.pattern:
            hint = 'pattern = "o200k", or the regular expression that the ranks were made with'
            reason = f"{self.tokenizer} holds ranks, which do not say how text is split"
            raise RecipeInvalid(field="pattern", reason=reason, hint=hint)
        if not self.has_ranks and (self.pattern or pairs):
            hint = f"leave it out for a tokenizer.json; a file of ranks is called {RANKS}"
            field = "pattern" if self.pattern else "special_tokens"
            raise RecipeInvalid(
                field=field, reason=f"{self.tokenizer} says itself how it splits text", hint=hint
            )

    @property
    def has_ranks(self) -> bool:
        """Whether the tokenizer is a file of ranks."""
        return str(self.tokenizer).endswith(RANKS)

    def document(self) -> dict[str, Any]:
        """By the tokenizer's content, not its name."""
        content = digest(Path(self.tokenizer).read_bytes())
        found = {"kind": self.kind, "tokenizer": content, "field": self.field, "special": self.special}
        if self.has_ranks:
            found |= {"pattern": self.pattern, "special_tokens": self.special_tokens}
        return found


def check_tokenizer(tokenizer: Any) -> None:
    """That there is such a file."""
    if not isinstance(tokenizer, str | os.PathLike) or not Path(tokenizer).is_file():
        hint = (
            f"give the path of a tokenizer.json, as Hugging Face tokenizers are saved, or of a file {RANKS}"
        )
        raise RecipeInvalid(field="tokenizer", reason=f"there is no file {tokenizer}", hint=hint)
