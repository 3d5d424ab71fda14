"""What starts hosts, as one narrow protocol: start a bundle on each, watch, release.

ssh is the first that keeps it. An engine that starts pods or tasks needs the same three things and nothing more, so the rest of a launcher
does not know who started its hosts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.process.hosts.bundle import Bundle


@dataclass(frozen=True)
class HostGreeting:
    """What a host said when it was there."""

    #: As the launcher calls it.
    name: str
    address: str
    port: int
    interfaces: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    #: Equal for two logins to one host; empty where it does not say.
    machine: str = ""
    #: Who it is and what it shows (``exclusion.entry.EntryLook``).
    entry: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, message: dict[str, Any]) -> "HostGreeting":
        """From the line that it sent."""
        return cls(
            name,
            str(message["address"]),
            int(message["port"]),
            dict(message.get("interfaces") or {}),
            dict(message.get("versions") or {}),
            str(message.get("machine") or ""),
            dict(message.get("entry") or {}),
        )


class BundleMaker(Protocol):
    """Makes what hosts get."""

    def first(self, greetings: Sequence[HostGreeting]) -> Sequence[Bundle]:
        """For the hosts that begin the job together, in this order. Raises a ``PenstockError`` where they do not fit together."""

    def left_out(self, greetings: Sequence[HostGreeting]) -> Mapping[str, str]:
        """Hosts that are here and take no part, by name, and why. Raises a ``PenstockError`` where these are too many."""

    def later(self, greeting: HostGreeting, others: Sequence[str]) -> Bundle:
        """For one that comes later, and finds the job at one of the others. Raises a ``PenstockError`` where it does not fit to them."""


class HostStarter(Protocol):
    """Starts the hosts of one job."""

    def start(self, bundles: BundleMaker) -> None:
        """Begin on every host; when all are there, or enough of them, give each the bundle that is made for it.

        Raises ``HostsMissing``, with every host's own words, when too many of them cannot be started; then none is left.
        """

    def watch(self) -> int:
        """Pass output and signals until every host has ended; the exit code of the job.

        A host whose processes were seen to end is told to the job (``host_table.report_ended``): it is ``gone``. Hints tell nothing. Hosts
        that the job's leader asks for (``host_table.wanted_hosts``) are started, as long as it asks.
        """

    def release(self) -> None:
        """Let go of every host: those that still run are told that their launcher has ended."""
