"""Patterns, with exactly the meaning of Python's ``glob.glob(pattern, recursive=True)``, for names of any store.

A pattern is a row of parts. Reading a name part by part, a set of positions says how far the pattern may have come: ``**``
stays where it is, anything else steps on. The same few lines therefore match whole keys of an object store, and tell a
walk through a directory which folders are worth entering.
"""

import fnmatch
import re
from collections.abc import Callable

_MAGIC = re.compile(r"[*?[]")

States = frozenset[int]


def is_pattern(text: str) -> bool:
    """Whether a text has any of the characters that make a pattern."""
    return _MAGIC.search(text) is not None


class GlobPattern:
    """A pattern below some root; names are given as parts below the same root."""

    def __init__(self, parts: list[str]) -> None:
        #: ``**`` in a row is one, and a last one stands for everything below.
        self.parts: list[str] = []
        for part in parts:
            if part != "**" or self.parts[-1:] != ["**"]:
                self.parts.append(part)
        if self.parts[-1:] == ["**"]:
            self.parts.append("*")
        self._tests = [_test(part) for part in self.parts]

    @property
    def start(self) -> States:
        """Where the pattern stands before the first part of a name."""
        return self._closed({0})

    def step(self, states: States, part: str) -> States:
        """Where it may stand after one part more; nowhere, if the name cannot match."""
        after = set()
        for at in states:
            if at < len(self.parts) and self._tests[at](part):
                after.add(at if self.parts[at] == "**" else at + 1)
        return self._closed(after)

    def is_end(self, states: States) -> bool:
        """Whether a name that ends here matches."""
        return len(self.parts) in states

    def goes_on(self, states: States) -> bool:
        """Whether a longer name may match."""
        return any(at < len(self.parts) for at in states)

    def literal(self, states: States) -> str | None:
        """The only part that can come next, where there is only one."""
        if len(states) != 1:
            return None
        (at,) = states
        return self.parts[at] if at < len(self.parts) and not is_pattern(self.parts[at]) else None

    def matches(self, name: str) -> bool:
        """Whether a whole name matches."""
        states = self.start
        for part in name.split("/"):
            states = self.step(states, part)
            if not states:
                return False
        return self.is_end(states)

    def _closed(self, states: set[int]) -> States:
        """``**`` may also stand for nothing."""
        more = {at + 1 for at in states if at < len(self.parts) and self.parts[at] == "**"}
        return frozenset(states | more)


def _test(part: str) -> Callable[[str], bool]:
    if not is_pattern(part):
        return part.__eq__
    if part == "**":
        return _is_visible
    matches = re.compile(fnmatch.translate(part)).match
    if part.startswith("."):
        return lambda name: matches(name) is not None
    return lambda name: _is_visible(name) and matches(name) is not None


def _is_visible(name: str) -> bool:
    return not name.startswith(".")
