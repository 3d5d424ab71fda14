"""Numbers as people and hosts write them: ``0-3,8``. Pure."""

from collections.abc import Iterable, Iterator

#: More than any job has; a larger range is a slip.
NUMBERS_MAX = 1_000_000


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: ``0-6,8``."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs(numbers))


def runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and last number of each range, in order."""
    first = last = None
    for number in sorted(set(numbers)):
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def numbers_in(text: str) -> list[int]:
    """The other way, in order; nothing for an empty text, and an error of value for anything that ``ranges`` would not write."""
    numbers: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(text)
        low, high = int(first), int(last) if dash else int(first)
        if high < low or high - low > NUMBERS_MAX:
            raise ValueError(text)
        numbers.update(range(low, high + 1))
    return sorted(numbers)
