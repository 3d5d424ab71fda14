"""Filter: keeps the rows for which an expression over their fields holds."""

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.data.recipe.expression import Expression
from penstock.errors import RecipeInvalid


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which an expression over their fields holds."""

    kind: ClassVar[str] = "filter"
    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise RecipeInvalid(
                field="filter", reason=f"must be an expression as text, got {self.expression!r:.100}"
            )
        Expression(self.expression)

    def document(self) -> dict[str, Any]:
        """What enters the recipe's digest."""
        return {"kind": self.kind, "expression": Expression(self.expression).canonical}
