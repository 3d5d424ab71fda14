"""A thousand random kills: any process of a job, one or two at once, in any order, of jobs whose processes are hard to find and to end.

Executed ranks of root and of an ordinary user, and ranks forked from a warm Python, each with and without control groups. Who should be gone and is not, who should not have
been touched and was, and which lines are missing in logs is counted; any of the first two ends the benchmark with an error.
"""

import os
import time

from tests.process.campaign import Tally, kills, users

from benchmarks.table import Table

KILLS = 1000
SEED = 17


def run() -> Table:
    """Kill, and count."""
    table = Table("after any kill nobody survives for a second and nobody else is touched", "s")
    whole = Tally()
    # The interpreter of an environment may lie where only its owner can reach it, so forked ranks are our own user's.
    ways = [(user, cgroup, False) for user in users() for cgroup in (True, False)]
    ways += [(os.geteuid(), cgroup, True) for cgroup in (True, False)]
    for number, (user, cgroup, forked) in enumerate(ways):
        begun = time.perf_counter()
        tally = kills(SEED + number, -(-KILLS // len(ways)), user=user, cgroup=cgroup, forked=forked)
        whole.add(tally)
        where = "with" if cgroup else "without"
        took = time.perf_counter() - begun
        name = f"user {user}, {where} control groups, {'forked' if forked else 'executed'}"
        table.add(
            f"{name}: slowest of {tally.kills.total()} kills",
            tally.slowest_s,
            f"{_words(tally)}; {took:.0f} s",
        )
    table.add(f"all {whole.kills.total()}", whole.slowest_s, _words(whole))
    if whole.survivors or whole.bystanders:
        raise AssertionError(table.text("kills"))
    return table


def _words(tally: Tally) -> str:
    return (
        f"{tally.late} there after 1 s, {tally.survivors} for ever, {tally.bystanders} bystanders; of {tally.lines} lines "
        f"{tally.lost} lost, {tally.lost_with_both} more where keeper and agent were killed at once"
    )
