"""One thing that a peer writes, what the peer's own reader makes of it, and how our rows may differ from that."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.formats.contract import Policy

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that a peer writes, and how our rows may differ from what the peer reads. Format, peer and content stand in docs/spec/formats/peers.md, word by word."""

    format: str
    peer: str
    content: str
    #: Writes into an empty folder; what to register.
    write: Callable[[Path], Path]
    #: What the peer reads there.
    read: Callable[[Path], Rows]
    #: What differs and why; empty when rows are equal.
    differs: str = ""
    #: From a row of the peer to ours, where they differ.
    ours: Callable[[dict[str, Any]], dict[str, Any]] = dict
    policy: Policy = field(default_factory=Policy)

    @property
    def name(self) -> str:
        """For the names of tests."""
        return f"{self.format}: {self.peer}: {self.content}"

    @property
    def verdict(self) -> str:
        """As the table says it."""
        return self.differs or "equal"
