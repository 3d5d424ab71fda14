"""Hosts rented from an engine: what is asked for, what was given, and the verbs that every engine has to know.

An engine rents hosts and is not asked to supervise anything. An *allocator* speaks to one engine. It owns nothing: what it knows is in the
directory of the allocation, and it may be killed at any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Phase = Literal["queued", "granted", "ended", "silent"]


class EngineOption(NamedTuple):
    """An option of the engine itself: ``--with qos=high``. Without a value it is a switch, as in ``--with exclusive``."""

    name: str
    value: str | None


@dataclass(frozen=True, kw_only=True)
class HostRequest:
    """What a job wants of an engine."""

    hosts: int
    #: Further hosts in reserve.
    spares: int = 0
    gpus_per_host: int = 0
    #: How long the hosts may be kept; None: as long as the engine likes.
    time_s: float | None = None
    #: Slurm's partition, the queue of others.
    queue: str = ""
    own_options: Sequence[EngineOption] = ()
    #: Names that the engine is not to give, because those hosts failed: a first guess.
    excluded: Sequence[str] = ()

    @property
    def all_hosts(self) -> int:
        """Those in reserve included."""
        return self.hosts + self.spares


@dataclass(frozen=True, kw_only=True)
class HostStart:
    """What runs on every host, and where."""

    command: Sequence[str]
    directory: Path
    variables: dict[str, str]


@dataclass(frozen=True)
class Allocation:
    """Hosts that an engine was asked for."""

    engine: str
    #: Ours, and known before the engine is asked.
    name: str
    #: What the engine calls it.
    number: str
    directory: Path


@dataclass(frozen=True)
class Standing:
    """How an allocation stands, as the engine says it."""

    phase: Phase
    #: In the engine's own words: why it waits, or how it ended.
    words: str = ""
    hosts: Sequence[str] = ()
    #: How many others stand before it in the queue.
    ahead: int | None = None
    #: When the engine thinks that it will begin.
    begins: str = ""
    #: When the engine will end it.
    ends: str = ""
    #: Why no waiting will change it, as a hint; empty where waiting may.
    hopeless: str = ""


class JobOutput(Protocol):
    """What the ranks of a rented job write, on its way to the terminal of a launcher."""

    def show(self) -> None:
        """Write what came since the last time."""

    def close(self) -> None:
        """Nothing more is wanted."""


class Allocator(Protocol):
    """One engine."""

    #: For sentences.
    title: str

    def check(self, request: HostRequest) -> None:
        """Refuse, before anything is rented, what cannot be had: no engine, no such queue, too long."""

    def preview(self, request: HostRequest, start: HostStart, directory: Path) -> str:
        """The very text that the engine would get."""

    def acquire(self, request: HostRequest, start: HostStart, directory: Path) -> Allocation:
        """Ask for the hosts, which start the command when they are granted. Written down before the engine is asked."""

    def look(self, allocation: Allocation) -> Standing:
        """How it stands now; one request."""

    def ahead(self, allocation: Allocation) -> int | None:
        """How many others stand before it in the queue; nothing where the engine does not say."""

    def output(self, allocation: Allocation) -> JobOutput:
        """Follow what its ranks write."""

    def end_code(self, allocation: Allocation) -> int | None:
        """The exit code of the job, as far as it is known without another request; nothing while it runs."""

    def job_name(self, allocation: Allocation) -> str:
        """The name of the job that its hosts run; empty before they do."""

    def own_command(self, *words: str) -> list[str]:
        """A command of ours, as it is called on its hosts."""

    def tend(self, allocation: Allocation) -> Sequence[str]:
        """What a launcher does for a running job beside showing it, and sentences about it: lost hosts are made anew."""

    def reach(self, allocation: Allocation, hosts: Sequence[str], command: Sequence[str]) -> list[str]:
        """A command that runs a command on one of the hosts."""

    def release(self, allocation: Allocation) -> None:
        """Give all hosts back, and end what runs there. Once more changes nothing."""

    def release_named(self, name: str) -> None:
        """The same by our own name, where nobody knows what the engine calls it: a launcher was killed just then."""

    def release_words(self, allocation: Allocation) -> str:
        """What a person types to give the hosts back."""

    def forget(self, allocation: Allocation) -> None:
        """Remove what the engine keeps of a job that is over, and of which everything was shown."""
