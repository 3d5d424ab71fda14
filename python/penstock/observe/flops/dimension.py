"""How a dimension of a product follows from the rows and the length of a batch, found from two shapes.

A model is traced at two shapes whose rows and lengths both differ. A dimension that is the same in both is a constant; others
have to be ``times · rows · (length + plus)``, or a part of that, in both. What is neither is known for the traced shapes only.
"""

from dataclasses import asdict, dataclass
from typing import Any

#: Tokens that models add to a row or take off it (a class token, a shift by one). More is taken for chance.
PLUS_MAX = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows and length of a batch; length is None where rows have none, such as images of one size."""

    rows: int
    length: int | None

    def __str__(self) -> str:
        return f"{self.rows} rows" if self.length is None else f"{self.rows} x {self.length}"


@dataclass(frozen=True, slots=True, order=True)
class Dimension:
    """``times · rows · (length + plus)``, without the factors that do not apply."""

    times: int
    by_rows: bool = False
    by_length: bool = False
    plus: int = 0

    def of(self, shape: Shape) -> int:
        """Its size for batches of this shape."""
        size = self.times
        if self.by_rows:
            size *= shape.rows
        if self.by_length:
            if shape.length is None:
                raise ValueError("a dimension that follows from a length needs one")
            size *= shape.length + self.plus
        return size

    @property
    def is_constant(self) -> bool:
        """Whether batches do not matter."""
        return not (self.by_rows or self.by_length)

    @property
    def is_tokens(self) -> bool:
        """Whether it counts tokens: so many for each of a row's."""
        return self.by_rows and self.by_length

    def to_json(self) -> dict[str, Any]:
        """The dimension as plain values."""
        return asdict(self)


def dimension_of(first: int, second: int, shapes: tuple[Shape, Shape]) -> Dimension | None:
    """The rule that gives ``first`` and ``second`` for the two shapes; None when there is none or it could be chance."""
    if first == second:
        return Dimension(first)
    one, two = shapes
    if first % one.rows == 0 and second % two.rows == 0:
        if first // one.rows == second // two.rows:
            return Dimension(first // one.rows, by_rows=True)
        rule = _by_length(first // one.rows, second // two.rows, shapes)
        if rule is not None:
            return Dimension(rule[0], by_rows=True, by_length=True, plus=rule[1])
    rule = _by_length(first, second, shapes)
    return None if rule is None else Dimension(rule[0], by_length=True, plus=rule[1])


def _by_length(first: int, second: int, shapes: tuple[Shape, Shape]) -> tuple[int, int] | None:
    """``times`` and ``plus`` of ``times · (length + plus)``."""
    one, two = shapes[0].length, shapes[1].length
    if one is None or two is None or one == two or (first - second) % (one - two):
        return None
    times = (first - second) // (one - two)
    if times <= 0 or first % times:
        return None
    plus = first // times - one
    return (times, plus) if abs(plus) <= PLUS_MAX else None


def other_shape(shape: Shape) -> Shape:
    """A second shape: another number of rows, and a shorter length, which no table of positions refuses."""
    if shape.length is None or shape.length < 2:
        return Shape(shape.rows + 1, shape.length)
    half = shape.length // 2
    return Shape(shape.rows + 1, half // 16 * 16 if half >= 16 else half)
