"""What the supervisor of a job noted about the lives of a run: when each was ordered and began, how each rank ended, and why."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.run.journal.journal import Entry

_LINE_BYTES_MAX = 1 << 20


class Stamp(NamedTuple):
    """A moment of the supervisor's: seconds since 1970, and nanoseconds of its boot where its journal says them."""

    wall: float
    boot_ns: int = 0
    boot_id: str = ""

    def noticed(self, at_ms: object) -> "Stamp":
        """The moment at which something was noticed, in milliseconds of the boot, where the line about it says one."""
        if not isinstance(at_ms, int) or not 0 < at_ms * 1_000_000 <= self.boot_ns:
            return self
        return self.earlier((self.boot_ns - at_ms * 1_000_000) / 1e9)

    def earlier(self, seconds: float) -> "Stamp":
        """So much before."""
        boot_ns = self.boot_ns - round(seconds * 1e9) if self.boot_ns else 0
        return Stamp(self.wall - seconds, boot_ns, self.boot_id)


@dataclass(slots=True)
class SupervisedLife:
    """One life of a gang."""

    #: When the job was asked for, of its first life; it may have waited for devices that others had.
    requested: Stamp | None = None
    ordered: Stamp | None = None
    started: Stamp | None = None
    pids: list[int] = field(default_factory=list)
    #: By pid.
    exits: dict[int, Stamp] = field(default_factory=dict)
    failed: Stamp | None = None
    #: What it failed of, in words and in kind.
    what: str = ""
    cause: str = ""
    #: When the next life of the gang was ordered.
    next_ordered: Stamp | None = None

    @property
    def gone(self) -> Stamp | None:
        """When the last of its processes was gone."""
        return max(self.exits.values(), key=lambda stamp: (stamp.boot_ns, stamp.wall), default=None)

    @property
    def is_hang(self) -> bool:
        """Whether it was ended because nothing moved."""
        return self.cause == "hang"


def supervised_lives(entries: list[Entry], home: Path) -> dict[int, SupervisedLife]:
    """By life of the run. A life that nobody supervised, or whose job is gone, is missing. ``home`` has the jobs of runs that do not say where theirs are."""
    lives: dict[int, SupervisedLife] = {}
    journals: dict[Path, dict[tuple[int, int], SupervisedLife]] = {}
    for entry in entries:
        job, life = entry.facts.get("job"), entry.facts.get("life")
        is_ours = entry.kind == "start" and entry.facts.get("launcher") == "penstock"
        if not is_ours or not isinstance(job, str) or not isinstance(life, int) or "/" in job or not job:
            continue
        place = entry.facts.get("job_directory")
        directory = Path(place) if isinstance(place, str) and place else home / "jobs" / job
        if directory not in journals:
            journals[directory] = _journal(directory / "journal.jsonl")
        pid = entry.facts.get("pid")
        for (_, incarnation), supervised in journals[directory].items():
            if incarnation == life and pid in supervised.pids:
                lives[entry.incarnation] = supervised
    return lives


def _journal(path: Path) -> dict[tuple[int, int], SupervisedLife]:
    """Lives by gang and number."""
    lives: dict[tuple[int, int], SupervisedLife] = {}
    try:
        file = path.open("rb")
    except OSError:
        return lives
    with file:
        while line := file.readline(_LINE_BYTES_MAX):
            try:
                _note(msgspec.json.decode(line), lives)
            except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
                # A torn line, or one of a newer agent: what it says is not known.
                continue
    requested = _requested(path.with_name("state.json"))
    for (gang, number), life in lives.items():
        if number == 0 and requested is not None and life.ordered is not None:
            # Both are of the supervisor's wall clock, and its boot says when the order was.
            life.requested = life.ordered.earlier(max(0.0, life.ordered.wall - requested))
        following = lives.get((gang, number + 1))
        life.next_ordered = None if following is None else following.ordered
    return lives


def _requested(path: Path) -> float | None:
    """When a job was asked for; None when its state is gone or of another form."""
    try:
        at = msgspec.json.decode(path.read_bytes())["started_at"]
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return None
    return at if isinstance(at, float) and at > 0 else None


def _note(entry: dict[str, Any], lives: dict[tuple[int, int], SupervisedLife]) -> None:
    boot_ns, boot_id = entry.get("boot_ns", 0), entry.get("boot_id", "")
    event, at = entry["event"], Stamp(float(entry["at"]), int(boot_ns), str(boot_id))
    if event in ("failed", "blamed"):
        failure = entry["failure"]
        life = lives[entry["gang"], failure["incarnation"]]
        # Who is to blame may be corrected later; when it failed stays.
        life.failed = at.noticed(failure.get("at_ms")) if life.failed is None else life.failed
        life.what, life.cause = str(failure["what"]), str(failure["cause"])
    elif event == "ordered":
        lives[entry["gang"], entry["incarnation"]] = SupervisedLife(ordered=at)
    elif event == "started":
        life = lives[entry["gang"], entry["incarnation"]]
        life.started, life.pids = at, list(entry["pids"])
    elif event == "exited":
        lives[entry["gang"], entry["incarnation"]].exits[int(entry["pid"])] = at.noticed(entry.get("at_ms"))
