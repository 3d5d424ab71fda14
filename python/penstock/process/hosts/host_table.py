"""What any host of a job says about all of them, and how that is said in a line.

The coordinator of a host listens at ``host.sock`` in the host directory (``crates/penstock-process/src/host/asker.rs``). It passes a question
to the leader, so every host gives the same answer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.errors import JobSilent
from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import PATIENCE_S, Account, ask_job

#: Names of hosts in a line.
NAMED_MAX = 8


class HostRow(msgspec.Struct, frozen=True):
    """One host."""

    rank: int | None
    name: str
    state: str
    slots: int = 0
    address: str = ""
    #: How long it has been in its state.
    since_s: float | None = None
    voter: bool = False
    #: Hosts with the same word stand together; empty where nobody knows.
    rack: str = ""
    #: What people should mend on it, though the job goes on.
    trouble: str | None = None
    #: The number of its first rank among the ranks of all hosts.
    first_rank: int | None = None
    #: How many heartbeats of it are missing; nothing of a host that is here and reports to another than the leader.
    late_beats: float | None = None
    #: How long its ranks may run on unheard, at most.
    lease_left_s: float | None = None


class HostTable(msgspec.Struct, frozen=True):
    """All hosts of a job, and who decides for them."""

    #: Nothing before they have met, and where the leader was not reached.
    hosts: list[HostRow] | None = None
    term: int = 0
    leader: str | None = None
    voters: list[str] = []
    #: Why nothing is decided, such as ``1 of 3 voters``; nothing when all is well.
    frozen: str | None = None
    #: What this host waits for, before all hosts have met.
    reason: str | None = None
    lease_ms: int = 0
    heartbeat_ms: int = 1000
    #: Grows when there are other hosts or voters.
    list: int = 0

    def line(self) -> str:
        """``3 hosts here · unheard: gpu02``."""
        parts: list[str] = []
        if self.hosts is None:
            parts.append(self.reason or "the leader is not heard here")
        else:
            counts = Counter(host.state for host in self.hosts)
            here = counts.pop("here", 0)
            parts.append(f"{here} {'host' if here == 1 else 'hosts'} here")
            for state in sorted(counts):
                names = [host.name for host in self.hosts if host.state == state]
                more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
                parts.append(f"{state}: {', '.join(names[:NAMED_MAX])}{more}")
        if self.frozen:
            parts.append(f"frozen: {self.frozen}")
        return " · ".join(parts)


class Rows(NamedTuple):
    """What hosts said, and who of them did."""

    rows: list[dict[str, Any]]
    account: Account


def host_table(job: Job, *, patience_s: float = PATIENCE_S) -> HostTable:
    """Which hosts the job has. Raises ``JobSilent``."""
    return _told(job, _ask_all(job, "hosts", patience_s))


def unsettled_hosts(job: Job, *, patience_s: float = PATIENCE_S) -> HostTable | None:
    """The same with those hosts alone that are not both here and heard on time; nothing where the leader is of a version that does not
    know the question. Raises ``JobSilent``.
    """
    answer = _ask_all(job, "unsettled", patience_s)
    return None if answer.account.refused else _told(job, answer)


def _told(job: Job, answer: Rows) -> HostTable:
    rows = answer.rows
    if not rows:
        # The question went to a parent that has not answered in time: this host is cut off, or the leader is new.
        return HostTable()
    try:
        return msgspec.convert(rows[0], HostTable)
    except msgspec.ValidationError as problem:
        raise JobSilent(job=job.id, reason=f"its hosts are not told in a known way ({problem})") from problem


def worker_rows(job: Job, *, patience_s: float = PATIENCE_S) -> Rows:
    """Workers of all hosts that answered, by rank; each with its ``host``. Raises ``JobSilent``."""
    answer = _ask_all(job, "ps", patience_s)
    return answer._replace(rows=sorted(answer.rows, key=lambda row: (row["role"], row["rank"])))


def journal_lines(job: Job) -> list[dict[str, Any]]:
    """The newest lines of the job's journal, each with its number as ``line``. Raises ``JobSilent``."""
    return _ask_all(job, "journal").rows


def report_ended(job: Job, host: str, by: str) -> bool:
    """Tell the leader that the processes of a host were seen to end; whether it has taken note. Raises ``JobSilent``.

    ``host`` is the ``host`` of its ``host.json``: one start of it. This is for what starts hosts and sees their processes end. A hint, for
    example that an engine calls a host down, is not that.
    """
    return bool(_ask_all(job, {"ended": {"host": host, "by": by}}).rows)


def wanted_hosts(job: Job, tried: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Host ranks that the leader asks a host for, and the word of who starts hosts that it is there. Raises ``JobSilent``.

    ``tried``: names that could not be started, and why; the leader writes it down.
    """
    return _ask_all(job, {"wanted": {"tried": [dict(one) for one in tried]}}).rows


def _ask_all(job: Job, question: str | dict[str, Any], patience_s: float = PATIENCE_S) -> Rows:
    answer = ask_job(job, question, patience_s=patience_s)
    return Rows(answer.rows, answer.account)
