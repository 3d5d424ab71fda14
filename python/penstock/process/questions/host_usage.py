"""What every worker of one host does and takes: step, phase, processors, memory; asked from any host of the job."""

import time
from typing import Any

import msgspec

from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import ask_hosts
from penstock.process.questions.task_parts import first_ranks, part
from penstock.process.watch.usage import Row, Watcher

#: Shares of processors are differences, so a look needs two.
BETWEEN_LOOKS_S = 0.3
#: The host starts a Python for it.
PATIENCE_S = 5.0
#: Workers that are told; a host has a few.
ROWS_MAX = 1024


def usage_parts(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    """The workers of this host, with the numbers that they have in the whole job."""
    watcher = Watcher(job)
    watcher.look()
    time.sleep(min(BETWEEN_LOOKS_S, float(task["limit_s"]) / 4))
    first = first_ranks(job.state())
    rows = [
        msgspec.structs.replace(row, rank=row.rank + first.get(row.role, 0)) for row in watcher.look().rows
    ]
    shown = msgspec.to_builtins(rows[:ROWS_MAX])
    return [part(shown, ranks=[row.rank for row in rows[:ROWS_MAX]], head={"rows": shown})]


def usage_of_host(job: Job, host_rank: int, *, patience_s: float = PATIENCE_S) -> tuple[list[Row], str]:
    """The workers of a host, and why there are none where it did not answer. Raises ``JobSilent``."""
    answer = ask_hosts(job, [host_rank], {"do": "usage"}, patience_s=patience_s)
    rows = [row for one in answer.parts for row in one.head.get("rows", [])]
    problem = "" if answer.account.is_whole else answer.account.line()
    return msgspec.convert(rows, list[Row]), problem
