"""Stages: what happens to rows between the shard and the batch, as plain frozen values.

Whatever decides order (a filter's verdict, a length in tokens) is measured once per version and kept; a stage only says
what is measured and with which parameters. A stage's document is part of the recipe's digest.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from penstock._rust import digest
from penstock.data.expression import Expression
from penstock.errors import RecipeInvalid

LENGTH_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which an expression over their fields holds."""

    kind: ClassVar[str] = "filter"
    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise RecipeInvalid(
                field="filter", reason=f"{self.expression!r} is no expression", hint="write it as text"
            )
        Expression(self.expression)

    def document(self) -> dict[str, Any]:
        """What enters the recipe's digest."""
        return {"kind": self.kind, "expression": Expression(self.expression).canonical}


@dataclass(frozen=True, slots=True)
class Tokenize:
    """Turns a field of text into tokens with a Hugging Face ``tokenizer.json``; the result is kept as a derived version."""

    kind: ClassVar[str] = "tokenize"
    tokenizer: str
    field: str = "text"
    #: Whether the tokenizer may add its special tokens (beginning and end of text).
    special: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.tokenizer, str | os.PathLike) or not Path(self.tokenizer).is_file():
            hint = "give the path of a tokenizer.json, as Hugging Face tokenizers are saved"
            raise RecipeInvalid(field="tokenizer", reason=f"there is no file {self.tokenizer}", hint=hint)

    def document(self) -> dict[str, Any]:
        """By the tokenizer's content, not its name."""
        content = digest(Path(self.tokenizer).read_bytes())
        return {"kind": self.kind, "tokenizer": content, "field": self.field, "special": self.special}


@dataclass(frozen=True, slots=True)
class Pack:
    """Joins documents into rows of a fixed length.

    ``concat`` joins them end to end and cuts every ``length`` tokens; ``fit`` puts whole documents together so that little is
    padded, and cuts only those that are longer than a row.
    """

    kind: ClassVar[str] = "pack"
    length: int
    policy: Literal["concat", "fit"] = "concat"

    def __post_init__(self) -> None:
        if type(self.length) is not int or not 1 <= self.length <= LENGTH_MAX:
            raise RecipeInvalid(
                field="length", reason=f"a row has 1 to {LENGTH_MAX:,} tokens, not {self.length!r}"
            )
        if self.policy not in ("concat", "fit"):
            raise RecipeInvalid(
                field="policy", reason=f"there is no policy {self.policy!r}", hint="concat or fit"
            )

    def document(self) -> dict[str, Any]:
        """What enters the recipe's digest."""
        return {"kind": self.kind, "length": self.length, "policy": self.policy}


Stage = Filter | Tokenize | Pack
KINDS: dict[str, type[Stage]] = {"filter": Filter, "tokenize": Tokenize, "pack": Pack}


def stage_of(document: dict[str, Any], *, folder: Path) -> Stage:
    """A stage from its table in a recipe file; paths in it are relative to the file."""
    fields = dict(document)
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise RecipeInvalid(
            field="stages", reason=f"there is no stage {kind!r}", hint=f"known are {', '.join(KINDS)}"
        )
    if isinstance(fields.get("tokenizer"), str):
        fields["tokenizer"] = str(folder / fields["tokenizer"])
    try:
        return KINDS[kind](**fields)
    except TypeError as reason:
        raise RecipeInvalid(
            field=f"stage {kind}", reason=str(reason).partition(") ")[2] or str(reason)
        ) from reason
