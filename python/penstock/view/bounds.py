"""Ranges of rows and steps as people write them: one vocabulary for every command.

``A:B`` is from A up to B, without B. ``A:`` goes to the end, ``:B`` begins at 0, ``7`` is the seventh alone. Negative numbers
count from the end, where there is one. A range that reaches over the end is cut there, as everywhere in Python; a range
that holds nothing is an error, because whoever asks for it is mistaken about what there is.
"""

import re
from dataclasses import dataclass

from penstock.errors import AddressInvalid, RowOutOfRange, TokenOutOfRange, UsageError

_NUMBER = r"-?[0-9]{1,18}"
_RANGE = re.compile(rf"({_NUMBER})?(?:(:)({_NUMBER})?)?")
_HINT = "a range looks like 0:64, 100: or 7"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range that was asked for; an end that is None is open."""

    first: int | None
    stop: int | None
    #: What is counted: ``rows``, ``tokens`` or ``steps``.
    of: str = "rows"

    def within(self, count: int) -> tuple[int, int]:
        """First and end among ``count`` things; an error where none of them is in the range."""
        first, stop, _ = slice(self.first, self.stop).indices(count)
        if first < stop:
            return first, stop
        asked = self.first or 0
        if -count <= asked < count:
            raise UsageError(f"{self} is an empty range of {self.of}", hint=_HINT)
        if self.of == "tokens":
            raise TokenOutOfRange(token=asked, tokens=count)
        raise RowOutOfRange(row=asked, rows=count)

    def endless(self) -> range:
        """The range where nobody knows how many there are: it needs an end, and nothing can count from there."""
        first, stop = self.first or 0, self.stop
        if stop is None or first < 0 or stop < 0:
            hint = f"say where it ends, as in {max(0, first)}:{max(0, first) + 10}"
            raise UsageError(f"{self} has no end among the {self.of} of a stream", hint=hint)
        if first >= stop:
            raise UsageError(f"{self} is an empty range of {self.of}", hint=_HINT)
        return range(first, stop)

    def __str__(self) -> str:
        return ":".join("" if bound is None else str(bound) for bound in (self.first, self.stop))


def parse_bounds(text: str, *, of: str = "rows") -> Bounds:
    """The range that a text is."""
    match = _RANGE.fullmatch(text.strip())
    if match is None or not text.strip():
        raise AddressInvalid(address=text[:200], reason=f"it is not a range of {of}", hint=_HINT)
    first, colon, stop = match.groups()
    if colon:
        return Bounds(None if first is None else int(first), None if stop is None else int(stop), of)
    number = int(first)
    # The last one alone has no number after it.
    return Bounds(number, None if number == -1 else number + 1, of)
