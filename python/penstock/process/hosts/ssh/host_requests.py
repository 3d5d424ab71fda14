"""Hosts that are logged in to later: in place of one that was lost, or because its first login failed.

The job's leader says which host ranks want a host (``crates/penstock-process/src/host/leading/requests.rs``); a launcher that is attached asks it
through one of its logins and logs in again, with growing waits. Which name is tried when is decided here, without ssh: the host that was
lost first, then the names of the list that have no login.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

#: From one question to the leader to the next, and until it is asked through another host.
ASK_S = 2.0
ANSWER_S = 5.0
#: Logins under way at once: a rack that fails is no reason to start a storm.
AT_ONCE_MAX = 8
#: Before a name is tried again: doubled for each further try.
FIRST_WAIT_S = 5.0
WAIT_MAX_S = 60.0
#: For a login to say that it is there.
LOGIN_S = 60.0


@dataclass(frozen=True)
class Wanted:
    """A host rank that wants a host."""

    rank: int
    #: Who had it.
    name: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Wanted":
        """As the leader says it."""
        return cls(int(row["rank"]), str(row["name"]))


@dataclass
class _Attempts:
    count: int = 0
    next_s: float = 0.0
    why: str = ""


@dataclass
class HostRequests:
    """What is wanted, what was tried, and when the next try is due."""

    #: All names, in the order of the list, as ssh knows them.
    names: Sequence[str]
    _attempts: dict[str, _Attempts] = field(default_factory=dict)
    #: Whether something new is to be told to the leader.
    news: bool = False

    def due(self, wanted: Sequence[Wanted], busy: Collection[str], under_way: int, now_s: float) -> list[str]:
        """Names to log in to now. ``busy`` are those that have a login, ``under_way`` how many of these have not answered yet."""
        lost = [name for want in wanted for name in self.names if plain_name(name) == want.name]
        order = dict.fromkeys([*lost, *self.names])
        free = [name for name in order if name not in busy]
        ready = [name for name in free if self._of(name).next_s <= now_s]
        return ready[: max(min(len(wanted), AT_ONCE_MAX) - under_way, 0)]

    def note_try(self, name: str, now_s: float) -> None:
        """A login begins."""
        attempts = self._of(name)
        attempts.next_s = now_s + min(FIRST_WAIT_S * 2**attempts.count, WAIT_MAX_S)
        attempts.count += 1

    def note_failure(self, name: str, why: str, now_s: float) -> bool:
        """It came to nothing, or its host left again; whether that is news."""
        attempts = self._of(name)
        attempts.next_s = max(attempts.next_s, now_s + FIRST_WAIT_S)
        is_new = attempts.why != why
        self.news |= is_new
        attempts.why = why
        return is_new

    def note_settled(self, name: str) -> None:
        """The host takes part: if it is lost again, it is tried again at once."""
        self._attempts.pop(name, None)

    def tried(self) -> list[dict[str, str]]:
        """What the leader writes down, because it is there that people look."""
        self.news = False
        return [
            {"name": plain_name(name), "why": about.why}
            for name, about in self._attempts.items()
            if about.why
        ]

    def _of(self, name: str) -> _Attempts:
        return self._attempts.setdefault(name, _Attempts())


def plain_name(name: str) -> str:
    """A host without its user: ``gpu07`` of ``me@gpu07``, as the job calls it."""
    return name.rpartition("@")[2]
