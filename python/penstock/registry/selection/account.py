"""The account of a registration: how many files were taken, and what was left out and why.

A person names a folder and means the data in it. What else lies there (a README, a link that leads nowhere, an empty part)
is left out, and said, so that nobody finds out months later that a third of the data was behind a link.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    """Something that was found and not taken."""

    #: Below the place that was named.
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Account:
    """How many files a registration took, and what it left out."""

    files: int
    bytes: int
    left_out: tuple[LeftOut, ...] = ()
    #: What else is good to know, such as folders that became columns.
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The account as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The account for people: one line for each reason, with the first few names."""
        return [*self.notes, *(f"left out: {line}" for line in summaries(self.left_out))]


def summaries(left_out: Iterable[LeftOut]) -> list[str]:
    """One line for each reason, in order of the first name."""
    return grouped((omission.name, omission.reason) for omission in left_out)


def grouped(said: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each thing that is said of files, given by name."""
    names: dict[str, list[str]] = {}
    for name, what in sorted(said):
        names.setdefault(what, []).append(name)
    return [f"{_some(some)} ({what})" for what, some in names.items()]


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    if more <= 0:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMES_SHOWN])} and {more:,} more"
