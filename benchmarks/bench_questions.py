"""Questions to all hosts of a job, on this machine: real keepers, agents and coordinators, as `hosts` starts them.

Every row is a figure over what is asked of it, so 1 and less is what was asked; the words behind it have the figure itself. `--full` adds
1,000 and 2,000 hosts, which two processors do not carry well, and stacks of 512 ranks.
"""

import os
import statistics

from benchmarks.host_swarm import apart, hosts_possible
from benchmarks.table import Table

SCENES = "benchmarks.question_scenes"
#: What `ps` and `exec -- true` may take over so many hosts.
ANSWER_S = {64: 0.15, 250: 0.15, 1000: 0.15, 2000: 0.4}
#: The patience of a question: with a silent host the answer comes then, not later.
PATIENCE_S = 2.0
STACKS_RATIO = 1.5
#: Logs of 8 ranks on 4 hosts, followed on one of them.
LOGS_MB_S = 200
#: A directory to many hosts over the same to one.
SHIP_RATIO = 2.0


def run(*, full: bool = False) -> Table:
    """Measure in one run."""
    table = Table("figures over what is asked of them; at most 1", "of what is asked")
    table.add("what is asked", 1.0, f"load {os.getloadavg()[0]:.1f}")
    for hosts in (64, 250, 1000, 2000) if full else (64, 250):
        _questions(table, hosts)
    _stacks(table, 512 if full else 32)
    _logs(table)
    _ship(table, 64 if full else 8)
    return table


def _questions(table: Table, wanted: int) -> None:
    hosts, why = hosts_possible(wanted)
    name = f"{wanted} hosts"
    if hosts < wanted:
        table.add(name, float("nan"), f"not run: this machine allows {hosts} ({why})")
        return
    seen = apart(SCENES, ["questions", str(hosts)])
    limit_s = ANSWER_S[wanted]
    table.add(f"{name}: ps", seen["ps_s"] / limit_s, f"{seen['ps_s']:.3f} s, load {seen['load']:.1f}")
    table.add(f"{name}: exec -- true", seen["exec_s"] / limit_s, f"{seen['exec_s']:.3f} s, a process on each")
    table.add(
        f"{name}: ps with a silent host",
        seen["silent_s"] / PATIENCE_S,
        f"{seen['silent_s']:.2f} s, the patience is {PATIENCE_S:.0f} s",
    )


def _stacks(table: Table, ranks: int) -> None:
    one, eight = (apart(SCENES, ["stacks", str(hosts), str(ranks)])["took_s"] for hosts in (1, 8))
    ratio = statistics.median(eight) / statistics.median(one)
    table.add(
        f"stacks of {ranks} Python ranks, 8 hosts over one",
        ratio / STACKS_RATIO,
        f"{ratio:.2f} x: {statistics.median(eight):.2f} over {statistics.median(one):.2f} s",
    )


def _logs(table: Table) -> None:
    one, four = (apart(SCENES, ["logs", str(hosts)]) for hosts in (1, 4))
    rates = [seen["bytes"] / statistics.median(seen["took_s"]) / 1e6 for seen in (one, four)]
    table.add(
        "logs -f of 8 ranks on 4 hosts",
        LOGS_MB_S / rates[1],
        f"{rates[1]:.0f} MB/s through TLS, {rates[0]:.0f} MB/s of one host, load {four['load']:.1f};"
        f" {four['bytes'] / four['cpu_s'] / 1e6:.0f} MB for a second of all processors together",
    )


def _ship(table: Table, hosts: int) -> None:
    """All hosts share two processors here, so what each adds is shown; what is asked for counts hosts with processors of their own."""
    one, many = (apart(SCENES, ["ship", str(number)]) for number in (1, hosts))
    ratio = many["took_s"] / (one["took_s"] + one["packed_s"])
    table.add(
        f"--ship of {one['bytes'] / 1e6:.0f} MB to {hosts} hosts over one and packing",
        ratio / SHIP_RATIO,
        f"{ratio:.1f} x: {many['took_s']:.2f} s over {one['took_s']:.2f} + {one['packed_s']:.2f} s,"
        f" load {many['load']:.1f}; processor time {many['receiver_cpu_s']:.2f} s of each, {many['sender_cpu_s']:.1f} s of who sends",
    )
