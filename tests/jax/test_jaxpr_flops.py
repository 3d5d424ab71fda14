"""``penstock.jax.flops``: what a jaxpr multiplies, however often it does."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from penstock.errors import UsageError
from penstock.jax import flops

SIDE = 16
ONE = 2 * SIDE**3
MATRIX = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32)


def total(function: Callable[..., Any], *args: Any) -> int | None:
    return flops(function, *args).step().useful_total


def scanned(weight: Any, rows: Any) -> Any:
    return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ weight), None), rows, None, length=10)[0].sum()


def test_a_scan_counts_every_turn_forward_and_backward() -> None:
    """XLA's cost analysis counts a tenth of this gradient."""
    assert total(scanned, MATRIX, MATRIX) == 10 * ONE
    assert total(jax.grad(scanned), MATRIX, MATRIX) == 30 * ONE
    assert total(jax.jit(jax.grad(scanned)), MATRIX, MATRIX) == 30 * ONE


def test_checkpoints_are_executed_and_not_useful() -> None:
    def layer(weight: Any, rows: Any) -> Any:
        return jnp.tanh(jnp.tanh(rows @ weight) @ weight)

    def loss(weight: Any, rows: Any) -> Any:
        return (jax.checkpoint(layer)(weight, rows) ** 2).sum()

    step = flops(jax.grad(loss), MATRIX, MATRIX).step()

    assert step.useful_total == 5 * ONE
    assert step.executed_total == 7 * ONE


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            lambda weight, rows: jax.lax.while_loop(lambda c: c.sum() < 1, lambda c: c @ weight, rows),
            "how often",
        ),
        (
            lambda weight, rows: jax.lax.cond(rows.sum() > 0, lambda: rows @ weight, lambda: rows),
            "different amounts",
        ),
        (lambda weight, rows: jnp.linalg.cholesky(weight), "no formula"),
        (lambda weight, rows: jnp.fft.fft(weight), "no formula"),
    ],
)
def test_what_values_decide_and_what_nobody_knows_is_unknown(function: Any, reason: str) -> None:
    """O7: never 0."""
    step = flops(function, MATRIX, MATRIX).step()

    assert step.useful is None
    assert reason in str(step.unknown[0])


def test_branches_that_cost_the_same_are_known() -> None:
    def either(weight: Any, rows: Any) -> Any:
        return jax.lax.cond(rows.sum() > 0, lambda: rows @ weight, lambda: weight @ rows)

    assert total(either, MATRIX, MATRIX) == ONE


def test_loops_of_known_turns_and_loops_without_products_are_known() -> None:
    def turned(weight: Any, rows: Any) -> Any:
        rows = jax.lax.fori_loop(0, 7, lambda _, carry: carry @ weight, rows)
        return jax.lax.while_loop(lambda carry: carry.sum() < 1, lambda carry: carry + 1, rows)

    assert total(turned, MATRIX, MATRIX) == 7 * ONE


def test_functions_with_gradients_of_their_own_are_looked_into() -> None:
    @jax.custom_vjp
    def multiply(left: Any, right: Any) -> Any:
        return left @ right

    multiply.defvjp(
        lambda left, right: (left @ right, (left, right)),
        lambda kept, gradient: (gradient @ kept[1].T, kept[0].T @ gradient),
    )

    assert total(multiply, MATRIX, MATRIX) == ONE
    assert total(jax.grad(lambda a, b: multiply(a, b).sum(), argnums=(0, 1)), MATRIX, MATRIX) == 3 * ONE


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions_cost_three_times_their_forward(stride: int, groups: int) -> None:
    convolve = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(stride, stride),
        padding="VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    images = jax.ShapeDtypeStruct((2, 9, 9, 8), jnp.float32)
    filters = jax.ShapeDtypeStruct((3, 3, 8 // groups, 16), jnp.float32)
    side = 7 if stride == 1 else 4
    forward = 2 * 2 * side * side * 9 * (8 // groups) * 16

    assert total(convolve, images, filters) == forward
    gradient = jax.grad(lambda image, weight: convolve(image, weight).sum(), argnums=(0, 1))
    if groups == 1 and stride == 2:
        assert total(gradient, images, filters) == 3 * forward


def test_experts_cost_their_rows() -> None:
    rows = jax.ShapeDtypeStruct((32, 8), jnp.bfloat16)
    experts = jax.ShapeDtypeStruct((4, 8, 16), jnp.bfloat16)
    sizes = jax.ShapeDtypeStruct((4,), jnp.int32)
    step = flops(
        jax.grad(lambda a, b, s: jax.lax.ragged_dot(a, b, s).sum(), argnums=(0, 1)), rows, experts, sizes
    ).step()

    assert step.useful == {"bfloat16": 3 * 2 * 32 * 8 * 16}


def test_primitives_can_be_registered() -> None:
    assert total(jnp.linalg.cholesky, MATRIX) is None
    flops.register("cholesky", lambda matrix: matrix[-1] ** 3 // 3)
    assert total(jnp.linalg.cholesky, MATRIX) == SIDE**3 // 3
    with pytest.raises(UsageError):
        flops.register("not a name", None)
