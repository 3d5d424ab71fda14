"""What imagining costs: 20 lives of a job of 2,048 hosts over 54 days, with the published faults of Llama 3, against the ten seconds asked.

Rows below are the same with one thread, and with other numbers of hosts, whose faults grow with them. Accounts are held against the time.
"""

import os
from functools import partial
from unittest.mock import patch

from benchmarks.table import Table, timed
from penstock.process.simulation import SimulationPlan, read_profile, simulate
from penstock.process.simulation.outcomes import Summary

ASKED_S = 10.0
DAYS, SEEDS = 54, 20


def run() -> Table:
    """Measure all."""
    table = Table(f"{SEEDS} lives of 2,048 hosts over {DAYS} days within {ASKED_S:g} s", "s")
    table.add("asked for", ASKED_S)
    cores = len(os.sched_getaffinity(0))
    lived: list[Summary] = []
    took = timed(lambda: lived.append(simulate(_plan(2048))))
    summary = lived[0]
    for outcome in summary.outcomes:
        assert sum(outcome.sums.values()) == DAYS * 86_400_000, outcome.seed
    faults = summary.interruptions(planned=False)
    note = f"{cores} cores; {faults.mean:.1f} interruptions in the mean, 419 published"
    table.add("2,048 hosts", took, note)
    with patch("os.sched_getaffinity", return_value={0}):
        table.add("the same, one thread", timed(lambda: simulate(_plan(2048))))
    for hosts in (64, 512, 4096):
        table.add(f"{hosts:,} hosts", timed(partial(simulate, _plan(hosts))))
    return table


def _plan(hosts: int) -> SimulationPlan:
    profile = read_profile("llama3")
    return SimulationPlan(
        profile=profile, hosts=hosts, for_s=DAYS * 86400.0, spare_hosts=hosts // 128, seeds=SEEDS
    )
