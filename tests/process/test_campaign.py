"""P2 and P6 under random kills: a sample by seed of what `python -m benchmarks kills` does a thousand times."""

import os

import pytest

from tests.process.campaign import kills, users


@pytest.mark.parametrize("cgroup", [True, False])
@pytest.mark.parametrize("user", users())
def test_after_any_kill_nobody_survives_nobody_else_is_touched_and_no_line_is_lost(
    user: int, cgroup: bool
) -> None:
    """Goal: P2, P5 and P6. Method: random processes of jobs whose families are hard to find and to end, beside a job of the same kind."""
    tally = kills(100 * user + cgroup, 8, user=user, cgroup=cgroup)
    assert tally.kills.total() >= 8
    assert (tally.survivors, tally.bystanders, tally.lost) == (0, 0, 0), tally
    assert tally.lines > 0


@pytest.mark.parametrize("cgroup", [True, False])
def test_the_same_holds_for_ranks_that_are_forked(cgroup: bool) -> None:
    """Goal: P2, P5 and P6 of the usual case. Method: the same families of Python programs that are forked from a warm one."""
    tally = kills(7 + cgroup, 6, user=os.geteuid(), cgroup=cgroup, forked=True)
    assert tally.kills.total() >= 6
    assert (tally.survivors, tally.bystanders, tally.lost) == (0, 0, 0), tally
    assert tally.lines > 0
