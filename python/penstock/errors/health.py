"""Errors of hosts that are not fit to train, and of what is remembered about them."""

from collections.abc import Mapping
from typing import ClassVar

from penstock.errors.process import ProcessError

NAMED_MAX = 8


class HealthError(ProcessError):
    """Something about the fitness of hosts."""

    exit_code: ClassVar[int] = 1


class HistoryUnusable(HealthError):
    """What is remembered about hosts cannot be read or written."""

    hint = "--host-history URL names another place; --host-history none goes without"

    def __init__(self, *, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"the history of hosts in {place} cannot be used: {reason}")


class HostExcluded(HealthError):
    """A host that failed too often takes no part."""

    def __init__(self, *, host: str, why: str, place: str, until: str = "") -> None:
        self.host, self.why, self.place, self.until = host, why, place, until
        self.hint = f"`penstock hosts include {host}` uses it again; `penstock hosts excluded` shows all"
        till = f" until {until}" if until else ""
        super().__init__(f"host {host} is excluded{till}: {why}")


class HostsExcluded(HealthError):
    """A job would lose more than a tenth of its hosts to exclusion."""

    hint = (
        "`penstock hosts include HOST` uses one again; --host-history none uses all of them;"
        " when that many fail at once it is often not the hosts"
    )

    def __init__(self, *, hosts: int, excluded: Mapping[str, str], allowed: int) -> None:
        self.hosts, self.excluded, self.allowed = hosts, dict(excluded), allowed
        some = [f"{host}: {why}" for host, why in list(excluded.items())[:NAMED_MAX]]
        more = [f"and {len(excluded) - NAMED_MAX} more"] if len(excluded) > NAMED_MAX else []
        words = (
            f"{len(excluded)} of {hosts} hosts are excluded, and a job may lose {allowed} of them that way"
        )
        super().__init__(" · ".join([words, *some, *more]))


class HostUnfit(HealthError):
    """A host failed the look that is taken before a job uses it."""

    hint = "`penstock hosts check` on that host says more; --no-check takes it as it is"

    def __init__(self, *, host: str, problems: list[str]) -> None:
        self.host, self.problems = host, problems
        super().__init__(f"host {host} is not fit: {'; '.join(problems)}")


class CheckFailed(HealthError):
    """Hosts could not be checked at all."""

    def __init__(self, *, reason: str, hint: str | None = None) -> None:
        self.reason = reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"the hosts could not be checked: {reason}")
