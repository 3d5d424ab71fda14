"""Token lengths under a Hugging Face ``tokenizer.json``, with the tokens themselves as the payload."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._rust import digest
from penstock.errors import UsageError
from penstock.formats.contract import Row
from penstock.registry.library import installed
from penstock.registry.measuring import Computed, NothingToMeasure

if TYPE_CHECKING:
    from penstock.registry.version import Version

_U16_MAX = 1 << 16
#: Text has about four bytes per token; a cautious estimate takes three.
BYTES_PER_TOKEN = 3


class TokenLength:
    """How many tokens a field has under a tokenizer."""

    name = "tokens"
    dtype = "<u4"

    def __init__(self, tokenizer: str | Path, *, field: str = "text", special: bool = False) -> None:
        self.path = Path(tokenizer)
        self.field = field
        #: Whether the tokenizer may add its special tokens (beginning and end of text).
        self.special = special
        try:
            self._content = self.path.read_bytes()
        except OSError as reason:
            hint = "give the path of a tokenizer.json, as Hugging Face tokenizers are saved"
            raise UsageError(f"cannot read tokenizer {self.path}: {reason.strerror}", hint=hint) from reason

    def identity(self) -> dict[str, str]:
        """By the tokenizer's content, not its name."""
        return {
            "kind": "tokens",
            "tokenizer": digest(self._content),
            "field": self.field,
            "special": str(self.special).lower(),
            "library": f"tokenizers {installed('tokenizers')}",
        }

    @cached_property
    def payloads(self) -> dict[str, str]:
        """The tokens, in the smallest type that holds every one."""
        # By the largest number: a vocabulary may have gaps.
        return {
            "tokens": token_dtype(max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=0))
        }

    def read(self, row: Row) -> str:
        """The text of a row."""
        return text_of(row, self.field)

    def compute(self, samples: list[str]) -> Computed:
        """Encode some texts; the tokenizer's own threads do not hold the GIL."""
        found = self.tokenizer.encode_batch_fast(samples, add_special_tokens=self.special)
        (dtype,) = self.payloads.values()
        tokens = [np.array(encoding.ids, dtype=dtype) for encoding in found]
        return [len(each) for each in tokens], {"tokens": tokens}

    def payload_bytes(self, version: "Version") -> int:
        """From the size of the shards."""
        return version.bytes // BYTES_PER_TOKEN * int(self.payloads["tokens"][-1])

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer itself; threads may use it at the same time."""
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_buffer(self._content)
        # The library raises bare Exceptions.
        except Exception as reason:
            raise UsageError(f"{self.path} is no tokenizer.json: {reason}") from reason

    def __getstate__(self) -> dict[str, Any]:
        # Workers load the tokenizer themselves.
        return {key: value for key, value in self.__dict__.items() if key != "tokenizer"}


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
