"""Which pairs an attention site computes."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mask:
    """What a query sees: keys to its left and right, within the document where boundaries are given.

    A plain ``Mask()`` hides nothing. ``Mask(right=0)`` is causal, ``Mask(left=4095, right=0)`` a window of 4,096 tokens.
    """

    #: Keys before and after the query's own that it sees; None is no limit.
    left: int | None = None
    right: int | None = None
    #: The field of the batch that has the boundaries of documents; None where rows are one document each.
    documents: str | None = None
    #: Whether the last query stands at the last key, as in flash attention, where they differ in number.
    end_aligned: bool = False
    #: Pairs (useful, executed) of a mask of blocks, for all rows and one head.
    blocks: tuple[int, int] | None = None
    #: Tokens up to which it was seen to be so: a mask that was read from values says nothing about longer rows.
    length_max: int | None = None

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be None or at least 0, got {value}")

    @property
    def is_full(self) -> bool:
        """Whether nothing is hidden."""
        return self.left is None and self.right is None and self.documents is None and self.blocks is None

    def agree(self, other: "Mask") -> "Mask | None":
        """The one rule behind masks of two lengths, of which the shorter may not show a window; None when there is none."""
        long, short = sorted((self, other), key=lambda mask: mask.length_max or 0, reverse=True)
        if short.length_max is None or long.length_max is None:
            return self if self == other else None
        side = short.length_max - 1
        same = all(
            mine == its or (its is None and mine is not None and mine >= side)
            for mine, its in ((long.left, short.left), (long.right, short.right))
        )
        return long if same and long.documents == short.documents else None

    def __str__(self) -> str:
        if self.blocks is not None:
            return "blocks"
        words = []
        if self.left is not None:
            words.append(f"window {self.left + 1}")
        if self.right == 0:
            words.append("causal")
        elif self.right is not None:
            words.append(f"{self.right} ahead")
        if self.documents is not None:
            words.append(f"documents of {self.documents}")
        return ", ".join(words) or "full"

    def to_json(self) -> dict[str, Any]:
        """The mask as plain values."""
        return asdict(self)


#: Nothing is hidden.
FULL = Mask()
#: A token sees itself and what is before it.
CAUSAL = Mask(right=0)
