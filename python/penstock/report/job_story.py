"""The journal of a job as a story: what happened and what was decided, in order, one sentence each.

The journal is the history that the coordinator knows (``crates/penstock-process/src/coordinator/history.rs``); reading it needs nobody's help. Entries that are not
known here are told with what they hold, so a newer agent's journal stays readable.
"""

import json
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.errors import JobSilent
from penstock.events.redaction import Redaction
from penstock.process.job.catalogue import FINAL, Job

#: A line of a journal is a few hundred bytes; what is longer is no journal.
LINE_BYTES_MAX = 1 << 20


class Happening(NamedTuple):
    """One entry of a journal, told."""

    #: Seconds since 1970.
    at: float
    #: The gang, as people call it; empty for what concerns the whole job.
    who: str
    incarnation: int | None
    what: str
    entry: dict[str, Any]


class Story:
    """Reads a journal on from where it was."""

    def __init__(self, job: Job) -> None:
        self._path = job.directory / "journal.jsonl"
        self._place = 0
        #: Of a job of many hosts, whose voters know more than this host's file.
        self._job = job if job.host_file() is not None else None
        #: The newest line of that journal that was told.
        self._line = 0
        description = job.description()
        self._gangs = _names(description, int((job.host_file() or {}).get("nnodes", 1)))
        self._redaction = Redaction()

    def more(self) -> Iterator[Happening]:
        """What is new. A line whose end is not written yet comes later; a torn one is left out."""
        entries = None if self._job is None else _journal_of_all(self._job)
        for entry in self._in_file() if entries is None else entries:
            number = entry.get("line", 0)
            if self._job is not None and number <= self._line and (number or self._line):
                # Told before, by whoever was asked, or a fact of this host alone.
                continue
            self._line = max(self._line, number)
            yield self._happening(entry)

    def _in_file(self) -> Iterator[dict[str, Any]]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._place)
            while (line := file.readline(LINE_BYTES_MAX)).endswith(b"\n"):
                self._place += len(line)
                entry = _entry(line)
                if entry is not None:
                    yield entry

    def _happening(self, entry: dict[str, Any]) -> Happening:
        shown: Any = self._redaction.document(entry)
        gang = entry.get("gang")
        who = self._gangs[gang] if isinstance(gang, int) and 0 <= gang < len(self._gangs) else ""
        life = entry.get("incarnation", _life(entry))
        tell = _SENTENCES.get(str(entry.get("event")), _anything)
        return Happening(float(entry.get("at", 0.0)), who, life, tell(shown), shown)


def _entry(line: bytes | str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _journal_of_all(job: Job) -> list[dict[str, Any]] | None:
    """The journal of the job, as its hosts know it; none where nobody answers, as after the end."""
    if job.phase() in (*FINAL, "lost"):
        return None
    from penstock.process.hosts.host_table import journal_lines

    try:
        return journal_lines(job)
    except JobSilent:
        return None


def _life(entry: dict[str, Any]) -> int | None:
    """Which life an entry is about, where that stands further inside."""
    about = entry.get("failure") or entry.get("suspicion") or {}
    life: int | None = about.get("incarnation")
    return life


def _names(description: dict[str, Any], hosts: int) -> list[str]:
    """Gangs in the coordinator's order: a role, or each rank of a role whose ranks restart alone, on all hosts."""
    names: list[str] = []
    for role in description["roles"]:
        ranks = role["ranks"] * hosts
        if role["policy"]["restart"] == "one" and ranks > 1:
            names += [f"{role['name']}-{rank}" for rank in range(ranks)]
        else:
            names.append(role["name"])
    return names


def how_it_ended(exit_: dict[str, Any] | None) -> str:
    """A status in words, as the agent says it."""
    if exit_ is None:
        return "was lost with its agent"
    if exit_.get("code") is not None:
        words = f"exited with code {exit_['code']}"
    elif exit_.get("signal") is not None:
        try:
            words = f"was killed by {signal.Signals(exit_['signal']).name}"
        except ValueError:
            words = f"was killed by signal {exit_['signal']}"
    else:
        words = "ended in an unknown way"
    words += " (core dumped)" if exit_.get("core") else ""
    return words + (" (the kernel was out of memory)" if exit_.get("memory_exhausted") else "")


def _ordered(entry: dict[str, Any]) -> str:
    return f"life {entry.get('incarnation')} is ordered: {entry.get('reason')}"


def _prepared(entry: dict[str, Any]) -> str:
    return (
        f"life {entry.get('incarnation')} is prepared on all hosts; rank 0 listens at {entry.get('meeting')}"
    )


def _hosts(entry: dict[str, Any]) -> str:
    """Who is on the list of hosts from now on."""
    about = entry.get("about") or {}
    placed = [f"{host.get('name')} has host rank {rank}" for rank, host in about.get("placed", [])]
    states = dict(about.get("states", []))
    lost = [f"the host of host rank {rank} is {states.get(rank, 'lost')}" for rank in about.get("lost", [])]
    back = [f"the host of host rank {rank} is back" for rank in about.get("back", [])]
    resize = about.get("resize") or {}
    why = [f"the job {resize['why']}"] if "why" in resize else []
    return ", ".join([*lost, *back, *placed, *why]) or "the list of hosts is new"


def _trouble(entry: dict[str, Any]) -> str:
    """Something about a host that people should mend; the job goes on."""
    host = f"host {entry.get('host')} (host rank {entry.get('host_rank')})"
    what = entry.get("what")
    return f"{host}: {what}" if what else f"{host} is well again"


def _request(entry: dict[str, Any]) -> str:
    """Whether somebody is asked to start another host in place of one that is missing."""
    return f"host rank {entry.get('host_rank')}, {entry.get('host')} before: {entry.get('what')}"


def _login(entry: dict[str, Any]) -> str:
    return f"{entry.get('host')}: {entry.get('what')}"


def _leave(entry: dict[str, Any]) -> str:
    return str(entry.get("reason"))


def _started(entry: dict[str, Any]) -> str:
    pids = entry.get("pids", [])
    if not pids:
        return "all workers run, on all hosts"
    named = ", ".join(map(str, pids[:8])) + (f" and {len(pids) - 8} more" if len(pids) > 8 else "")
    return f"{len(pids)} {'worker runs' if len(pids) == 1 else 'workers run'}: {named}"


def _exited(entry: dict[str, Any]) -> str:
    return f"rank {entry.get('rank')} (pid {entry.get('pid')}) {how_it_ended(entry.get('exit'))}"


def _failed(entry: dict[str, Any]) -> str:
    failure = entry.get("failure") or {}
    step = "" if failure.get("step") is None else f", at step {failure['step']}"
    return f"failed: {failure.get('what')} ({failure.get('cause')}{step})"


def _suspected(entry: dict[str, Any]) -> str:
    suspicion = entry.get("suspicion") or {}
    return f"warning: {suspicion.get('what')}; nothing is ended"


def _learned(entry: dict[str, Any]) -> str:
    return f"the longest time between two steps was {entry.get('longest_ms', 0) / 1000:.3f} s"


def _patience(entry: dict[str, Any]) -> str:
    return f"{entry.get('times')} times the limits of a hang from now on: {entry.get('reason')}"


def _gap(entry: dict[str, Any]) -> str:
    about = entry.get("about") or {}
    seconds = (about.get("to_ms", 0) - about.get("from_ms", 0)) / 1000
    return f"the agent itself was held for {seconds:.1f} s, so every rank has fresh patience"


def _blamed(entry: dict[str, Any]) -> str:
    return _failed(entry).replace("failed:", "first of all:", 1)


def _examined(entry: dict[str, Any]) -> str:
    return f"looks like: {entry['likeness']}" if entry.get("likeness") else "has no last words"


def _verdict(entry: dict[str, Any]) -> str:
    return f"verdict: {entry.get('action')}, because {entry.get('reason')}"


def _stop(entry: dict[str, Any]) -> str:
    stop = entry.get("stop") or entry
    return f"asked to stop by {stop.get('by')}, with {stop.get('grace_ms', 0) / 1000:g} s of grace"


def _finished(entry: dict[str, Any]) -> str:
    return f"{entry.get('outcome')} for good: {entry.get('reason')}"


def _over(entry: dict[str, Any]) -> str:
    return f"the job is over, {entry.get('phase')}: {entry.get('reason')}"


def _zygote(entry: dict[str, Any]) -> str:
    about = entry.get("about") or {}
    who = f"the warm Python (pid {about.get('pid')})"
    if about.get("warming"):
        return f"{who} is being made"
    if about.get("unusable"):
        return f"{who} cannot be used: {about['unusable']}"
    ready = about.get("ready") or {}
    return f"{who} is ready after {ready.get('took_s', '?')} s"


def _stacks(entry: dict[str, Any]) -> str:
    about = entry.get("about") or {}
    if not about.get("answered"):
        return "stacks could not be taken"
    return f"stacks were taken in {about.get('took_s', '?')} s"


def _resumed(entry: dict[str, Any]) -> str:
    return f"the job was started again; lives below {entry.get('lives', 0)} belong to earlier starts"


def _unkillable(entry: dict[str, Any]) -> str:
    return f"process {(entry.get('about') or {}).get('pid')} sleeps in the kernel and cannot be killed"


def _coordinator_lost(entry: dict[str, Any]) -> str:
    return f"the coordinator (pid {(entry.get('about') or {}).get('pid')}) was killed; another goes on"


def _anything(entry: dict[str, Any]) -> str:
    rest = {key: value for key, value in entry.items() if key not in ("at", "event", "gang", "incarnation")}
    return " ".join([str(entry.get("event", "?")), *_facts(rest)])


def _facts(about: dict[str, Any], of: str = "") -> Iterator[str]:
    """Names and values, however deep they stand."""
    for key, value in about.items():
        if isinstance(value, dict):
            yield from _facts(value, f"{of}{key}.")
        else:
            yield f"{of}{key}={value}"


_SENTENCES = {
    "ordered": _ordered,
    "resumed": _resumed,
    "prepared": _prepared,
    "started": _started,
    "hosts": _hosts,
    "trouble": _trouble,
    "request": _request,
    "login": _login,
    "leave": _leave,
    "exited": _exited,
    "failed": _failed,
    "blamed": _blamed,
    "examined": _examined,
    "suspected": _suspected,
    "learned": _learned,
    "patience": _patience,
    "gap": _gap,
    "verdict": _verdict,
    "stop": _stop,
    "finished": _finished,
    "over": _over,
    "zygote": _zygote,
    "stacks": _stacks,
    "unkillable": _unkillable,
    "coordinator-lost": _coordinator_lost,
}
