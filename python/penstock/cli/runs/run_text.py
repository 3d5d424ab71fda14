"""Runs as commands show them."""

from datetime import datetime
from typing import Any

from penstock.run.journal.journal import Entry
from penstock.run.proof.proof import Proof
from penstock.run.proof.replay import Replay

_DIFFERENCES_SHOWN = 20


def newest_start(entries: list[Entry]) -> dict[str, Any]:
    """What the journal says of the newest life's beginning."""
    return next((entry.facts for entry in reversed(entries) if entry.kind == "start"), {})


def clock(at: float) -> str:
    """A moment, as people of this place write it; one that no calendar has is said to be unknown."""
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "unknown"


def print_differences(result: Proof | Replay) -> None:
    """The cause before its effects, and how many there are."""
    for number, difference in enumerate(result.differences[:_DIFFERENCES_SHOWN]):
        print(f"{'first: ' if number == 0 else '  then: '}{difference.sentence}")
    if result.differences[_DIFFERENCES_SHOWN:]:
        print(f"  and {len(result.differences) - _DIFFERENCES_SHOWN} more")
