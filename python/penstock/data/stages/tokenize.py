"""Tokenize: text to tokens, with a Hugging Face ``tokenizer.json`` or a file of ranks as tiktoken reads them."""

import os
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, ClassVar

from penstock._rust import digest
from penstock.data.recipe.names import check_name
from penstock.errors import RecipeInvalid, UsageError
from penstock.registry.columns.column import SPECIAL_IN_TEXT
from penstock.registry.tokenize.document_ends import ranked_token_of, token_of
from penstock.registry.tokenize.special_tokens import InText, SpecialUse, TokenizerFile, check_in_text

RANKS = ".tiktoken"
Token = int | str | None


@dataclass(frozen=True, slots=True)
class Tokenize:
    """Turns a field of text into tokens; the result is kept as a derived version."""

    kind: ClassVar[str] = "tokenize"
    #: Path of a ``tokenizer.json``, or of a ``.tiktoken`` file of ranks.
    tokenizer: str
    field: str = "text"
    #: The older name of ``add_special``; for a file of ranks, of ``special_in_text="token"``.
    special: InitVar[bool | None] = None
    #: How a file of ranks splits text: a regular expression, or gpt2, r50k, cl100k or o200k.
    pattern: str = ""
    #: Special tokens of a file of ranks and their numbers.
    special_tokens: Mapping[str, int] | tuple[tuple[str, int], ...] = ()
    #: Whether the tokenizer adds its own special tokens (beginning and end of text).
    add_special: bool = False
    #: What text becomes that spells a special token: characters like any others, the token, or an error.
    special_in_text: InText = "plain"
    #: The token before and the one after every text: a number, a name, or ``auto`` for what the tokenizer's configuration says.
    bos: Token = None
    eos: Token = None

    def __post_init__(self, special: bool | None) -> None:
        check_tokenizer(self.tokenizer)
        check_name("field", self.field)
        object.__setattr__(self, "special_tokens", _pairs(self.special_tokens))
        if special and self.has_ranks:
            object.__setattr__(self, "special_in_text", "token")
        elif special:
            object.__setattr__(self, "add_special", True)
        self._check_pattern()
        for name in ("add_special", "special"):
            flag = self.add_special if name == "add_special" else special
            if flag is not None and type(flag) is not bool:
                raise RecipeInvalid(field=name, reason=f"{flag!r:.50} is neither true nor false")
        check_special_in_text(self.special_in_text)
        self._check_ends()

    def _check_pattern(self) -> None:
        if not isinstance(self.pattern, str):
            raise RecipeInvalid(
                field="pattern", reason=f"must be a regular expression as text, got {self.pattern!r:.100}"
            )
        if self.has_ranks and not self.pattern:
            hint = 'pattern = "o200k", or the regular expression that the ranks were made with'
            reason = f"{self.tokenizer} holds ranks, which do not say how text is split"
            raise RecipeInvalid(field="pattern", reason=reason, hint=hint)
        if not self.has_ranks and (self.pattern or self.special_tokens):
            hint = f"leave it out for a tokenizer.json; a file of ranks is called {RANKS}"
            field = "pattern" if self.pattern else "special_tokens"
            raise RecipeInvalid(
                field=field, reason=f"{self.tokenizer} says itself how it splits text", hint=hint
            )

    def _check_ends(self) -> None:
        if self.add_special and self.has_ranks:
            reason, hint = f"{self.tokenizer} holds ranks, which add no tokens", "name them: bos=, eos="
            raise RecipeInvalid(field="add_special", reason=reason, hint=hint)
        for name, token in (("bos", self.bos), ("eos", self.eos)):
            if token is not None and self.add_special:
                reason = "the tokenizer adds its own special tokens already, so there could be two"
                raise RecipeInvalid(field=name, reason=reason, hint=f"leave out add_special or {name}")
        self.specials  # noqa: B018 - says now, not at the first row, that a token cannot be found

    @property
    def has_ranks(self) -> bool:
        """Whether the tokenizer is a file of ranks."""
        return str(self.tokenizer).endswith(RANKS)

    @property
    def specials(self) -> SpecialUse:
        """What special tokens are used for, with tokens by number."""
        if self.bos is None and self.eos is None:
            return SpecialUse(add=self.add_special, in_text=self.special_in_text)
        path = Path(self.tokenizer)
        ends: dict[str, int | None] = {}
        for name, token in (("bos", self.bos), ("eos", self.eos)):
            try:
                ends[name] = (
                    ranked_token_of(name, token, path, dict(self.special_tokens))
                    if self.has_ranks
                    else token_of(name, token, TokenizerFile(path))
                )
            except UsageError as reason:
                raise RecipeInvalid(field=name, reason=str(reason), hint=reason.hint) from reason
        return SpecialUse(
            add=self.add_special, in_text=self.special_in_text, bos=ends["bos"], eos=ends["eos"]
        )

    def document(self) -> dict[str, Any]:
        """By the tokenizer's content, not its name. What came later counts only where it changes tokens."""
        specials = self.specials
        document: dict[str, Any] = {"kind": self.kind, "field": self.field}
        if self.has_ranks:
            content = digest(Path(self.tokenizer).read_bytes())
            document |= {"special": specials.in_text == "token", "tokenizer": content}
            document |= {"pattern": self.pattern, "special_tokens": self.special_tokens}
            spellable = bool(self.special_tokens) and specials.in_text == "error"
        else:
            file = TokenizerFile(self.tokenizer)
            document |= {"special": self.add_special, "tokenizer": file.digest}
            spellable = bool(file.special_tokens)
        return document | specials.identity(spellable=spellable)


def check_tokenizer(tokenizer: Any) -> None:
    """That there is such a file."""
    if not isinstance(tokenizer, str | os.PathLike) or not Path(tokenizer).is_file():
        hint = (
            f"give the path of a tokenizer.json, as Hugging Face tokenizers are saved, or of a file {RANKS}"
        )
        raise RecipeInvalid(field="tokenizer", reason=f"the file {tokenizer} does not exist", hint=hint)


def check_special_in_text(value: Any) -> None:
    """That text which spells a special token may be treated so."""
    try:
        check_in_text(value)
    except UsageError as reason:
        raise RecipeInvalid(field=SPECIAL_IN_TEXT, reason=str(reason)) from reason


def _pairs(special_tokens: Any) -> tuple[tuple[str, int], ...]:
    try:
        pairs = tuple(
            sorted(
                special_tokens.items() if isinstance(special_tokens, Mapping) else map(tuple, special_tokens)
            )
        )
        good = all(isinstance(text, str) and text and type(number) is int for text, number in pairs)
    except (TypeError, ValueError):
        good = False
    if not good:
        hint = '{"<|endoftext|>" = 50256}'
        raise RecipeInvalid(
            field="special_tokens", reason=f"{special_tokens!r:.100} cannot be read", hint=hint
        )
    return pairs
