"""The verdict of a filter as a measured column: one truth value per row, computed once per version."""

from typing import TYPE_CHECKING, ClassVar

from penstock.data.expression import Expression
from penstock.formats.contract import Row
from penstock.registry.measuring import Computed, NothingToMeasure

if TYPE_CHECKING:
    from penstock.registry import Version

#: Raise it when the language of expressions judges some row differently.
LANGUAGE = 2


class Verdict:
    """Whether an expression holds, per row."""

    name = "verdict"
    dtype = "|u1"
    payloads: ClassVar[dict[str, str]] = {}

    def __init__(self, expression: str) -> None:
        self._expression = Expression(expression)

    def identity(self) -> dict[str, str]:
        """By the expression as it is understood, however it was spaced."""
        return {"kind": "verdict", "expression": self._expression.canonical, "language": str(LANGUAGE)}

    def read(self, row: Row) -> bool:
        """Judge a row; one that the expression cannot be applied to is an error, not a silent no."""
        try:
            return self._expression(row)
        except (TypeError, ValueError, ArithmeticError) as reason:
            shown = dict(list(row.items())[:4])
            raise NothingToMeasure(
                f"{self._expression.text!r} cannot judge {shown!r:.200}: {reason}"
            ) from reason

    def compute(self, samples: list[bool]) -> Computed:
        """The verdicts themselves."""
        return samples, {}

    def payload_bytes(self, version: "Version") -> int:
        """There is no payload."""
        return 0
