"""What the registry's store is called where: the layout of ``datasets/`` and ``tags/``, and sequences in it.

A sequence is a folder of numbered documents, each written put-if-absent. The next document gets the next number; of
writers who want the same number one wins and the others go on to the next. That is all the coordination there is.
"""

import re
from collections.abc import Callable

from penstock.errors import NumbersContended, ObjectMissing
from penstock.store import Store
from penstock.store.location import is_web

_NUMBERED = re.compile(r"(\d+)\.json")
_ATTEMPTS_MAX = 1000


def versions_of(name: str) -> str:
    """The sequence of a dataset's versions."""
    return f"datasets/{name}"


def roots_of(name: str, number: int | str) -> str:
    """The sequence of places where a version's shards are."""
    return f"roots/{name}/{number}"


def tags_of(name: str, tag: str = "") -> str:
    """The sequence of a tag's settings; without a tag, all of a dataset's."""
    return f"tags/{name}/{tag}" if tag else f"tags/{name}"


def document(sequence: str, number: int) -> str:
    """The name of one document of a sequence."""
    return f"{sequence}/{number}.json"


def numbers(store: Store, sequence: str) -> list[int]:
    """The numbers that a sequence has, ascending."""
    if is_web(store.url):
        return list(range(1, _count(store, sequence) + 1))
    prefix = f"{sequence}/"
    existing = []
    for entry in store.entries(sequence):
        rest = entry.name.removeprefix(prefix)
        if (match := _NUMBERED.fullmatch(rest)) is not None:
            existing.append(int(match[1]))
    return sorted(existing)


def _count(store: Store, sequence: str) -> int:
    """How many documents a sequence has, by asking for some of them: numbers begin at 1 and none is left out."""

    def has(number: int) -> bool:
        try:
            store.describe(document(sequence, number))
        except ObjectMissing:
            return False
        return True

    low, high = 0, 1
    while has(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if has(middle) else (low, middle)
    return low


def append(
    store: Store,
    sequence: str,
    make: Callable[[int], bytes],
    lost: Callable[[bytes], bool],
    *,
    after: int | None = None,
) -> tuple[int, bytes]:
    """Write the next document of a sequence and return its number and bytes.

    ``make`` gives the bytes for a number. When another writer has it, ``lost`` looks at what stands there and may say
    that it will do instead (the same version, or our own write whose answer got lost); then that one is returned.
    ``after`` is the newest number that the caller has seen: what others wrote since is looked at as well.
    """
    number = (max(numbers(store, sequence), default=0) if after is None else after) + 1
    for _ in range(_ATTEMPTS_MAX):
        data = make(number)
        name = document(sequence, number)
        if store.put_if_absent(name, data):
            return number, data
        standing = store.get(name)
        if standing == data or lost(standing):
            return number, standing
        number += 1
    raise NumbersContended(name=sequence, attempts=_ATTEMPTS_MAX)
