"""What the agent of any host says about all hosts of its job, and how that is said in a line."""

from collections import Counter
from typing import Any

import msgspec

from penstock.process.job.catalogue import Job
from penstock.process.job.control import ask

#: Names of hosts in a line.
NAMED_MAX = 8


class HostRow(msgspec.Struct, frozen=True):
    """One host."""

    rank: int | None
    name: str
    state: str
    ranks: int = 0
    address: str = ""


class HostTable(msgspec.Struct, frozen=True):
    """All hosts of a job, and who decides for them."""

    hosts: list[HostRow]
    term: int = 0
    leader: str | None = None
    voters: list[str] = []
    #: Why nothing is decided, such as ``1 of 3 voters``; empty when all is well.
    frozen: str = ""

    def line(self) -> str:
        """``3 hosts here · unheard: gpu02``."""
        counts = Counter(host.state for host in self.hosts)
        here = counts.pop("here", 0)
        parts = [f"{here} {'host' if here == 1 else 'hosts'} here"]
        for state in sorted(counts):
            names = [host.name for host in self.hosts if host.state == state]
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            parts.append(f"{state}: {', '.join(names[:NAMED_MAX])}{more}")
        if self.frozen:
            parts.append(f"frozen: {self.frozen}")
        return " · ".join(parts)


def host_table(job: Job) -> HostTable:
    """Ask the agent of this host. Raises ``JobSilent``."""
    answer = ask(job, {"ask": "hosts"})
    if not isinstance(answer.get("frozen"), str):
        answer["frozen"] = "" if not answer.get("frozen") else "no majority of voters"
    return msgspec.convert(answer, HostTable, strict=False)


def rows_of_all(job: Job) -> list[dict[str, Any]]:
    """Workers of all hosts, as the hosts reported them last; each with its ``host``. Raises ``JobSilent``."""
    rows: list[dict[str, Any]] = ask(job, {"ask": "ps"}).get("rows", [])
    return rows
