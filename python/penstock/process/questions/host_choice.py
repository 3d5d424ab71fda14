"""Which hosts of a job a question is for: by names, by ranks, by state. Pure but for the question which hosts there are."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.errors import JobSilent, RankUnknown, UsageError
from penstock.process.hosts.host_names import expand
from penstock.process.hosts.host_table import HostRow, HostTable, host_table
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.questions.answers import PATIENCE_S
from penstock.process.questions.host_sets import fold
from penstock.process.questions.number_ranges import numbers_in, ranges

#: How often the hosts are asked for while nobody leads.
LOOK_S = 0.1


@dataclass(frozen=True)
class Hosts:
    """The hosts of a job, by host rank."""

    job: Job
    rows: dict[int, HostRow]

    def named(self, host_ranks: str) -> str:
        """Names of host ranks, folded."""
        return fold(self.rows[rank].name for rank in numbers_in(host_ranks) if rank in self.rows)

    def rank_count(self, host_ranks: Iterable[int]) -> int:
        """How many ranks these hosts have."""
        return sum(self.rows[rank].slots for rank in host_ranks if rank in self.rows)

    def choose(
        self, *, names: str | None = None, ranks: str | None = None, state: str | None = None
    ) -> list[int]:
        """Host ranks of hosts that are named, have one of the ranks, and are in a state; without any of these all."""
        chosen = set(self.rows)
        if names is not None:
            chosen &= self._by_name(names)
        if ranks is not None:
            chosen &= self._by_rank(ranks)
        if state is not None:
            chosen &= self._by_state(state)
        if not chosen:
            raise UsageError(
                "no host is all of that", hint=f"`penstock hosts list {self.job.id}` shows the hosts"
            )
        return sorted(chosen)

    def _by_name(self, names: str) -> set[int]:
        known = {row.name: rank for rank, row in self.rows.items()}
        wanted = expand(names)
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise UsageError(
                f"job {self.job.id} has no host {fold(unknown)}", hint=f"its hosts are {fold(known)}"
            )
        return {known[name] for name in wanted}

    def _by_rank(self, ranks: str) -> set[int]:
        wanted = numbers_of(ranks, "--ranks")
        of_rank = {
            (row.first_rank or 0) + place: host
            for host, row in self.rows.items()
            for place in range(row.slots)
        }
        unknown = [rank for rank in wanted if rank not in of_rank]
        if unknown:
            raise RankUnknown(
                job=self.job.id,
                wanted=ranges(unknown),
                reason="there is none",
                hint=f"ranks are {ranges(of_rank)}" if of_rank else "none has been started yet",
            )
        return {of_rank[rank] for rank in wanted}

    def _by_state(self, state: str) -> set[int]:
        states = sorted({row.state for row in self.rows.values()})
        if state not in states:
            raise UsageError(f"no host of job {self.job.id} is {state}", hint=f"they are {', '.join(states)}")
        return {rank for rank, row in self.rows.items() if row.state == state}


def numbers_of(text: str, option: str) -> list[int]:
    """The ranks of an option such as ``0,8-15``."""
    try:
        ranks = numbers_in(text)
    except ValueError as problem:
        raise UsageError(f"{option} must be as in 0,8-15, got {text}") from problem
    if not ranks:
        raise UsageError(f"{option} must be as in 0,8-15, and names no rank")
    return ranks


def hosts_of(
    job: Job, *, patience_s: float = PATIENCE_S, find: Callable[[Job], HostTable] = host_table
) -> Hosts:
    """The hosts of a job that runs on many. While the leader changes nobody knows them, so it is asked again. Raises ``JobSilent`` where no
    leader is heard for so long.
    """
    if job.host_file() is None:
        raise UsageError(
            f"job {job.id} has one host, this one", hint="--hosts, --ranks and --where are for jobs of many"
        )
    if job.phase() in FINAL:
        raise JobSilent(job=job.id, reason=f"it is over ({job.phase()})")
    until = time.monotonic() + patience_s
    while True:
        table = find(job)
        rows = {row.rank: row for row in table.hosts or [] if row.rank is not None}
        # What the hosts of a job wait for before they have met may take long.
        if rows or table.reason or time.monotonic() > until:
            break
        time.sleep(LOOK_S)
    if not rows:
        raise JobSilent(
            job=job.id,
            reason=table.line(),
            hint="ask on a host that hears the leader; `penstock hosts list` says who does",
        )
    return Hosts(job, rows)
