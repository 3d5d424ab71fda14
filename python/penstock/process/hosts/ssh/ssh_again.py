"""Later logins: hosts that the job's leader asks for, while the launcher is there that has the keys.

From time to time one of the hosts is asked what the leader wants (``host_requests`` decides which name is tried when). A host that is here gets
the bundle of one that joins; what came of a try is told to the leader with the next question.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from penstock.errors.root import PenstockError
from penstock.process.hosts.bundle import Bundle
from penstock.process.hosts.ssh.host_requests import (
    ANSWER_S,
    ASK_S,
    LOGIN_S,
    HostRequests,
    Wanted,
    plain_name,
)
from penstock.process.hosts.ssh.ssh_login import Login
from penstock.process.hosts.starter import BundleMaker, HostGreeting

#: A host that ends within this has not taken part; and after it one that was asked for is in the list of hosts.
SETTLED_S = 10.0


class Connections(Protocol):
    """What later logins need of whoever keeps all of them."""

    @property
    def logins(self) -> Mapping[str, Login]:
        """Those that there are, by name."""

    def open(self, host: str) -> None:
        """Begin to log in."""

    def give(self, host: str, bundle: Bundle) -> None:
        """Send a host its bundle."""

    def drop(self, host: str) -> None:
        """End a login."""


class LoginsAgain:
    """What is wanted, what is under way, and who is asked."""

    def __init__(self, names: Sequence[str], bundles: BundleMaker, tell: Callable[[str], None]) -> None:
        self._requests, self._bundles, self._tell = HostRequests(list(names)), bundles, tell
        #: When the job's leader answered last.
        self.answered_s = 0.0
        self._wanted: list[Wanted] = []
        #: Logins that were begun, and when; and hosts that have their bundle, and since when.
        self._begun: dict[str, float] = {}
        self._given: dict[str, float] = {}
        #: The question under way: its number, and until when it is waited for.
        self._number = 0
        self._until_s = 0.0
        self._ask_s = 0.0

    def note_absent(self, host: str, why: str) -> None:
        """A host of the list did not come, or is gone."""
        is_new = self._requests.note_failure(host, why, time.monotonic())
        if is_new and self._given.pop(host, None) is not None:
            self._tell(f"note: {host} takes no part: {why}")

    def is_settling(self, host: str) -> bool:
        """Whether a host came later and may not have taken part yet."""
        return time.monotonic() < self._given.get(host, -SETTLED_S) + SETTLED_S

    def due_s(self) -> float:
        """When there is something to do at the latest."""
        return self._until_s if self._until_s else self._ask_s

    def keep(self, connections: Connections) -> None:
        """Ask, begin logins that are due, and go on with those that are under way."""
        now_s = time.monotonic()
        self._ask(connections, now_s)
        for host in list(self._begun):
            self._go_on(connections, host, now_s)
        for host in [host for host, at_s in self._given.items() if now_s >= at_s + SETTLED_S]:
            del self._given[host]
            self._requests.note_settled(host)
        young = len(self._given)
        under_way = len(self._begun) + young
        for host in self._requests.due(self._wanted, connections.logins, under_way, now_s):
            self._requests.note_try(host, now_s)
            self._begun[host] = now_s
            connections.open(host)

    def hear(self, number: int, rows: Sequence[Mapping[str, Any]] | None) -> None:
        """What the leader wants, if it was reached."""
        if number == self._number and self._until_s:
            self._until_s, self._ask_s = 0.0, time.monotonic() + ASK_S
            if rows is not None:
                self.answered_s = time.monotonic()
                self._wanted = [Wanted.of(dict(row)) for row in rows]

    def _ask(self, connections: Connections, now_s: float) -> None:
        if self._until_s and now_s >= self._until_s:
            # Whoever was asked is cut off, or has ended.
            self._until_s, self._ask_s, self._wanted = 0.0, now_s, []
        here = [
            host
            for host, login in connections.logins.items()
            if host not in self._begun and not login.is_over
        ]
        if self._until_s or now_s < self._ask_s or not here:
            return
        self._number += 1
        self._until_s = now_s + ANSWER_S
        message = {"number": self._number, "tried": self._requests.tried() if self._requests.news else []}
        connections.logins[here[self._number % len(here)]].send({"wanted": message})

    def _go_on(self, connections: Connections, host: str, now_s: float) -> None:
        login = connections.logins[host]
        if login.greeting is None:
            late = now_s > self._begun[host] + LOGIN_S
            if login.is_over or late:
                self._fail(connections, host, login.trouble(), now_s)
            return
        try:
            lost = {want.name for want in self._wanted}
            others = [
                name
                for name in connections.logins
                if name not in self._begun and plain_name(name) not in lost
            ]
            bundle = self._bundles.later(HostGreeting.of(host, login.greeting), others)
        except PenstockError as problem:
            self._fail(connections, host, str(problem), now_s)
            return
        del self._begun[host]
        self._given[host] = now_s
        connections.give(host, bundle)
        self._tell(f"note: logged in to {host} again, because a host is missing")

    def _fail(self, connections: Connections, host: str, why: str, now_s: float) -> None:
        del self._begun[host]
        if self._requests.note_failure(host, why, now_s):
            self._tell(f"note: {host} does not come: {why}")
        connections.drop(host)
