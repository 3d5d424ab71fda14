"""Runs in JAX: the state is a pytree, generators are keys, and a resume is bit-equal."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import pytest

import penstock as ps
import penstock.jax
from penstock import errors
from penstock.run import Policy, Run
from penstock.run.journal import journal, step_records
from tests.run.comparing import first_difference
from tests.run.small import Fault
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


def begin(stream: Stream, out: Path, policy: Policy) -> tuple[Run, penstock.jax.State]:
    """A run over the stream, and its first state."""
    run = ps.Run(
        out, recipe=stream.recipe(), registry=stream.registry, policy=policy, seed=3, deterministic=True
    )
    first = jax.random.normal(jax.random.key(run.seed_of("init") % 2**32), (1002, 8))
    return run, penstock.jax.state({"words": first, "steps": jnp.zeros((), jnp.int32)})


def train(stream: Stream, out: Path, stop: int, *, early: bool) -> int:
    """Train up to a step; how many steps the state has seen."""
    run, state = begin(stream, out, Policy(save_every=4, stop_at=stop, digest_every=1))
    for _, batch in run.steps(state, fields=("tokens",)):
        following, loss = advance(state.tree, batch["tokens"], run.generator("dropout", kind="native"))
        if not early:
            state.tree = following
            run.report(loss=loss)
        elif run.accept(loss):
            state.tree = following
    return int(state.tree["steps"])


def train_with_a_bad_loss(
    stream: Stream, out: Path, policy: Policy, *, dies_in: int = -1, reports: bool = False
) -> tuple[int, list[bool]]:
    """Train with a loss of step 5 that is no number, reported before it is asked about or with the question; how many steps the state has seen, and
    what was answered in step 5.
    """
    run, state = begin(stream, out, policy)
    answers: list[bool] = []
    for step, batch in run.steps(state, fields=("tokens",)):
        following, loss = advance(state.tree, batch["tokens"], run.generator("dropout", kind="native"))
        if step == dies_in:
            raise Fault
        bad = jnp.where(step == 5, jnp.nan, loss)
        if reports:
            run.report(loss=bad)
        answer = run.accept(None if reports else bad)
        with pytest.raises(errors.UsageError, match="already"):
            run.accept(loss)
        if step == 5:
            answers.append(answer)
        if answer:
            state.tree = following
    return int(state.tree["steps"]), answers


@pytest.mark.parametrize("early", [True, False])
def test_a_resumed_run_is_bit_equal(stream: Stream, tmp_path: Path, early: bool) -> None:
    """Goal: R1 in JAX, with values looked at early and late. Method: one life, and three."""
    assert train(stream, tmp_path / "whole", 11, early=early) == 11
    for stop in (3, 6, 11):
        assert train(stream, tmp_path / "parts", stop, early=early) == stop
    assert first_difference(tmp_path / "whole", tmp_path / "parts") == ""


@pytest.mark.parametrize("then", ["skip", "rollback"])
def test_accept_looks_at_a_value_before_the_step_only_where_a_rule_may_skip_it(
    stream: Stream, tmp_path: Path, then: Literal["skip", "rollback"]
) -> None:
    """Goal: a device is waited for only where that can change the answer, and the step is left out either way. Method: one bad loss,
    in one life and in three, under both rules; the journal says when it was judged, and the final state how often it was trained on.
    """
    policy = Policy(save_every=4, stop_at=11, non_finite=then, keep=ps.Keep(last=9), digest_every=1)
    trained, answers = train_with_a_bad_loss(stream, tmp_path / "whole", policy)
    assert answers == [then != "skip"]
    (verdict,) = (entry for entry in journal.read(tmp_path / "whole") if entry.kind == "verdict")
    assert (verdict.facts["action"], verdict.facts["early"]) == (then, then == "skip")
    for stop in (5, 7, 11):
        again, _ = train_with_a_bad_loss(stream, tmp_path / "parts", replace(policy, stop_at=stop))
    assert again == trained == 10
    assert first_difference(tmp_path / "whole", tmp_path / "parts") == ""


def test_a_loss_that_was_reported_before_is_what_accept_judges(stream: Stream, tmp_path: Path) -> None:
    """Goal: a program may hand the loss over before backward and ask after it, and nothing else changes. Method: the same bad loss both ways."""
    policy = Policy(save_every=4, stop_at=11, non_finite="skip", digest_every=1)
    asked = train_with_a_bad_loss(stream, tmp_path / "asked", policy)
    told = train_with_a_bad_loss(stream, tmp_path / "told", policy, reports=True)
    assert asked == told == (10, [False])
    assert first_difference(tmp_path / "asked", tmp_path / "told") == ""


def test_a_skip_of_an_earlier_life_is_repeated_under_rules_that_skip_nothing(
    stream: Stream, tmp_path: Path
) -> None:
    """Goal: R2, and steps are judged in their order. Method: skip step 5, die before the next checkpoint, go on with other rules."""
    policy = Policy(save_every=4, stop_at=11, non_finite="skip", digest_every=1)
    with pytest.raises(Fault):
        train_with_a_bad_loss(stream, tmp_path, policy, dies_in=7)
    trained, answers = train_with_a_bad_loss(stream, tmp_path, replace(policy, non_finite="rollback"))
    assert (trained, answers) == (10, [False])
    (*_, last_life) = step_records.lives(tmp_path)
    assert list(last_life.steps) == list(range(4, 11))
