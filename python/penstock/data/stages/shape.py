"""Shapes: how samples of any length become rows of one length. Truncate cuts, Pack joins, Pad fills up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.data.recipe.schedule import cut, read_schedule
from penstock.errors import RecipeInvalid

LENGTH_MAX = 1 << 24
POLICIES = ("concat", "fit", "crop")
ENDS = ("start", "end")
Lengths = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Leaves at most ``length`` tokens of each sample: those at its start, or those at its end."""

    kind: ClassVar[str] = "truncate"
    length: int
    keep: Literal["start", "end"] = "start"

    def __post_init__(self) -> None:
        check_length(self.length)
        if self.keep not in ENDS:
            raise RecipeInvalid(field="keep", reason=f"must be start or end, got {self.keep!r:.50}")

    def document(self) -> dict[str, Any]:
        """What enters the recipe's digest."""
        return {"kind": self.kind, "length": self.length, "keep": self.keep}


@dataclass(frozen=True, slots=True, init=False)
class Pack:
    """Joins documents into rows of a fixed length.

    ``concat`` joins them end to end and cuts every ``length`` tokens; ``fit`` puts whole documents together so that little is
    padded, and cuts only those that are longer than a row; ``crop`` takes ``length`` tokens from a token drawn at random on, as
    nanoGPT does, and an epoch has as many rows as all tokens would fill. A schedule ``[(0, 2048), (5000, 4096)]`` changes the
    length at a step.
    """

    kind: ClassVar[str] = "pack"
    #: Tokens of a row, from which step on.
    lengths: Lengths
    policy: Literal["concat", "fit", "crop"]
    #: What padding is.
    pad: int
    #: The token after every document, if there is one; it counts in lengths and in the loss.
    separator: int | None

    def __init__(
        self,
        length: int | Sequence[tuple[int, int]],
        policy: Literal["concat", "fit", "crop"] = "concat",
        pad: int = 0,
        separator: int | None = None,
    ) -> None:
        if policy not in POLICIES:
            reason, hint = f"must be concat, fit or crop, got {policy!r:.50}", None
            raise RecipeInvalid(field="policy", reason=reason, hint=hint)
        check_token("pad", pad)
        if separator is not None:
            check_token("separator", separator)
            if policy == "crop":
                reason, hint = (
                    "crops begin anywhere, whatever stands between documents",
                    "end them with Tokenize(…, eos=…)",
                )
                raise RecipeInvalid(field="separator", reason=reason, hint=hint)
        object.__setattr__(self, "separator", separator)
        object.__setattr__(self, "lengths", _lengths(length))
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "pad", pad)

    @property
    def length(self) -> int:
        """Tokens of a row; of the first one where they change."""
        return self.lengths[0][1]

    def document(self) -> dict[str, Any]:
        """What enters the recipe's digest."""
        document = {"kind": self.kind, "length": _shown(self.lengths), "policy": self.policy}
        separator = {} if self.separator is None else {"separator": self.separator}
        return document | ({"pad": self.pad} if self.pad else {}) | separator


@dataclass(frozen=True, slots=True)
class Pad:
    """Makes a row of each sample: shorter ones are filled up at their end, longer ones are an error (truncate first)."""

    kind: ClassVar[str] = "pad"
    length: int
    #: What padding is.
    token: int = 0

    def __post_init__(self) -> None:
        check_length(self.length)
        check_token("token", self.token)

    @property
    def lengths(self) -> Lengths:
        """Tokens of a row, from which step on."""
        return ((0, self.length),)

    def document(self) -> dict[str, Any]:
        """What enters the recipe's digest."""
        return {"kind": self.kind, "length": self.length, "token": self.token}


def until(document: dict[str, Any], step: int | None) -> dict[str, Any]:
    """What of a stage's document the steps before ``step`` depend on: of a schedule of lengths, its beginning."""
    length = document.get("length")
    if not isinstance(length, Sequence):
        return document
    return document | {"length": _shown(cut(length, step))}


def check_length(length: Any) -> None:
    """That rows can have this length."""
    if type(length) is not int or not 1 <= length <= LENGTH_MAX:
        raise RecipeInvalid(field="length", reason=f"a row has 1 to {LENGTH_MAX:,} tokens, not {length!r}")


def check_token(field: str, token: Any) -> None:
    """That a token can be this number."""
    if type(token) is not int or not 0 <= token < 1 << 32:
        named = isinstance(token, str)
        hint = 'names are for Tokenize(…, eos="</s>"), which knows the tokenizer' if named else None
        raise RecipeInvalid(
            field=field, reason=f"must be the number of a token, got {token!r:.50}", hint=hint
        )


def _lengths(value: Any) -> Lengths:
    if isinstance(value, str) or not isinstance(value, Sequence):
        check_length(value)
        value = ((0, value),)
    pairs = read_schedule("length", value, int, hint="length = 2048, or [[0, 2048], [5000, 4096]]")
    for _, length in pairs:
        check_length(length)
    return pairs


def _shown(lengths: Sequence[tuple[int, int]]) -> int | list[tuple[int, int]]:
    """One length as a number, so that a schedule may be added to it later without touching what was before."""
    return lengths[0][1] if len(lengths) == 1 else list(lengths)
