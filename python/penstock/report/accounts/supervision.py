"""What the supervisor of a job noted about the lives of a run: when each was ordered and began, how each rank ended, and why."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock.run.journal.journal import Entry

_LINE_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class SupervisedLife:
    """One life of a gang; moments in seconds since 1970."""

    #: When the job was asked for, of its first life; it may have waited for devices that others had.
    requested: float | None = None
    ordered: float | None = None
    started: float | None = None
    pids: list[int] = field(default_factory=list)
    #: By pid.
    exits: dict[int, float] = field(default_factory=dict)
    failed: float | None = None
    #: What it failed of, in words and in kind.
    what: str = ""
    cause: str = ""
    #: When the next life of the gang was ordered.
    next_ordered: float | None = None

    @property
    def gone(self) -> float | None:
        """When the last of its processes was gone."""
        return max(self.exits.values(), default=None)

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
        directory = Path(entry.facts.get("home") or home) / "jobs" / job
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
            life.requested = min(requested, life.ordered)
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
    event, at = entry["event"], float(entry["at"])
    if event in ("failed", "blamed"):
        failure = entry["failure"]
        life = lives[entry["gang"], failure["incarnation"]]
        # Who is to blame may be corrected later; when it failed stays.
        life.failed = at if life.failed is None else life.failed
        life.what, life.cause = str(failure["what"]), str(failure["cause"])
    elif event == "ordered":
        lives[entry["gang"], entry["incarnation"]] = SupervisedLife(ordered=at)
    elif event == "started":
        life = lives[entry["gang"], entry["incarnation"]]
        life.started, life.pids = at, list(entry["pids"])
    elif event == "exited":
        lives[entry["gang"], entry["incarnation"]].exits[int(entry["pid"])] = at
