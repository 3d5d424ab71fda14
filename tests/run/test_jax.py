"""Runs in JAX: the state is a pytree, generators are keys, and a resume is bit-equal."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import penstock as ps
import penstock.jax
from penstock.run import Policy
from tests.run.comparing import first_difference
from tests.torch.stream import Stream


@jax.jit
def advance(
    tree: dict[str, jax.Array], tokens: jax.Array, key: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    def loss_of(words: jax.Array) -> jax.Array:
        vectors = words[tokens[:, :-1]] * jax.random.bernoulli(key, 0.9, (8,))
        chances = jax.nn.log_softmax(vectors @ words.T)
        return -jnp.take_along_axis(chances, tokens[:, 1:, None], axis=-1).mean()

    loss, gradient = jax.value_and_grad(loss_of)(tree["words"])
    return {"words": tree["words"] - gradient, "steps": tree["steps"] + 1}, loss


def train(stream: Stream, out: Path, stop: int, *, early: bool) -> int:
    """Train up to a step; how many steps the state has seen."""
    policy = Policy(save_every=4, stop_at=stop, digest_every=1)
    run = ps.Run(
        out, recipe=stream.recipe(), registry=stream.registry, policy=policy, seed=3, deterministic=True
    )
    first = jax.random.normal(jax.random.key(run.seed_of("init") % 2**32), (1002, 8))
    state = penstock.jax.state({"words": first, "steps": jnp.zeros((), jnp.int32)})
    for _, batch in run.steps(state, fields=("tokens",)):
        following, loss = advance(state.tree, batch["tokens"], run.generator("dropout", kind="native"))
        if not early:
            state.tree = following
            run.report(loss=loss)
        elif run.accept(loss):
            state.tree = following
    return int(state.tree["steps"])


@pytest.mark.parametrize("early", [True, False])
def test_a_resumed_run_is_bit_equal(stream: Stream, tmp_path: Path, early: bool) -> None:
    """Goal: R1 in JAX, with values looked at early and late. Method: one life, and three."""
    assert train(stream, tmp_path / "whole", 11, early=early) == 11
    for stop in (3, 6, 11):
        assert train(stream, tmp_path / "parts", stop, early=early) == stop
    assert first_difference(tmp_path / "whole", tmp_path / "parts") == ""
