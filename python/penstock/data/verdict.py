"""The verdict of a filter as a measured column: one truth value per row, computed once per version."""

from typing import TYPE_CHECKING, Any

from penstock.data.expression import Expression
from penstock.errors import RecipeInvalid
from penstock.formats.contract import Row

if TYPE_CHECKING:
    from penstock.registry import Version

#: Raise it when the language of expressions judges some row differently.
LANGUAGE = 2


class Verdict:
    """Whether an expression holds, per row."""

    name = "verdict"
    dtype = "|u1"
    payload_dtype = None

    def __init__(self, expression: str) -> None:
        self._expression = Expression(expression)

    def identity(self) -> dict[str, str]:
        """By the expression as it is understood, however it was spaced."""
        return {"kind": "verdict", "expression": self._expression.canonical, "language": str(LANGUAGE)}

    def compute(self, rows: list[Row]) -> tuple[list[Any], None]:
        """Judge some rows; a row that the expression cannot be applied to is an error, not a silent no."""
        verdicts = []
        for row in rows:
            try:
                verdicts.append(self._expression(row))
            except (TypeError, ValueError, ArithmeticError) as reason:
                shown = dict(list(row.items())[:4])
                raise RecipeInvalid(
                    field="filter", reason=f"{self._expression.text!r} fails on {shown!r:.200}: {reason}"
                ) from reason
        return verdicts, None

    def payload_bytes(self, version: "Version") -> int:
        """There is no payload."""
        return 0
