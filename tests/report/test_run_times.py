"""Times that a larger run is imagined with: what the records of a run say about starts, loads, saves and steps."""

import pytest

from penstock.report.run_times import times_of
from tests.report.simulator import Loop


def test_times_are_medians_of_what_was_recorded() -> None:
    """Method: an imagined loop whose every tenth step stands still for half a second to save."""
    evidence = Loop(ranks=2).plant("checkpoint", 500, every=10).evidence()

    times = times_of(evidence.timelines)

    assert times.save_s == pytest.approx(0.5)
    assert times.step_s == pytest.approx(0.0664, rel=0.1)
    assert times.start_s == pytest.approx(0.1, rel=0.5)


def test_what_was_not_recorded_is_not_guessed() -> None:
    times = times_of(Loop(steps=20).evidence().timelines)

    assert times.save_s is None
    assert times_of([]).step_s is None
