"""The log of a run: numbered records, each put if absent at the first free number.

Whoever appends has read everything before: it reads up to the first number that is free, decides, and puts its record
there; if somebody was faster, it reads on and decides again. That is the only way anything changes in a place of
checkpoints, and everything else in this room rests on it.

Reading is incremental. Opening a long log would take a round trip per record, so full blocks of records are also kept as
*pages*: copies of the same lines in one object. A page is a shortcut and nothing more: it is checked like the records
it repeats, and where one is missing or damaged the records themselves are read.
"""

import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import CheckpointDamaged, NumbersContended, ObjectMissing, StoreError
from penstock.state.history import History, record_name
from penstock.state.records import Record, decode_line, encode_line
from penstock.store import Store

#: Records on a page; a page of a larger size begins where a page of each smaller one does.
PAGE_SIZES = (4096, 64)
#: How often a writer may find its number taken. Each time another one got its record in, so the log as a whole moves on.
ATTEMPTS_MAX = 1000
#: How many new records one reading takes up at most; a writer that knows too few loses its number and reads on.
PROBES_MAX = 100_000

_NAME = re.compile(r"log/(\d{8,})\.json")


@dataclass(frozen=True, slots=True)
class Appended:
    """A record that this process put into the log."""

    number: int
    record: Record
    #: Everything up to and with the record.
    history: History


class Log:
    """See the module's description. Any thread may use it; nothing is contacted before the first reading."""

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
                number = history.length
                line = encode_line(number, self._check, nonce, record)
                # The answer to a put that was made can be lost and the put repeated, which then finds its own record.
                if self.store.put_if_absent(record_name(number), line) or self._stands(number, line):
                    self._take([line])
                    self._put_pages({(size, self._history.length // size - 1) for size in PAGE_SIZES})
                    return Appended(number, record, self._history)
        raise NumbersContended(name=f"{self.store.url}/log", attempts=ATTEMPTS_MAX)

    def _forget(self) -> None:
        self._history = History()
        self._opened = False
        #: Check of the last line that was taken in.
        self._check = ""
        #: Lines since the last full page of the largest size.
        self._lines: list[bytes] = []

    def _open(self) -> None:
        count = self._listed()
        missing: set[tuple[int, int]] = set()
        while (number := self._history.length) < count:
            pages = [
                (size, number // size) for size in PAGE_SIZES if number % size == 0 and number + size <= count
            ]
            for size, page in pages:
                if self._take_page(size, page):
                    break
                missing.add((size, page))
            else:
                self._take([self._get(number)])
            self._put_pages(missing)

    def _listed(self) -> int:
        """How many records there are at least. A number that is not there below one that is, is an error."""
        names = (_NAME.fullmatch(entry.name) for entry in self.store.entries("log"))
        numbers = {int(name[1]) for name in names if name}
        count = max(numbers, default=-1) + 1
        for number in range(count):
            # A listing that runs while records are made may have passed a place before its record was there.
            if number not in numbers:
                self._get(number)
        return count

    def _get(self, number: int) -> bytes:
        """A record that must be there."""
        try:
            return self.store.get(record_name(number))
        except ObjectMissing as reason:
            raise CheckpointDamaged(
                file=record_name(number), reason="it is missing, but later records are there"
            ) from reason

    def _probe(self) -> None:
        for _ in range(PROBES_MAX):
            try:
                line = self.store.get(record_name(self._history.length))
            except ObjectMissing:
                return
            self._take([line])

    def _stands(self, number: int, line: bytes) -> bool:
        try:
            return self.store.get(record_name(number)) == line
        except ObjectMissing:
            # Nobody removes records; a put that failed for another reason is tried again.
            return False

    def _take(self, lines: list[bytes]) -> None:
        records = []
        first, check = self._history.length, self._check
        for number, line in enumerate(lines, start=first):
            record, check = decode_line(record_name(number), line, number, check)
            records.append(record)
        self._history = self._history.after(records)
        self._check = check
        if first % PAGE_SIZES[0] == 0:
            self._lines = []
        self._lines += lines

    def _take_page(self, size: int, page: int) -> bool:
        try:
            lines = self.store.get(page_name(size, page)).split(b"\n")
            if len(lines) != size:
                return False
            self._take(lines)
        except (ObjectMissing, CheckpointDamaged):
            return False
        return True

    def _put_pages(self, wanted: set[tuple[int, int]]) -> None:
        """Put those of the wanted pages whose last record was taken in just now."""
        length = self._history.length
        for size in PAGE_SIZES:
            if length % size == 0 and (size, length // size - 1) in wanted:
                try:
                    self.store.put_if_absent(
                        page_name(size, length // size - 1), b"\n".join(self._lines[-size:])
                    )
                except StoreError:
                    # A log without this page is read more slowly and no differently; who only reads may not write.
                    continue


def page_name(size: int, page: int) -> str:
    """Where the copies of a block of records are kept."""
    return f"pages/{size}/{page:08d}.jsonl"
