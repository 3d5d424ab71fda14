"""The journal of a run: everything that was decided or happened, one line each, in order, across all of its lives.

A life writes a file of its own, ``journal/000003-0000.jsonl``, so nobody ever appends to what another process wrote. Lines that others
act on (decisions, commits) are synced before anybody acts. A last line that a kill tore was never acted on and is left out; anything
else that cannot be read is an error, because a run that forgets a decision is another run (R2).
"""

import os
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from penstock.errors import RunDamaged
from penstock.run.journal.append_file import AppendFile

FOLDER = "journal"
#: What entries there are, and what each of them tells.
KINDS = {
    "start": "a life begins: ranks, seed, recipe, versions of libraries, what is pinned, and how to start it again",
    "incident": "the life before did not end in order, and what its supervisor knows about it",
    "restore": "training goes on from a checkpoint, or from nothing",
    "commit": "a checkpoint exists",
    "save_failed": "a checkpoint could not be made",
    "notice": "somebody asked to save now, or to leave",
    "verdict": "a policy decided: skip, rollback, replay, stop",
    "replayed": "a replay has come to its step: the same bits, or others",
    "weights": "from this step on the mixture has other weights",
    "recipe": "the recipe is another one than in the life before",
    "topology": "the number of ranks is another one than in the life before",
    "phase": "something that was no part of training, such as an evaluation, and how long it took",
    "stop": "the program asked to end here",
    "retention": "everything is kept, because the run was begun when that was the rule",
    "note": "something that the user's program said",
    "end": "a life ends in order, or with an error",
}
#: Those that something follows from.
DECISIONS = frozenset({"start", "verdict", "replayed"})
_NAME = re.compile(r"(\d{6})-(\d{4,})\.jsonl")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the journal."""

    #: Seconds since 1970.
    at: float
    kind: str
    incarnation: int
    rank: int = 0
    step: int | None = None
    facts: dict[str, Any] = {}
    #: The same moment in nanoseconds of CLOCK_BOOTTIME, which nobody can set; 0 in older journals.
    boot_ns: int = 0


class Journal:
    """Writes the file of one rank of one life; it is made with the first line."""

    def __init__(self, directory: Path, incarnation: int, rank: int) -> None:
        self._incarnation, self._rank = incarnation, rank
        self.path = directory / FOLDER / f"{incarnation:06d}-{rank:04d}.jsonl"
        self._file = AppendFile(self.path)

    def write(self, kind: str, step: int | None = None, *, sync: bool = False, **facts: object) -> Entry:
        """Append a line; with ``sync`` it is on the disk when this returns. A decision that cannot be is ``RunUnwritable``; while
        the disk is full, other lines wait in memory.
        """
        assert kind in KINDS, f"{kind} is no kind of entry"
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        entry = Entry(time.time(), kind, self._incarnation, self._rank, step, facts, boot_ns)
        # One call per line: a kill tears the last one at most.
        self._file.write(msgspec.json.encode(entry) + b"\n", sync=sync, must=kind in DECISIONS)
        return entry

    def close(self) -> None:
        """Everything is on the disk."""
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read(directory: str | os.PathLike[str]) -> list[Entry]:
    """The story so far: lives in order, ranks of a life merged by time."""
    folder = Path(directory) / FOLDER
    entries: list[Entry] = []
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if _NAME.fullmatch(path.name):
                entries += _read_file(path)
    return sorted(entries, key=lambda entry: (entry.incarnation, entry.at, entry.rank))


def _read_file(path: Path) -> list[Entry]:
    data = path.read_bytes()
    entries: list[Entry] = []
    place = 0
    while place < len(data):
        end = data.find(b"\n", place)
        line = data[place:] if end < 0 else data[place:end]
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
            if end < 0 or not data[end:].strip(b"\n\0"):
                # Torn by a kill, or by a machine that lost its newest pages.
                return entries
            raise RunDamaged(file=str(path), place=place, reason=str(reason)) from reason
        if end < 0:
            return entries
        entries.append(entry)
        place = end + 1
    return entries
