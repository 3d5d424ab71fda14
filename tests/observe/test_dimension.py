"""Dimensions follow rules that hold for other shapes, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.flops.dimension import PLUS_MAX, Dimension, Shape, dimension_of, other_shape

SHAPE = st.builds(Shape, rows=st.integers(1, 64), length=st.integers(64, 8192))


@given(SHAPE, st.integers(1, 64), st.booleans(), st.booleans(), st.integers(-PLUS_MAX, PLUS_MAX), SHAPE)
def test_a_rule_is_found_and_holds_for_a_third_shape(
    shape: Shape, times: int, by_rows: bool, by_length: bool, plus: int, third: Shape
) -> None:
    rule = Dimension(times, by_rows, by_length, plus if by_length else 0)
    second = other_shape(shape)

    recovered = dimension_of(rule.of(shape), rule.of(second), (shape, second))

    assert recovered is not None
    assert recovered.of(third) == rule.of(third)


@pytest.mark.parametrize(
    "law",
    [
        lambda shape: shape.rows * shape.length**2,
        lambda shape: shape.length // 3,
        lambda shape: shape.rows * (shape.length // 2),
        lambda shape: shape.rows**2,
        lambda shape: shape.rows + shape.length,
    ],
)
def test_what_follows_no_rule_is_known_for_its_shapes_alone(law: "object") -> None:
    shape = Shape(4, 1000)
    second = other_shape(shape)

    assert dimension_of(law(shape), law(second), (shape, second)) is None  # type: ignore[operator]
