"""Tokens from a file of ranks, as tiktoken reads them: a token in base64 and its rank per line.

The ranks do not say how text is split before it is merged, so a pattern comes with them: a regular expression, or the name
of a well-known one.
"""

import base64
import binascii
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from penstock._rust import digest
from penstock.errors import UsageError
from penstock.formats.contract import Row
from penstock.registry.columns.library import installed
from penstock.registry.columns.measure import Computed, NothingToMeasure
from penstock.registry.tokenize.special_tokens import SpecialUse, Spelling
from penstock.registry.tokenize.tokens import BYTES_PER_TOKEN, spells, text_of, token_dtype, with_ends

if TYPE_CHECKING:
    from penstock.registry.version import Version

_GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
_CL100K = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
_O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""",
    r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
    r"""\s*[\r\n]+""",
    r"""\s+(?!\S)""",
    r"""\s+""",
)
#: As they were published with the encodings of these names.
PATTERNS = {"gpt2": _GPT2, "r50k": _GPT2, "cl100k": _CL100K, "o200k": "|".join(_O200K)}


class RankedText(NamedTuple):
    """The tokens of a text, and whether it spells a special one."""

    tokens: Any
    spelled: bool


class RankTokens:
    """How many tokens a field has under ranks; with the tokens."""

    name = "tokens"
    dtype = "<u4"
    #: What users should know: nothing.
    notes: ClassVar[list[str]] = []

    def __init__(
        self,
        ranks: str | Path,
        *,
        pattern: str,
        special_tokens: Mapping[str, int] | None = None,
        field: str = "text",
        specials: SpecialUse | None = None,
    ) -> None:
        self.path = Path(ranks)
        self.pattern = PATTERNS.get(pattern, pattern)
        self.special_tokens = dict(special_tokens or {})
        self.field = field
        self.specials = specials or SpecialUse()
        try:
            self._content = self.path.read_bytes()
        except OSError as reason:
            raise UsageError(f"cannot read ranks {self.path}: {reason.strerror}") from reason

    def identity(self) -> dict[str, str]:
        """By content: ranks, pattern and special tokens."""
        special_tokens = msgspec.json.encode(self.special_tokens, order="deterministic")
        identity = {
            "kind": "ranks",
            "tokenizer": digest(self._content),
            "pattern": self.pattern,
            "special_tokens": special_tokens.decode(),
            "field": self.field,
            "special": str(self.specials.in_text == "token").lower(),
            "library": f"tiktoken {installed('tiktoken')}",
        }
        # Text was plain here before there was a choice.
        forbids = bool(self.special_tokens) and self.specials.in_text == "error"
        return identity | self.specials.identity(spellable=forbids)

    @cached_property
    def payloads(self) -> dict[str, str]:
        """The tokens, in the smallest type that holds every one."""
        return {"tokens": token_dtype(self.encoding.max_token_value)}

    def read(self, row: Row) -> "RankedText":
        """The tokens of a row; they are made without the GIL, so threads work at the same time."""
        text = text_of(row, self.field)
        spelled = text in self.spelling
        if spelled and self.specials.in_text == "error":
            raise NothingToMeasure(spells(text, self.spelling))
        allowed = "all" if self.specials.in_text == "token" else set()
        try:
            tokens = self.encoding.encode_to_numpy(text, allowed_special=allowed, disallowed_special=())
        # A pattern may need more steps for a text than the library takes; text may have halves of characters.
        except ValueError as reason:
            raise NothingToMeasure(f"tiktoken cannot encode {text!r:.60}: {reason}") from reason
        return RankedText(with_ends(tokens, self.specials), spelled)

    @cached_property
    def spelling(self) -> Spelling:
        """Finds special tokens in text."""
        return Spelling(self.special_tokens)

    def spelled(self, samples: "list[RankedText]") -> int:
        """How many texts spell a special token."""
        return sum(sample.spelled for sample in samples)

    def compute(self, samples: "list[RankedText]") -> Computed:
        """Their lengths, and the tokens as they are kept."""
        dtype = self.payloads["tokens"]
        tokens = [sample.tokens.astype(dtype) for sample in samples]
        return [len(ids) for ids in tokens], {"tokens": tokens}

    def encoded(self, text: str) -> tuple[list[int], None]:
        """The tokens of one text; of which characters each was made is not known."""
        return self.read({self.field: text}).tokens.tolist(), None

    def payload_bytes(self, version: "Version") -> int:
        """From the size of the shards."""
        return version.bytes // BYTES_PER_TOKEN * int(self.payloads["tokens"][-1])

    @cached_property
    def encoding(self) -> Any:
        """The encoder; threads may use it at the same time."""
        try:
            import tiktoken
        except ImportError as reason:
            raise UsageError(
                "tiktoken, which reads files of ranks, is not installed",
                hint="pip install 'penstock[tiktoken]'",
            ) from reason
        ranks = _ranks(self.path, self._content)
        taken = set(ranks.values()) & set(self.special_tokens.values())
        if taken:
            raise UsageError(f"{self.path} has rank {min(taken)}, which a special token has too")
        try:
            return tiktoken.Encoding(
                self.path.stem,
                pat_str=self.pattern,
                mergeable_ranks=ranks,
                special_tokens=self.special_tokens,
            )
        except ValueError as reason:
            hint = f"give a regular expression, or one of {', '.join(PATTERNS)}"
            raise UsageError(
                f"pattern must be a regular expression, got {self.pattern!r:.100}: {reason}", hint=hint
            ) from reason

    def __getstate__(self) -> dict[str, Any]:
        # Workers load the encoder themselves.
        return {key: value for key, value in self.__dict__.items() if key != "encoding"}


def _ranks(path: Path, content: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as reason:
            raise UsageError(
                f"line {number} of {path} must be a token and its rank, got {line!r:.60}",
                hint="each line has a token in base64, a space, and a number",
            ) from reason
    if len(set(ranks.values())) < len(ranks):
        raise UsageError(f"{path} has a rank twice")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise UsageError(
            f"{path} has no rank for byte {missing[0]} ({len(missing)} are missing), so some text could not be encoded"
        )
    return ranks
