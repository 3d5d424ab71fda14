"""P2 and P6 under random kills: a sample by seed of what `python -m benchmarks kills` does a thousand times."""

import pytest

from tests.process.campaign import Way, kills, ways


@pytest.mark.parametrize("way", ways(), ids=str)
def test_after_any_kill_nobody_survives_nobody_else_is_touched_and_no_line_is_lost(way: Way) -> None:
    """Goal: P2, P5 and P6. Method: random processes of jobs whose families are hard to find and to end, beside a job of the same kind."""
    tally = kills(100 * ways().index(way), 5, way)
    assert tally.kills.total() >= 5
    assert (tally.survivors, tally.bystanders, tally.lost, tally.lost_with_both) == (0, 0, 0, 0), tally
    assert tally.lines > 0
