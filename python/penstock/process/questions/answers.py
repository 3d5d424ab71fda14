"""What hosts of a job answer to a question: parts that are equal once, and accounts of who answered (H5).

The coordinator of a host listens at ``host.sock`` in the host directory. A question goes from there to the leader and down the tree; answers
are put together on the way up (``crates/penstock-process/src/host/questions``). Whatever happens, the answer comes within the patience.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from penstock.errors import JobSilent, UsageError
from penstock.process.job.catalogue import Job
from penstock.process.job.control import HOST_SOCKET, ask
from penstock.process.questions.host_sets import fold
from penstock.process.questions.number_ranges import numbers_in, ranges

#: How long a question waits, unless somebody says otherwise.
PATIENCE_S = 2.0
PATIENCE_MAX_S = 600.0


class Refusal(msgspec.Struct, frozen=True):
    """Hosts that did not do what was asked."""

    why: str
    #: Host ranks, as ``0-3,8``.
    hosts: str


class Account(msgspec.Struct, frozen=True):
    """Who was asked: each host answered, is unheard, or refused. All are host ranks, as ``0-3,8``."""

    asked: str = ""
    answered: str = ""
    unheard: str = ""
    refused: list[Refusal] = []
    #: Of hosts that did not answer, as far as they are not too many.
    names: dict[int, str] = {}

    @property
    def is_whole(self) -> bool:
        """Whether all hosts answered."""
        return not self.unheard and not self.refused

    def line(self, what: str = "hosts", count: Callable[[Iterable[int]], int] | None = None) -> str:
        """``1,022 of 1,024 ranks · unheard: gpu07 · refused: none``; ``count`` says how many of them hosts have."""
        size = count or (lambda hosts: len(list(hosts)))
        answered, asked = (size(numbers_in(hosts)) for hosts in (self.answered, self.asked))
        refused = " · ".join(f"{self._named(refusal.hosts)} ({refusal.why})" for refusal in self.refused)
        unheard = self._named(self.unheard) if self.unheard else "none"
        one = what.removesuffix("s") if asked == 1 else what
        return f"{answered:,} of {asked:,} {one} · unheard: {unheard} · refused: {refused or 'none'}"

    def _named(self, hosts: str) -> str:
        host_ranks = numbers_in(hosts)
        names = [self.names[host] for host in host_ranks if host in self.names]
        nameless = [host for host in host_ranks if host not in self.names]
        parts = [fold(names), f"host rank {ranges(nameless)}" if nameless else ""]
        return ",".join(part for part in parts if part)


class Part(msgspec.Struct, frozen=True):
    """Something that one or more hosts said alike."""

    hosts: str = ""
    ranks: str = ""
    head: Any = None
    #: Of the lowest of the hosts alone.
    about: Any = None
    body: str = ""
    #: Bytes that were cut.
    cut: int = 0


class Answer(msgspec.Struct, frozen=True):
    """Everything that came back."""

    account: Account = Account()
    parts: list[Part] = []
    rows: list[dict[str, Any]] = []


class _Reply(msgspec.Struct):
    account: Account = Account()
    names: dict[int, str] = {}
    parts: list[Part] = []
    rows: list[dict[str, Any]] = []


def check_patience(seconds: float) -> None:
    """A question needs an end."""
    if not 0 < seconds <= PATIENCE_MAX_S:
        raise UsageError(f"--patience must be more than 0 and at most {PATIENCE_MAX_S:.0f} s, got {seconds}")


def left_s(patience_s: float, begun_s: float) -> float:
    """What is left for a question of the patience of a command that has looked for the hosts before; something always is."""
    return max(patience_s - (time.monotonic() - begun_s), patience_s / 4)


def ask_job(job: Job, question: str | dict[str, Any], *, patience_s: float = PATIENCE_S) -> Answer:
    """Ask all hosts of a job, or whoever leads. Raises ``JobSilent``."""
    asked = {"ask": question, "patience_ms": round(patience_s * 1000)}
    reply = ask(job, asked, at=HOST_SOCKET, patience_s=patience_s)
    try:
        known = msgspec.convert(reply, _Reply, strict=False)
    except msgspec.ValidationError as problem:
        raise JobSilent(job=job.id, reason=f"its answer is not in a known form ({problem})") from problem
    account = msgspec.structs.replace(known.account, names=known.names)
    return Answer(account, known.parts, known.rows)


def ask_hosts(job: Job, hosts: Iterable[int], task: dict[str, Any], *, patience_s: float) -> Answer:
    """Have hosts do something, each by a process of its own that ends with the question. Raises ``JobSilent``."""
    return ask_job(job, {"task": {"hosts": ranges(hosts), "task": task}}, patience_s=patience_s)
