"""``penstock stacks`` of a job of many hosts: groups over all its ranks, and who waits in a collective that others did not reach."""

import time
from typing import Any

import msgspec

from penstock.cli.output import print_json, print_text, say
from penstock.errors import StacksForbidden
from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import ask_hosts, check_patience, left_s
from penstock.process.questions.host_choice import hosts_of
from penstock.process.questions.host_stacks import groups_of_all
from penstock.process.questions.number_ranges import ranges
from penstock.process.stacks.collectives import waiting_line
from penstock.process.stacks.py_spy import FORBIDDEN
from penstock.process.stacks.text import shown_groups
from penstock.report.quantities import number_of


def stacks_of_hosts(
    job: Job, *, ranks: frozenset[int] | None, native: str, patience_s: float, json: bool
) -> int:
    """Collect them on every host at once, and show equal ones together, the rarest first."""
    check_patience(patience_s)
    begun = time.monotonic()
    hosts = hosts_of(job, patience_s=patience_s)
    wanted = None if ranks is None else ranges(ranks)
    chosen = hosts.choose(ranks=wanted)
    task: dict[str, Any] = {"do": "stacks", "native": native, "ranks": wanted}
    answer = ask_hosts(job, chosen, task, patience_s=left_s(patience_s, begun))
    groups = groups_of_all(answer.parts, hosts.named)
    if groups and all(FORBIDDEN in group.problem for group in groups):
        count = sum(len(group.workers) for group in groups)
        raise StacksForbidden(job=job.id, workers=count, ptrace_scope="")
    took_s = time.monotonic() - begun
    if json:
        about = {"job": job.id, "took_s": round(took_s, 3), "native": native}
        account = msgspec.to_builtins(answer.account)
        print_json({**about, "groups": msgspec.to_builtins(groups), "account": account})
        return 0 if answer.account.is_whole else 1
    total = sum(len(group.workers) for group in groups)
    print_text(shown_groups(groups, total) if groups else f"{job.id}: no worker runs")
    if line := waiting_line(groups):
        say(line)
    say(f"{number_of(total, 'worker')}, {number_of(len(groups), 'group')}, {took_s:.2f} s")
    say(answer.account.line())
    return 0 if answer.account.is_whole else 1
