"""The copies of one record: where they are, and which of them is whole.

The first copy, ``log/<number>.json``, decides: it is put if absent, never deleted, and so no number ever becomes free again. The second
one, ``copies/log/<number>.json``, is put right after it; whoever dies between the two leaves one that the next writer adds.
Full blocks of records are compacted into *pages*, and the second copies that a page repeats are deleted.
"""

import re
import time

from penstock.errors import CheckpointDamaged, ObjectMissing, StoreFailed
from penstock.state.log.history import record_name
from penstock.state.log.records import Lost, read_line
from penstock.store import Store

#: Records on a page; a page of a larger size begins where a page of each smaller one does.
PAGE_SIZES = (4096, 64)
#: Before a record counts as lost it is read once more: shared file systems may show a file late.
_AGAIN_S = 0.05

_FIRST = re.compile(r"log/(\d{8,})\.json")
_SECOND = re.compile(r"copies/log/(\d{8,})\.json")
_PAGE = re.compile(r"pages/(\d+)/(\d+)\.jsonl")


def copy_name(number: int) -> str:
    """Where the second copy of a record is kept."""
    return f"copies/{record_name(number)}"


def page_name(size: int, page: int) -> str:
    """Where the copies of a block of records are kept."""
    return f"pages/{size}/{page:08d}.jsonl"


def first_numbers(store: Store) -> set[int]:
    """Numbers that have a first copy, as far as a listing shows."""
    return _numbers(store, "log", _FIRST)


def second_numbers(store: Store) -> set[int]:
    """Numbers that have a second copy of their own."""
    return _numbers(store, "copies/log", _SECOND)


def pages(store: Store) -> set[tuple[int, int]]:
    """Size and number of every page that is there."""
    names = (_PAGE.fullmatch(entry.name) for entry in store.entries("pages"))
    return {(int(name[1]), int(name[2])) for name in names if name}


def read_copies(store: Store, number: int) -> bytes | Lost | None:
    """The line of a number from the first copy that is whole; None when there is no copy at all, so that it is free."""
    line = _read_copies(store, number, paged=False)
    if isinstance(line, Lost):
        time.sleep(_AGAIN_S)
        line = _read_copies(store, number, paged=True)
    return line


def read_taken(store: Store, number: int) -> bytes | Lost:
    """The line of a number that is known to be taken."""
    line = read_copies(store, number)
    if line is None:
        time.sleep(_AGAIN_S)
        line = _read_copies(store, number, paged=True)
    return Lost("it is missing, but later records are there") if line is None else line


def earlier_line(store: Store, number: int, line: bytes) -> bytes | None:
    """Put the second copy of a line whose first copy was put just now. The line that had this number before, if its first copy was
    lost and the number only seemed to be free.
    """
    if not store.put_if_absent(copy_name(number), line):
        other = _whole(store, copy_name(number), number)
        if other is not None and other != line:
            return other
        if other is None:
            # A second copy decides nothing, so one that is damaged is simply replaced.
            store.replace(copy_name(number), line)
    paged = _on_page(store, number)
    # Others may have gone on and filled the page with ours on it.
    return None if paged == line else paged


def _numbers(store: Store, top: str, pattern: re.Pattern[str]) -> set[int]:
    names = (pattern.fullmatch(entry.name) for entry in store.entries(top))
    return {int(name[1]) for name in names if name}


def _read_copies(store: Store, number: int, *, paged: bool) -> bytes | Lost | None:
    reasons: list[str] = []
    trouble: StoreFailed | None = None
    for name in (record_name(number), copy_name(number)):
        try:
            line = store.get(name)
            read_line(name, line, number)
        except ObjectMissing:
            continue
        except CheckpointDamaged as problem:
            if type(problem) is not CheckpointDamaged:
                raise
            reasons.append(problem.reason)
        except StoreFailed as problem:
            trouble = problem
        else:
            return line
    if paged and (line_of_page := _on_page(store, number)) is not None:
        return line_of_page
    if trouble is not None:
        # That a store does not answer is no damage.
        raise trouble
    return Lost(reasons[0]) if reasons else None


def _whole(store: Store, name: str, number: int) -> bytes | None:
    try:
        line = store.get(name)
        read_line(name, line, number)
    except (ObjectMissing, CheckpointDamaged):
        return None
    return line


def _on_page(store: Store, number: int) -> bytes | None:
    """The line as the smallest page has it that is there."""
    for size in reversed(PAGE_SIZES):
        name = page_name(size, number // size)
        try:
            lines = store.get(name).split(b"\n")
            if len(lines) == size:
                read_line(name, lines[number % size], number)
                return lines[number % size]
        except (ObjectMissing, CheckpointDamaged):
            continue
    return None
