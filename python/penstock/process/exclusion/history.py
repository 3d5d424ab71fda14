"""Where it is written down what hosts have shown: ``hosts.jsonl`` in the home, or numbered objects in a store.

Many jobs write at once and some of them are killed while they do. A file grows by whole lines under a lock; who finds that the last line has no
end begins another one, so a torn line costs itself. In a store each line is an object of its own under the next number that is free
(put-if-absent); those of a month that is over become one object.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from penstock.errors.health import HistoryUnusable
from penstock.errors.store import ObjectMissing, StoreError
from penstock.process.exclusion.identity import HostIdentity
from penstock.process.exclusion.records import SEEN, Record, line_of, new_record, records_of
from penstock.process.exclusion.rule import Pasts
from penstock.store import Store, open_store

FILE = "hosts.jsonl"
#: No history: nothing is read and nothing is written.
NONE = "none"
#: The newest part of a very long file.
FILE_BYTES_MAX = 32 << 20
LOCK_S = 5.0
LOOK_S = 0.02
#: Contenders for one number.
TRIES = 200
#: After this many days of the next month nobody writes into the last one any more.
SETTLED_DAYS = 2
#: What is compacted at once.
OBJECTS_MAX = 10_000


class HostHistory(Protocol):
    """Lines about hosts, and where they are."""

    place: str

    def append(self, records: Sequence[Record]) -> None:
        """Write lines. Raises ``HistoryUnusable``."""

    def records(self) -> list[Record]:
        """All lines that can be read. Raises ``HistoryUnusable``."""


def open_history(home: Path, place: str | None) -> HostHistory:
    """The history of a home, or the one at a place; nothing is touched until it is used."""
    if place == NONE:
        return NoHistory()
    if place:
        return StoredHistory(open_store(place))
    return FileHistory(home / FILE)


def pasts(history: HostHistory) -> Pasts:
    """What follows from a history now."""
    return Pasts(history.records(), now=time.time())


def note_seen(history: HostHistory, known: Pasts, seen: Iterable[tuple[str, HostIdentity]]) -> None:
    """Write down which machine has which name, where that is news: failures are often told by name alone."""
    news = []
    for name, identity in seen:
        past = known.named(name)
        if identity.is_known and (past is None or not _covers(past.identity, identity)):
            news.append(new_record(SEEN, name, "", identity=identity))
    if news:
        history.append(news)


def _covers(known: HostIdentity, seen: HostIdentity) -> bool:
    same = (known.machine, known.board, known.cards) == (seen.machine, seen.board, seen.cards)
    return same and set(seen.gpus) <= set(known.gpus)


class NoHistory:
    """Nothing is remembered."""

    place = "nowhere"

    def append(self, records: Sequence[Record]) -> None:
        """Forget them."""

    def records(self) -> list[Record]:
        """None."""
        return []


class FileHistory:
    """A file that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)

    def append(self, records: Sequence[Record]) -> None:
        """Write whole lines at once, after whatever is there."""
        data = b"".join(map(line_of, records))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self.path.open("ab+", buffering=0) as file, _locked(file.fileno()):
                end = os.lseek(file.fileno(), 0, os.SEEK_END)
                torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
                _write_all(file.fileno(), (b"\n" if torn else b"") + data)
                os.fsync(file.fileno())
        except OSError as problem:
            raise HistoryUnusable(place=self.place, reason=problem.strerror or str(problem)) from problem

    def records(self) -> list[Record]:
        """Lines that can be read; none where there is no file."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - FILE_BYTES_MAX))
                data = file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise HistoryUnusable(place=self.place, reason=problem.strerror or str(problem)) from problem
        return records_of(data, now=time.time()).records


@contextmanager
def _locked(number: int) -> Iterator[None]:
    """Hold the file's lock. Where there are no locks, or its holder is stopped, appending is whole lines all the same."""
    until = time.monotonic() + LOCK_S
    held = False
    while not held and time.monotonic() < until:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            time.sleep(LOOK_S)
        except OSError:
            break
    try:
        yield
    finally:
        if held:
            fcntl.flock(number, fcntl.LOCK_UN)


def _write_all(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]


class StoredHistory:
    """Numbered objects by month: ``hosts/2026-11/00000042.json``; ``hosts/2026-10.jsonl`` when a month is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.place = store.url

    def append(self, records: Sequence[Record]) -> None:
        """Each line under the next number that is free."""
        try:
            for record in records:
                self._append(record)
        except StoreError as problem:
            raise HistoryUnusable(place=self.place, reason=str(problem)) from problem

    def _append(self, record: Record) -> None:
        folder = f"hosts/{_month(time.time())}"
        names = [entry.name for entry in self._store.entries(folder)]
        number = max((_number(name) for name in names), default=-1) + 1
        for offset in range(TRIES):
            if self._store.put_if_absent(f"{folder}/{number + offset:08d}.json", line_of(record)):
                return
        raise HistoryUnusable(place=self.place, reason=f"{TRIES} numbers in a row were taken by others")

    def records(self) -> list[Record]:
        """All lines, each once: what was compacted may still be there as objects of its own."""
        try:
            objects = [entry.name for entry in self._store.entries("hosts")]
            whole = {name for name in objects if name.endswith(".jsonl")}
            data = [self._read(name) for name in objects]
            by_digest = {
                record.digest: record for record in records_of(b"\n".join(data), now=time.time()).records
            }
        except StoreError as problem:
            raise HistoryUnusable(place=self.place, reason=str(problem)) from problem
        self._compact(objects, whole)
        return list(by_digest.values())

    def _read(self, name: str) -> bytes:
        try:
            return self._store.get(name)
        except ObjectMissing:
            # Compacted since it was listed; then what it held is in the month's object, which was listed as well or comes next time.
            return b""

    def _compact(self, objects: Sequence[str], whole: set[str]) -> None:
        """Make one object of a month that is over, and remove its parts. Who may only read leaves all as it is."""
        settled = _month(time.time() - SETTLED_DAYS * 86_400)
        parts: dict[str, list[str]] = {}
        for name in objects:
            if name not in whole and (month := name.split("/")[1]) < settled:
                parts.setdefault(month, []).append(name)
        try:
            for month, names in parts.items():
                target = f"hosts/{month}.jsonl"
                if target not in whole:
                    self._store.put_if_absent(target, b"".join(map(self._read, names[:OBJECTS_MAX])))
                kept = {record.digest for record in records_of(self._read(target), now=time.time()).records}
                for name in names:
                    # Only what is read back from the month's object is removed: late lines stay as they are.
                    own = records_of(self._read(name), now=time.time()).records
                    if own and all(record.digest in kept for record in own):
                        self._store.delete(name)
        except StoreError:
            return


def _month(at: float) -> str:
    return time.strftime("%Y-%m", time.gmtime(at))


def _number(name: str) -> int:
    stem = name.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isdecimal() else -1
