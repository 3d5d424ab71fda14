"""A run in JAX: the state is a pytree, a step gives the next one, and the run says whether it counts."""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from corpus import WORDS, corpus

import penstock as ps
import penstock.jax

WIDTH = 48


def first(key: jax.Array) -> dict[str, Any]:
    """Weights, and their momentum."""
    one, two, three = jax.random.split(key, 3)
    weights = {
        "words": 0.02 * jax.random.normal(one, (WORDS, WIDTH)),
        "inner": 0.1 * jax.random.normal(two, (2 * WIDTH, WIDTH)),
        "outer": 0.02 * jax.random.normal(three, (WIDTH, WORDS)),
    }
    return {"weights": weights, "momentum": jax.tree.map(jnp.zeros_like, weights)}


@jax.jit
def advance(tree: dict[str, Any], tokens: jax.Array, key: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    """One step: the next token from the last two, with dropout."""

    def loss_of(weights: dict[str, jax.Array]) -> jax.Array:
        vectors = weights["words"][tokens]
        pairs = jnp.concatenate([vectors[:, :-2], vectors[:, 1:-1]], axis=-1)
        hidden = jax.nn.gelu(pairs @ weights["inner"])
        hidden = hidden * jax.random.bernoulli(key, 0.9, hidden.shape) / 0.9
        chances = jax.nn.log_softmax(hidden @ weights["outer"])
        return -jnp.take_along_axis(chances, tokens[:, 2:, None], axis=-1).mean()

    loss, gradient = jax.value_and_grad(loss_of)(tree["weights"])
    momentum = jax.tree.map(lambda old, new: 0.9 * old + new, tree["momentum"], gradient)
    weights = jax.tree.map(lambda old, moved: old - 0.5 * moved, tree["weights"], momentum)
    return {"weights": weights, "momentum": momentum}, loss


def main() -> None:
    """Train to a step, or go on to it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="runs/jax")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()

    recipe, registry = corpus(Path("corpus"))
    policy = ps.RunPolicy(save_every=10, stop_at=options.steps, digest_every=1)
    run = ps.Run(options.run, recipe=recipe, registry=registry, policy=policy, seed=17, deterministic=True)
    state = penstock.jax.state(first(jax.random.key(run.seed_of("init") % 2**32)))
    for step, batch in run.steps(state):
        key = run.generator("dropout", kind="native")  # of this step, whatever came before
        following, loss = advance(state.tree, batch["tokens"], key)
        if run.accept(loss, tokens=batch["tokens"].size):
            state.tree = following
        if step % 10 == 0:
            print(f"step {step:3d}  loss {float(loss):.3f}  batch {batch.digest[:12]}", flush=True)


if __name__ == "__main__":
    main()
