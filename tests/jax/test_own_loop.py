"""JAX loops are observed: dispatch and waits apart, what is compiled, the same bits; and under a run as well (O1, O8)."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import penstock as ps
import penstock.jax
from penstock import errors
from penstock.cli.main import main
from penstock.observe.steps import UNMEASURED, read_steps
from penstock.observe.steps.compile_file import read_compiles
from penstock.report import ledger
from penstock.run import Policy
from penstock.state.ranks.clock import Clock
from tests.torch.stream import Stream, make_stream

STEPS, EVERY, SLEEP_S = 15, 5, 0.2


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


def looped(into: Path | None, *, sleep_s: float = 0.0, lengths: int = 1) -> bytes:
    """A loop with a new function, so that it is compiled; the bits of its weights."""

    @jax.jit
    def train(weights: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, gradient = jax.value_and_grad(lambda w: ((w[tokens] @ w.T) ** 2).mean())(weights)
        return weights - 0.01 * gradient, loss

    weights = jax.random.normal(jax.random.key(0), (300, 64))
    batches = [(jnp.arange(64 + number % lengths) * 7) % 300 for number in range(STEPS)]
    if into is None:
        for tokens in batches:
            weights, _ = train(weights, tokens)
        return bytes(jax.device_get(weights).tobytes())
    with penstock.jax.observed(into=into) as seen:
        call = seen.dispatch(train)
        for tokens in seen.data(batches):
            weights, loss = call(weights, tokens)
            if seen.number % EVERY == EVERY - 1:
                Clock().pause(sleep_s)
            seen.wait(loss)
            seen.step(loss=loss, batch=tokens, rate=0.01)
    return bytes(jax.device_get(weights).tobytes())


def test_an_observed_loop_tells_dispatch_from_waits_and_changes_no_bit(tmp_path: Path) -> None:
    """Goal: dispatch, wait, data, own code and compiling apart; O8. Method: the same loop observed twice and once not."""
    assert looped(tmp_path) == looped(None) == looped(tmp_path)
    first, second = read_steps(tmp_path)
    assert (first.life, second.life) == (0, 1)
    for rows in (first, second):
        columns = rows.columns
        assert columns["step"].tolist() == list(range(STEPS))
        for part in ("data", "forward", "judge", "user"):
            assert (columns[f"host.{part}"] > 0).all(), part
        assert (columns["host.backward"] == UNMEASURED).all()
        assert (columns["scalar.loss"] > 0).all()
        assert columns["scalar.rate"].tolist() == [0.01] * STEPS
        assert columns["tokens"].tolist() == [64] * STEPS
        assert rows.is_closed
    spans = read_compiles(tmp_path)
    assert {span.what for span in spans if span.life == 0} >= {"jit(train)"}
    assert not any(span.why for span in spans if "train" in span.what)
    for rank in ledger(tmp_path).ranks:
        for life in rank.lives:
            assert sum(life.accounts.values()) == life.wall
            assert life.accounts["compile"] > 0


def test_the_report_names_a_planted_sleep_and_recompilations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: two causes of a JAX loop with their evidence. Method: a sleep at every fifth step, then a shape that changes at every step."""
    looped(tmp_path / "sleep", sleep_s=SLEEP_S)
    main(["report", str(tmp_path / "sleep"), "--json"])
    causes = json.loads(capsys.readouterr().out)["diagnosis"]["causes"]
    own = next(cause for cause in causes if cause["kind"] == "own_code")
    assert "`Clock().pause(sleep_s)`" in own["line"]
    assert own["cost_ns"] / 1e9 == pytest.approx(SLEEP_S * STEPS / EVERY, rel=0.1)
    looped(tmp_path / "shapes", lengths=STEPS)
    main(["report", str(tmp_path / "shapes"), "--json"])
    causes = json.loads(capsys.readouterr().out)["diagnosis"]["causes"]
    compiling = next(cause for cause in causes if cause["kind"] == "compiling")
    assert "jit(train)" in compiling["place"]
    assert compiling["facts"]["compiled_again"] >= STEPS - 1


def test_a_loop_says_which_step_it_is_at_and_gives_numbers(tmp_path: Path) -> None:
    with penstock.jax.observed(into=tmp_path) as seen:
        seen.number = 7
        seen.step(loss=jnp.ones(()))
        seen.step(loss=2.0)
        with pytest.raises(errors.UsageError, match="loss must be a number"):
            seen.step(loss=jnp.ones(3))
    (rows,) = read_steps(tmp_path)
    assert rows.columns["step"].tolist()[:2] == [7, 8]
    assert rows.columns["scalar.loss"].tolist()[:2] == [1.0, 2.0]


def test_a_loop_is_observed_once(tmp_path: Path) -> None:
    loop = penstock.jax.observed(into=tmp_path)
    with loop, pytest.raises(errors.UsageError, match="observed already"):
        loop.__enter__()


def test_a_run_has_dispatch_and_waits_of_its_jax_steps(stream: Stream, tmp_path: Path) -> None:
    """Goal: the same under a run. Method: a real run in JAX whose call stands in a span; its loss is judged a step later."""
    policy = Policy(stop_at=8)
    run = ps.Run(tmp_path / "run", recipe=stream.recipe(), registry=stream.registry, policy=policy, seed=3)
    state = penstock.jax.state({"words": jax.random.normal(jax.random.key(1), (1002, 8))})

    @jax.jit
    def train(tree: dict[str, jax.Array], tokens: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        return {"words": tree["words"] * 0.99}, (tree["words"][tokens] ** 2).mean()

    for _, batch in run.steps(state, fields=("tokens",)):
        with run.span("forward"):
            state.tree, loss = train(state.tree, batch["tokens"])
        run.report(loss=loss)
    (rows,) = read_steps(tmp_path / "run")
    for part in ("forward", "judge", "transfer"):
        assert (rows.columns[f"host.{part}"][1:] > 0).all(), part
    assert any("train" in span.what for span in read_compiles(tmp_path / "run"))
