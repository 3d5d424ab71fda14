"""The log of a run: numbered records, each put if absent at the first free number.

Whoever appends has read everything before: it reads up to the first number that is free, decides, and puts its record
there; if somebody was faster, it reads on and decides again. That is the only way anything changes in a place of
checkpoints, and everything else in this room rests on it.

Every record is kept twice (``record_copies``); one that no copy has whole is ``Lost`` and costs itself alone (``history``). Reading is
incremental. Opening a long log would take a round trip per record, so full blocks of records are compacted into *pages*: the
same lines in one object, which are the second copies of these records from then on. A page is checked like the records it repeats, and where
one is missing or damaged the records themselves are read.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import CheckpointDamaged, NumbersContended, ObjectMissing, StoreError
from penstock.events.points import reach
from penstock.state.log import record_copies
from penstock.state.log.history import History, record_name
from penstock.state.log.record_copies import copy_name, page_name, read_copies, read_taken
from penstock.state.log.records import (
    FOLLOWS_ANOTHER,
    LOST,
    REBUILT,
    Lost,
    ReadLine,
    Record,
    encode_line,
    read_line,
)
from penstock.store import Store

#: How often a writer may find its number taken. Each time another one got its record in, so the log as a whole moves on.
ATTEMPTS_MAX = 1000
#: How many new records one reading takes up at most; a writer that knows too few loses its number and reads on.
PROBES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Appended:
    """A record that this process put into the log."""

    number: int
    record: Record
    #: Everything up to and with the record.
    history: History


class Log:
    """Appends records to the log of a place and reads them. Any thread may use it; nothing is contacted before the first reading."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.RLock()
        self._opened = False
        self._forget()

    @property
    def known(self) -> History:
        """What was read so far, without asking the store."""
        return self._history

    def read(self) -> History:
        """Everything that is in the log now."""
        with self._lock:
            try:
                if not self._opened:
                    self._open()
                    self._opened = True
                self._probe()
            except BaseException:
                # What was taken in halfway is read again next time.
                self._forget()
                raise
            return self._history

    def append(self, decide: Callable[[History], Record | None]) -> Appended | None:
        """Put the record that ``decide`` makes of everything known, or nothing if it makes none.

        ``decide`` is called again whenever somebody else was faster, and refuses by raising.
        """
        nonce = uuid.uuid4().hex
        with self._lock:
            for _ in range(ATTEMPTS_MAX):
                history = self.read()
                record = decide(history)
                if record is None:
                    return None
                self._tend()
                number = history.length
                line = encode_line(number, self._check, nonce, record)
                # The answer to a put that was made can be lost and the put repeated, which then finds its own record.
                if not self.store.put_if_absent(record_name(number), line) and not self._stands(number, line):
                    continue
                reach("state.appended")
                earlier = record_copies.earlier_line(self.store, number, line)
                if earlier is None:
                    self._take([line])
                    self._put_pages({(size, self._history.length // size - 1) for size in _sizes()})
                    self._compact()
                    return Appended(number, record, self._history)
                # The number was taken; its first copy had been lost. Nobody was told of ours.
                self.store.replace(record_name(number), earlier)
                self._forget()
        raise NumbersContended(name=f"{self.store.url}/log", attempts=ATTEMPTS_MAX)

    def read_anew(self) -> History:
        """Everything that is in the log now, without trusting what was read before."""
        with self._lock:
            self._forget()
            return self.read()

    def _forget(self) -> None:
        self._history = History()
        self._opened = self._tended = False
        #: Check of the last line that was taken in, and whether the next one may follow another.
        self._check, self._loose = "", False
        #: Lines since the last full page of the largest size; None where a record is lost.
        self._lines: list[bytes | None] = []
        #: Pages that are known to be whole, by size and number.
        self._pages: set[tuple[int, int]] = set()
        #: What should stand on pages that are damaged.
        self._broken_pages: dict[tuple[int, int], bytes] = {}
        #: Numbers whose first copy a listing did not show.
        self._unlisted: set[int] = set()
        #: Numbers of others' records since opening: their writer may have died before it put the second copy.
        self._fresh: set[int] = set()

    def _open(self) -> None:
        listed = record_copies.first_numbers(self.store)
        paged = record_copies.pages(self.store)
        taken = [*listed, *record_copies.second_numbers(self.store)]
        taken += [(page + 1) * size - 1 for size, page in paged if size in _sizes()]
        count = max(taken, default=-1) + 1
        self._unlisted = set(range(count)) - listed
        missing: set[tuple[int, int]] = set()
        while (number := self._history.length) < count:
            for size in _sizes():
                if number % size == 0 and number + size <= count:
                    page = (size, number // size)
                    if page in paged and self._take_page(*page):
                        break
                    missing.add(page)
            else:
                self._take([read_taken(self.store, number)])
            self._put_pages(missing)

    def _probe(self) -> None:
        for _ in range(PROBES_MAX):
            line = read_copies(self.store, self._history.length)
            if line is None:
                return
            self._take([line])
            self._fresh.add(self._history.length - 1)

    def _stands(self, number: int, line: bytes) -> bool:
        try:
            return self.store.get(record_name(number)) == line
        except ObjectMissing:
            # Nobody removes records; a put that failed for another reason is tried again.
            return False

    def _take(self, lines: Sequence[bytes | Lost]) -> None:
        history, check, loose = self._history, self._check, self._loose
        records: list[Record | Lost] = []
        for number, raw in enumerate(lines, start=history.length):
            if isinstance(raw, Lost):
                records.append(raw)
                check, loose = LOST, True
                continue
            line = read_line(record_name(number), raw, number)
            rebuilt = line.nonce == REBUILT
            if not rebuilt and not loose and line.after != check:
                _check_lost(line, number)
                reason = "the record after it was written by somebody who could not read it"
                if records:
                    records[-1] = Lost(reason)
                else:
                    history = history.losing(number - 1, reason)
            records.append(Lost("it was rebuilt", line.record) if rebuilt else line.record)
            check, loose = line.check, rebuilt
        first = history.length
        self._history = history.after(records)
        self._check, self._loose = check, loose
        if first % _sizes()[0] == 0:
            self._lines = []
        self._lines += [None if isinstance(entry, Lost) else entry for entry in lines]

    def _take_page(self, size: int, page: int) -> bool:
        try:
            lines = self.store.get(page_name(size, page)).split(b"\n")
            if len(lines) != size:
                return False
            self._take(lines)
        except (ObjectMissing, CheckpointDamaged):
            return False
        self._pages.add((size, page))
        return True

    def _put_pages(self, wanted: set[tuple[int, int]]) -> None:
        """Put those of the wanted pages whose last record was taken in just now."""
        length = self._history.length
        for size in _sizes():
            page = (size, length // size - 1)
            lines = [line for line in self._lines[-size:] if line is not None]
            if length % size == 0 and page in wanted and len(lines) == size:
                data = b"\n".join(lines)
                try:
                    if self.store.put_if_absent(page_name(*page), data) or self._stands_page(page, data):
                        self._pages.add(page)
                    else:
                        self._broken_pages[page] = data
                except StoreError:
                    # A log without this page is read more slowly and no differently; who only reads may not write.
                    continue

    def _stands_page(self, page: tuple[int, int], data: bytes) -> bool:
        with suppress(ObjectMissing):
            return self.store.get(page_name(*page)) == data
        return False

    def _tend(self) -> None:
        """Before a record is put: every one before it has two copies, even if its writer died, or was an earlier release."""
        first = self._history.length - len(self._lines)
        second = set() if self._tended else record_copies.second_numbers(self.store)
        wanted = self._fresh if self._tended else set(range(first, self._history.length)) - second
        for number in sorted(wanted | self._unlisted):
            line = self._lines[number - first] if number >= first else None
            if line is not None and number in self._unlisted:
                self.store.put_if_absent(record_name(number), line)
            if line is not None and not self._is_paged(number):
                self.store.put_if_absent(copy_name(number), line)
        for page, data in self._broken_pages.items():
            # Pages decide nothing either.
            self.store.replace(page_name(*page), data)
        self._pages |= self._broken_pages.keys()
        self._broken_pages = {}
        if not self._tended:
            self._compact(second)
        self._fresh, self._unlisted, self._tended = set(), set(), True

    def _is_paged(self, number: int) -> bool:
        return any((size, number // size) in self._pages for size in _sizes())

    def _compact(self, second: "set[int] | None" = None) -> None:
        """Delete second copies, and small pages, that a whole page repeats. First copies stay: they are what takes their numbers."""
        length = self._history.length
        largest, smallest = _sizes()[0], _sizes()[-1]
        if second is None:
            second = set(range(length - smallest, length)) if length % smallest == 0 else set()
        try:
            for number in sorted(second):
                if self._is_paged(number):
                    self.store.delete(copy_name(number))
            if length and length % largest == 0 and (largest, length // largest - 1) in self._pages:
                for size in _sizes()[1:]:
                    for page in range((length - largest) // size, length // size):
                        self.store.delete(page_name(size, page))
        except StoreError:
            # They are there once more than they need to be, until somebody else may delete them.
            return


def _check_lost(line: ReadLine, number: int) -> None:
    """Refuse a line that follows another one, unless its writer says that it could not read the one before."""
    if line.after != LOST:
        raise CheckpointDamaged(file=record_name(number), reason=FOLLOWS_ANOTHER)


def _sizes() -> tuple[int, ...]:
    return record_copies.PAGE_SIZES
