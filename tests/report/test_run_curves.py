"""Curves of a run: thinned without losing a spike, over the ranks that have a step, without numbers that are none."""

import numpy as np

from penstock.observe.steps import UNMEASURED
from penstock.report.accounts.ledger import Ledger
from penstock.report.curves.buckets import BUCKETS_MAX, bucketed, edges_of, plain
from penstock.report.curves.run_curves import RunCurves, heat_map, run_curves
from penstock.report.curves.step_table import NOT_FINITE, RunSteps
from penstock.report.diagnosis.observation import RankSteps

MILLION = 1_000_000


def rank_of(rank: int, steps: range, took: int, **columns: int) -> RankSteps:
    """A rank whose steps all took the same."""
    numbers = np.arange(steps.start, steps.stop, dtype=np.int64)
    begin = numbers * took
    facts = {name: np.full(len(numbers), value, np.int64) for name, value in columns.items()}
    return RankSteps(
        rank, {"step": numbers, "begin": begin, "end": begin + took, "life": np.zeros_like(numbers), **facts}
    )


def test_a_spike_of_one_step_in_a_million_is_in_the_band_and_the_mean_is_that_of_all() -> None:
    """Goal: what is drawn hides nothing. Method: a million steps with one spike, in at most so many buckets as a screen has."""
    steps = np.arange(MILLION)
    values = np.ones(MILLION)
    values[654_321] = 1e6
    thin = bucketed(steps, values, edges_of(0, MILLION))

    assert len(thin.high) == BUCKETS_MAX
    assert thin.high[654] == 1e6
    assert thin.low.tolist() == [1.0] * BUCKETS_MAX
    assert thin.count.sum() == MILLION
    assert thin.total.sum() == values.sum()
    assert thin.mean[0] == 1.0


def test_few_steps_are_not_thinned_and_gaps_and_numbers_that_are_none_stay_gaps() -> None:
    thin = bucketed(np.array([3, 4, 7]), np.array([1.0, np.nan, np.inf]), edges_of(3, 8))

    assert plain(thin.mean) == [1.0, None, None, None, None]
    assert edges_of(5, 5).tolist() == [5]
    assert len(bucketed(np.empty(0, np.int64), np.empty(0), edges_of(0, 0)).mean) == 0


def test_a_step_is_as_long_as_on_its_slowest_rank_and_ranks_may_leave() -> None:
    """Goal: a run that goes on with fewer ranks keeps its curve. Method: rank 1 has the first ten of twenty steps, and is slower."""
    steps = RunSteps((rank_of(0, range(20), 100, tokens=7), rank_of(1, range(10), 300, tokens=7)))
    document = run_curves(steps, Ledger([], [])).to_json()
    curves = {curve["name"]: curve["lines"][0] for curve in document["curves"]}

    assert document["steps"] == list(range(20))
    assert curves["step_time"]["values"] == [300.0] * 10 + [100.0] * 10
    assert curves["step_time"]["low"] == [100.0] * 20
    assert curves["tokens_per_s"]["values"] == [14 / 300e-9] * 10 + [7 / 100e-9] * 10
    heat = heat_map(steps, "step_time")
    assert [row["rank"] for row in heat["ranks"]] == [0, 1]
    assert heat["ranks"][1]["values"] == [300.0] * 10 + [None] * 10
    assert (heat["low"], heat["high"]) == (100.0, 300.0)


def test_a_zoom_is_asked_for_by_steps_and_held_to_those_that_exist() -> None:
    curves = RunCurves(np.arange(5_000), ())

    assert curves.to_json(100, 200)["steps"] == list(range(100, 200))
    assert curves.to_json(100, 200)["is_exact"]
    whole = curves.to_json()
    assert len(whole["steps"]) == BUCKETS_MAX
    assert not whole["is_exact"]
    assert curves.to_json(4_990, 9_999)["end"] == 5_000
    assert curves.to_json(7_000, 9_999)["steps"] == [4_999]
    assert RunCurves(np.empty(0, np.int64), ()).to_json()["steps"] == []


def test_what_was_not_measured_has_no_curve_and_what_is_not_finite_is_counted() -> None:
    """Goal: O7, O3. Method: a column of which nothing was measured, and a scalar with a number that is none."""
    rank = rank_of(0, range(4), 10, rss=5, memory_peak=UNMEASURED)
    scalars = {0: {"loss": np.array([2.0, NOT_FINITE, np.nan, 1.0])}}
    document = run_curves(RunSteps((rank,), scalars), Ledger([], [])).to_json()
    curves = {curve["name"]: curve["lines"] for curve in document["curves"]}

    assert [line["label"] for line in curves["memory"]] == ["process"]
    assert curves["loss"][0]["values"] == [2.0, None, None, 1.0]
    assert curves["loss"][0]["not_finite"] == 1
    assert "tokens_per_s" not in curves
