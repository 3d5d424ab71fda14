"""Comparisons: a planted difference is found with an interval that holds it, and noise is called noise (O4)."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.cli.main import main
from penstock.observe.steps import StepRecorder
from penstock.report.compared_run import compared_run
from penstock.report.run_comparison import ComparedRun, comparison_of

STEPS = 400


def run_by_chance(seed: int, *, slower: float = 0.0, higher: float = 0.0, name: str = "a") -> ComparedRun:
    """A run with noise that hangs together from step to step."""
    chance = np.random.default_rng(seed)
    noise = np.convolve(chance.normal(0, 0.002, STEPS + 9), np.ones(10) / 10, "valid")
    losses = 3 / np.sqrt(1 + np.arange(STEPS)) + chance.normal(0, 0.01, STEPS) + higher
    return ComparedRun(
        name=name,
        steps=np.arange(STEPS, dtype=np.int64),
        times=(0.06 + noise) * (1 + slower),
        tokens=np.full(STEPS, 1000.0),
        losses=losses,
        loss_bits=[(float(loss).hex(),) for loss in losses],
        batches=[str(step) for step in range(STEPS)],
        settings={"seed": 1, "recipe": "b3:aa"},
    )


@pytest.mark.parametrize("slower", [0.04, -0.04, 0.2])
@pytest.mark.parametrize("by", ["step", "tokens"])
def test_a_planted_slowness_lies_in_the_interval(slower: float, by: str) -> None:
    covered = 0
    for seed in range(0, 40, 2):
        comparison = comparison_of(run_by_chance(seed), run_by_chance(seed + 1, slower=slower, name="b"), by)
        assert comparison.speed is not None
        assert not comparison.speed.is_noise
        covered += abs(comparison.speed.value - slower) <= comparison.speed.margin
        word = "slower" if slower > 0 else "faster"
        assert f"b is {100 * abs(comparison.speed.value):.1f} % {word} than a ± " in comparison.lines()[0]
    # 95 of 100 are promised, with twenty tries.
    assert covered >= 16


def test_the_same_is_called_the_same() -> None:
    noise = 0
    for seed in range(100, 140, 2):
        comparison = comparison_of(run_by_chance(seed), run_by_chance(seed + 1))
        assert comparison.speed is not None
        assert comparison.loss is not None
        noise += comparison.speed.is_noise + comparison.loss.is_noise
    assert noise >= 34


@pytest.mark.parametrize("by", ["step", "tokens", "time"])
def test_a_planted_loss_is_found(by: str) -> None:
    comparison = comparison_of(run_by_chance(1), run_by_chance(2, higher=0.05, name="b"), by)
    assert comparison.loss is not None
    assert comparison.loss.value == pytest.approx(0.05, abs=2 * comparison.loss.margin)
    assert "b is 0.05" in comparison.lines()[1] or "b is 0.04" in comparison.lines()[1]


def test_the_first_differing_bit_and_what_came_before_it() -> None:
    one = run_by_chance(1)
    other = replace(one, loss_bits=[*one.loss_bits[:50], ("0x1p+0",), *one.loss_bits[51:]])
    assert comparison_of(one, one).parted is None
    unexplained = comparison_of(one, other)
    assert unexplained.parted == 50
    assert unexplained.differences[0].startswith("nothing that was recorded")
    batches = [*one.batches[:48], "another", *one.batches[49:]]
    explained = comparison_of(one, replace(other, batches=batches, settings={"seed": 2, "recipe": "b3:aa"}))
    assert explained.differences == ["seed: 1 and 2", "the batch of step 48"]


def test_too_little_is_not_compared() -> None:
    one = run_by_chance(1)
    few = replace(
        one,
        steps=one.steps[:6],
        times=one.times[:6],
        tokens=None,
        losses=np.full(6, np.nan),
        loss_bits=one.loss_bits[:6],
        batches=one.batches[:6],
    )
    for by in ("step", "tokens", "time"):
        comparison = comparison_of(one, few, by)
        assert comparison.speed is None
        assert comparison.loss is None
        assert json.dumps(comparison.to_json())


def test_real_runs_are_compared(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / "clean"), str(runs / "sleep"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["speed"]["value"] > 0.3
    assert document["first_differing_step"] is None
    assert main(["compare", str(runs / "clean"), str(runs / "sleep")]) == 0
    assert capsys.readouterr().out.splitlines() == document["lines"]
    assert main(["compare", str(runs / "clean"), str(runs)]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_loops_without_records_are_compared_by_their_rows(tmp_path: Path) -> None:
    """Goal: an observed loop is compared like a run. Method: two loops whose losses part, and one that is the same."""
    for name, parts_at in (("one", 99), ("same", 99), ("other", 30)):
        recorder = StepRecorder(tmp_path / name, 0, 0)
        for step in range(60):
            recorder.begin(step)
            recorder.scalar(step, "loss", 2.0 - step / 100 + (0.25 if step >= parts_at else 0.0))
            recorder.end(step)
        recorder.pause()
        recorder.close()
    one, same, other = (compared_run(tmp_path / name) for name in ("one", "same", "other"))
    assert comparison_of(one, same, "step").parted is None
    comparison = comparison_of(one, other, "step")
    assert (comparison.parted, comparison.common_steps) == (30, 60)
    assert comparison.loss is not None
    assert comparison.speed is not None
