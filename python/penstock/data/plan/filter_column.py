"""The verdict of a filter as a measured column: one truth value per row, computed once per version."""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from penstock.data.plan.row_filter import RowFilter
from penstock.data.recipe.expression import Expression
from penstock.formats.contract import Row
from penstock.registry.columns.measure import Computed, NothingToMeasure

if TYPE_CHECKING:
    from penstock.registry import Version

#: Raise it when the language of expressions judges some row differently.
LANGUAGE = 2


class FilterColumn:
    """Whether an expression holds, per row."""

    name = "verdict"
    dtype = "|u1"
    payloads: ClassVar[dict[str, str]] = {}

    def __init__(self, judge: RowFilter | str) -> None:
        self._judge = RowFilter(Expression(judge), {}) if isinstance(judge, str) else judge
        self._expression = self._judge.expression

    def identity(self) -> dict[str, str]:
        """By the expression as it is understood, however it was spaced, and the measured columns that it looks at."""
        identity = {"kind": "verdict", "expression": self._expression.canonical, "language": str(LANGUAGE)}
        keys = self._judge.keys
        return identity | ({"columns": msgspec.json.encode(keys).decode()} if keys else {})

    def read(self, row: Row) -> bool:
        """Judge a row whose number does not matter."""
        return self.read_numbered(row, 0)

    def read_numbered(self, row: Row, number: int) -> bool:
        """Judge a row; one that the expression cannot be applied to is an error, not a silent no."""
        try:
            return self._judge(row, number)
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
