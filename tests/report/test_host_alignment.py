"""Hosts are aligned by the exchanges of their steps: planted offsets and drifts lie within the stated bounds."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.report.accounts.host_alignment import (
    MINUTE_NS,
    NOT_ALIGNED,
    HostAlignment,
    Meetings,
    alignment_of,
)
from penstock.report.accounts.run_timeline import run_timeline
from tests.report.step_rows import row_of, writer_of

SECOND = 10**9


def met(chance: random.Random, steps: int, offset: int, drift: float) -> tuple[Meetings, Meetings, int]:
    """Two hosts come to exchanges at different times and leave some time after the last came; the other clock is offset and drifts."""
    rows = []
    now = chance.randint(0, 10**6) * SECOND
    start = now
    for step in range(steps):
        now += chance.randint(SECOND // 100, 2 * SECOND)
        came = [now + chance.randint(0, 20_000_000) for _ in range(2)]
        left = [max(came) + chance.choice([1000, 50_000, 9_000_000]) * chance.randint(1, 9) for _ in range(2)]
        other = [at + offset + round(drift * (at - start)) for at in (came[1], left[1])]
        rows.append((step, came[0], left[0], other[0], other[1]))
        now = max(left)
    columns = np.array(rows, np.int64)
    steps_met = columns[:, 0]
    one = Meetings(steps_met, columns[:, 1], columns[:, 2])
    return one, Meetings(steps_met, columns[:, 3], columns[:, 4]), start


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(-(10**15), 10**15), st.floats(-2e-4, 2e-4), st.integers(1, 900))
def test_planted_offsets_and_drifts_lie_within_the_bounds(
    seed: int, offset: int, drift: float, steps: int
) -> None:
    """Goal: bounds hold. Method: clocks with a planted offset and drift; every moment of every minute, from both sides."""
    one, other, start = met(random.Random(seed), steps, offset, drift)
    alignment = alignment_of(0, "a", "b", one, other)
    assert alignment.minutes
    for minute in alignment.minutes:
        assert minute.low is not None
        assert minute.high is not None
        assert minute.drift_low - 1 <= drift * 1e9 <= minute.drift_high + 1
        for at in (minute.at, minute.at - MINUTE_NS // 3):
            bounds = alignment.bounds(at)
            assert bounds is not None
            truth = at + offset + drift * (at - start)
            assert bounds[0] - 2 <= truth <= bounds[1] + 2
    if steps > 300:
        widths = [
            minute.high - minute.low for minute in alignment.minutes if minute.low is not None and minute.high
        ]
        assert np.median(widths) < 50_000_000


def test_a_clock_that_jumps_is_not_aligned_rather_than_wrong() -> None:
    """Goal: nothing is shown that cannot be right. Method: the other clock is set back by 10 s in the middle of a window."""
    one, other, _ = met(random.Random(1), 300, 5 * SECOND, 0.0)
    jumped = Meetings(
        other.steps,
        np.where(other.steps < 150, other.came, other.came - 10 * SECOND),
        np.where(other.steps < 150, other.left, other.left - 10 * SECOND),
    )
    alignment = alignment_of(3, "a", "b", one, jumped)
    assert any(minute.low is None for minute in alignment.minutes)
    assert NOT_ALIGNED in [minute.to_json()["offset"] for minute in alignment.minutes]


def test_hosts_without_an_exchange_in_common_are_not_aligned() -> None:
    one, _, _ = met(random.Random(1), 5, 0, 0.0)
    nothing = Meetings(*(np.empty(0, np.int64) for _ in range(3)))
    alignment = alignment_of(0, "aaaaaaaaaa", "bbbbbbbbbb", one, nothing)
    assert alignment.to_json()["minutes"] == NOT_ALIGNED
    assert alignment.bounds(int(one.left[0])) is None
    assert "not aligned with that of aaaaaaaa: they have no exchange in common" in alignment.sentence()


@pytest.fixture
def two_hosts(tmp_path: Path) -> Path:
    """A run of three ranks on two hosts, whose boots began 1000 s apart."""
    offset = {0: 0, 1: 0, 2: 1000 * SECOND}
    for rank, shift in offset.items():
        writer = writer_of(tmp_path, 0, rank=rank, boot_id="first" if shift == 0 else "second")
        # The wall clock of the second host is an hour ahead.
        wall = 10**18 + (3600 * SECOND if shift else 0)
        writer.anchor(shift, shift, wall)
        for step in range(100):
            begin = (1 + step) * SECOND
            values = {"step": step, "begin": begin + shift, "end": begin + SECOND + shift}
            values |= {
                "host.user": SECOND - 3_000_000 * (rank + 1),
                "host.exchange": 3_000_000 * (rank + 1),
                "host.gc": 0,
            }
            writer.row(row_of(values | {"exchanged": values["end"]}))
        writer.close()
    return tmp_path


def test_a_run_on_two_hosts_has_its_clocks_aligned(two_hosts: Path) -> None:
    """Goal: the timeline of several boots. Method: real step files of two boots; their wall clocks say something else and are not asked."""
    timeline = run_timeline(two_hosts, two_hosts)
    (alignment,) = timeline.alignments
    assert isinstance(alignment, HostAlignment)
    assert (alignment.reference, alignment.clock, alignment.life) == ("first", "second", 0)
    bounds = alignment.bounds(50 * SECOND)
    assert bounds is not None
    assert bounds[0] <= 1050 * SECOND <= bounds[1]
    assert bounds[1] - bounds[0] < 20_000_000
    assert [rank.lives[0].clock for rank in timeline.ranks] == ["first", "first", "second"]
