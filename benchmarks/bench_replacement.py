"""A host that is lost costs the rest of its lease and a restart: with a spare, and with fewer hosts.

Eight ranks on four hosts of this machine, each with a real keeper, agent and coordinator. The peer is the same restart after the death of one
rank, in the same run; times are from the loss, all processes of the host killed at once, until every rank of the next life has begun; in the last row, of a training
run, until every rank has made a step.
"""

import statistics

from benchmarks.host_swarm import WAIT_S, apart
from benchmarks.table import Table

SCENES = "benchmarks.host_scenes"
HOSTS = "4"
#: What is asked: the lease and so many times the restart.
RESTARTS = 1.5


def run() -> Table:
    """Measure in one run."""
    table = Table("a lost host over its lease and 1.5 restarts; at most 1", "of what is asked")
    restart_s = statistics.median(apart(SCENES, ["death", HOSTS])["took_s"])
    table.add("what is asked", 1.0, f"a restart after the death of a rank takes {restart_s:.2f} s")
    for scene, words in (
        ("replaced", "a spare takes the place"),
        ("left", "a host says goodbye, and a spare takes its place; no lease is waited for"),
        ("shrunk", f"the job goes on with fewer, after a wait of {WAIT_S:g} s"),
    ):
        seen = apart(SCENES, [scene, HOSTS])
        took_s, lease_s = statistics.median(seen["took_s"]), seen["lease_s"]
        waited_s = {"shrunk": lease_s + WAIT_S, "left": 0.0}.get(scene, lease_s)
        asked_s = waited_s + RESTARTS * restart_s
        least, most = min(seen["took_s"]), max(seen["took_s"])
        table.add(
            words,
            took_s / asked_s,
            f"{took_s:.2f} s ({least:.2f} to {most:.2f}) with a lease of {lease_s:g} s; asked {asked_s:.2f} s",
        )
    seen = apart(SCENES, ["steps", "2"])
    restart_s, took_s = statistics.median(seen["death_s"]), statistics.median(seen["took_s"])
    asked_s = seen["lease_s"] + RESTARTS * restart_s
    table.add(
        "a spare takes the place in a training run: to the next step of every rank",
        took_s / asked_s,
        f"{took_s:.2f} s; asked {asked_s:.2f} s, of a lease of {seen['lease_s']:g} s and restarts of {restart_s:.2f} s (DDP, warm Python)",
    )
    return table
