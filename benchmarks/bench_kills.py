"""A thousand random kills: any process of a job, one or two at once, in any order, of jobs whose processes are hard to find and to end.

Executed ranks and ranks forked from a warm Python, of root and of an ordinary user, with and without control groups, restarted together and one by one. Who
should be gone and is not, who should not have been touched and was, and which lines are missing in logs is counted; any of them ends the benchmark with an error.
"""

import time

from tests.process.campaign import Tally, kills, ways

from benchmarks.table import Table

KILLS = 1000
SEED = 17


def run() -> Table:
    """Kill, and count."""
    table = Table("after any kill nobody survives for a second and nobody else is touched", "s")
    whole = Tally()
    for number, way in enumerate(ways()):
        begun = time.perf_counter()
        tally = kills(SEED + number, -(-KILLS // len(ways())), way)
        whole.add(tally)
        took = time.perf_counter() - begun
        name = f"{way}: slowest of {tally.kills.total()} kills"
        table.add(name, tally.slowest_s, f"{_words(tally)}; {took:.0f} s")
    table.add(f"all {whole.kills.total()}", whole.slowest_s, _words(whole))
    if whole.survivors or whole.bystanders or whole.lost or whole.lost_with_both:
        raise AssertionError(table.text("kills"))
    return table


def _words(tally: Tally) -> str:
    return (
        f"{tally.late} there after 1 s, {tally.survivors} for ever, {tally.bystanders} bystanders; of {tally.lines} lines "
        f"{tally.lost} lost, {tally.lost_with_both} more where keeper and agent were killed at once"
    )
