"""What starts hosts, as one narrow protocol: start a bundle on each, watch, release.

ssh is the first that keeps it. An engine that starts pods or tasks needs the same three things and nothing more, so the rest of a launcher
does not know who started its hosts.
"""

from collections.abc import Callable, Sequence
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
        )


class HostStarter(Protocol):
    """Starts the hosts of one job."""

    def start(self, bundles: Callable[[Sequence[HostGreeting]], Sequence[Bundle]]) -> None:
        """Begin on every host; when all are there, give each the bundle that ``bundles`` makes for it.

        Raises ``HostsMissing``, with every host's own words, when one of them cannot be started; then none is left.
        """

    def watch(self) -> int:
        """Pass output and signals until every host has ended; the exit code of the job.

        A host whose processes were seen to end is told to the job (``host_table.report_ended``): it is ``gone``. Hints tell nothing.
        """

    def release(self) -> None:
        """Let go of every host: those that still run are told that their launcher has ended."""
