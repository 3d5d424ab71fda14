"""What is known of a host when it comes to a job: who it is, and what a short look at it showed.

The look takes no longer than its limit and disturbs nobody: GPUs answer and their memory is sound. Whoever is excluded, or shows a failure now, takes no
part; what it shows is remembered. A history that cannot be used never keeps a host out.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.errors.health import HistoryUnusable, HostExcluded, HostsExcluded, HostUnfit
from penstock.process.exclusion.check_failures import write_findings
from penstock.process.exclusion.history import HostHistory, note_seen, pasts
from penstock.process.exclusion.identity import HostIdentity, own_identity
from penstock.process.exclusion.records import FAILURES, Record
from penstock.process.exclusion.rule import WINDOW_S, Exclusion, Pasts, lost_at_most
from penstock.process.health.facts.gpu_facts import gpu_uuids
from penstock.process.health.facts.host_facts import Looks, host_facts
from penstock.process.health.verdict import Finding, check_alone, span

#: Where failures are remembered, where no option says so.
VARIABLE = "PENSTOCK_HOST_HISTORY"
#: A driver that nobody keeps loaded needs seconds for each GPU.
LOOK_S = 15.0
#: A host that has no room is told so, and a program may need none.
BLOCKS = frozenset({"gpu", "ecc"})
#: Lines that a host passes on of what its own home remembers.
PASSED_MAX = 64


class EntryLook(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who comes, and what it shows."""

    identity: HostIdentity = HostIdentity()
    #: Sentences, and what they are remembered as: check, words, failure, key.
    shown: list[tuple[str, str, str, str]] = []
    #: What the home of this host remembers, which others may not share.
    passed: list[Record] = []

    @property
    def problems(self) -> list[str]:
        """Why it is not to be used."""
        return [words for check, words, _, _ in self.shown if check in BLOCKS]

    @property
    def findings(self) -> list[Finding]:
        """As a check has them."""
        return [Finding(0, check, "bad", words, failure, key) for check, words, failure, key in self.shown]

    @classmethod
    def of(cls, message: object) -> "EntryLook":
        """As it travelled; nothing of hosts of other versions."""
        try:
            return msgspec.convert(message or {}, cls)
        except msgspec.ValidationError:
            return cls()


def history_place(chosen: str | None, environment: Mapping[str, str]) -> str | None:
    """What an option or a variable says."""
    return chosen or environment.get(VARIABLE) or None


def entry_look(environment: Mapping[str, str], *, looks: bool) -> EntryLook:
    """Look at this host; without ``looks`` it only says who it is."""
    if not looks:
        return EntryLook(own_identity(environment, gpus=gpu_uuids()))
    facts = host_facts(Looks(measures_disk=False, gpu_patience_s=LOOK_S), environment)
    bad = [finding for finding in check_alone(facts) if finding.state == "bad"]
    shown = [(finding.check, finding.words, finding.failure, finding.key) for finding in bad]
    return EntryLook(facts.identity, shown)


def recent_failures(history: HostHistory) -> list[Record]:
    """What a home remembers of the last days, to pass it on; nothing where it cannot be read."""
    try:
        records = [record for record in history.records() if record.kind in FAILURES]
    except HistoryUnusable:
        return []
    return [record for record in records if record.at > time.time() - WINDOW_S][-PASSED_MAX:]


class EntryGuard:
    """Lets hosts into a job, or says why not."""

    def __init__(self, history: HostHistory, tell: Callable[[str], None]) -> None:
        self._history, self._tell = history, tell

    def note(self, looks: Mapping[str, EntryLook]) -> None:
        """Remember who has which name, and what hosts show or pass on."""
        try:
            there = {record.digest for record in self._history.records()}
            passed = {one.digest: one for look in looks.values() for one in look.passed}
            news = [record for digest, record in passed.items() if digest not in there]
            if news:
                self._history.append(news)
            note_seen(
                self._history, pasts(self._history), ((name, look.identity) for name, look in looks.items())
            )
            for name, look in looks.items():
                write_findings(self._history, look.findings, {0: name}, {0: look.identity})
        except HistoryUnusable as problem:
            self._tell(f"note: {problem}")

    def left_out(self, looks: Mapping[str, EntryLook], *, hosts: int) -> dict[str, str]:
        """Hosts that take no part, and why. Raises ``HostsExcluded`` where exclusion would cost a job too many."""
        known = self._known()
        excluded = {
            name: words(name, exclusion)
            for name, look in looks.items()
            if (exclusion := _exclusion(known, name, look.identity)) is not None
        }
        self.check_number(excluded, hosts)
        unfit = {
            name: f"not fit: {'; '.join(look.problems)}" for name, look in looks.items() if look.problems
        }
        return {**unfit, **excluded}

    def check_number(self, excluded: Mapping[str, str], hosts: int) -> None:
        """A job may lose a tenth of its hosts that way."""
        if len(excluded) > lost_at_most(hosts):
            raise HostsExcluded(hosts=hosts, excluded=excluded, allowed=lost_at_most(hosts))

    def let_in(self, name: str, look: EntryLook) -> None:
        """Raises ``HostExcluded`` or ``HostUnfit``."""
        exclusion = _exclusion(self._known(), name, look.identity)
        if exclusion is not None:
            until = (
                ""
                if exclusion.until is None
                else time.strftime("%Y-%m-%d %H:%M", time.localtime(exclusion.until))
            )
            why = exclusion.why if exclusion.host in ("", name) else f"as {exclusion.host}: {exclusion.why}"
            raise HostExcluded(host=name, why=why, place=self._history.place, until=until)
        if look.problems:
            raise HostUnfit(host=name, problems=look.problems)

    def excluded_names(self, names: Iterable[str]) -> dict[str, str]:
        """Of hosts that are known by name only: a first guess."""
        known = self._known()
        by_name = ((name, known.named(name)) for name in names)
        return {
            name: words(name, past.exclusion)
            for name, past in by_name
            if past is not None and past.exclusion is not None
        }

    def all_excluded(self) -> dict[str, str]:
        """All of them, by their last name; for an engine that ignores names which it does not know."""
        excluded = [past for past in self._known().excluded() if past.name]
        return {
            past.name: words(past.name, past.exclusion) for past in excluded if past.exclusion is not None
        }

    def _known(self) -> Pasts:
        try:
            return pasts(self._history)
        except HistoryUnusable as problem:
            self._tell(f"note: {problem}; nobody is excluded")
            return Pasts([], now=time.time())


def _exclusion(known: Pasts, name: str, identity: HostIdentity) -> Exclusion | None:
    past = known.of(identity, names=[name])
    return None if past is None else past.exclusion


def words(name: str, exclusion: Exclusion) -> str:
    """In one line."""
    called = "" if exclusion.host in ("", name) else f" as {exclusion.host}"
    left = "" if exclusion.until is None else f" for {span(max(0.0, exclusion.until - time.time()))} more"
    return f"excluded{called}{left}: {exclusion.why} (`penstock hosts include {name}` uses it again)"


def to_builtins(look: EntryLook) -> dict[str, Any]:
    """As it travels."""
    return dict(msgspec.to_builtins(look))


__all__: Sequence[str] = [
    "EntryGuard",
    "EntryLook",
    "entry_look",
    "history_place",
    "recent_failures",
    "to_builtins",
    "words",
]
