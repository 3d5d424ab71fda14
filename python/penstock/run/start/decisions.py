"""Decisions in force: what the journal of earlier lives binds this one to. Pure: from entries to what follows from them."""

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.run.journal.journal import Entry


class Decisions(msgspec.Struct, frozen=True):
    """What the journal of earlier lives binds this life to. Rank 0 reads it, and shares it with the others."""

    #: Steps that are executed without changing the model, and why they are.
    forced: dict[int, str] = {}
    #: Steps that were executed again and gave the same bits.
    replayed: tuple[int, ...] = ()
    #: A step that is to be executed again, and the bits of its loss the first time.
    replay: tuple[int, str] | None = None
    #: A stop that stands, with what it depends on: rules and skips.
    stop: dict[str, Any] | None = None
    interventions: int = 0
    #: Facts of the newest start; and the threads of each number of ranks, by framework.
    start: dict[str, Any] = {}
    threads: dict[str, dict[str, int]] = {}
    #: The newest life so far, and how it ended; nothing if it did not say.
    incarnation: int = -1
    ended: str = ""


def decisions_of(entries: Iterable[Entry]) -> Decisions:
    """What follows from the story so far."""
    forced: dict[int, str] = {}
    replayed: set[int] = set()
    replay: tuple[int, str] | None = None
    stop: dict[str, Any] | None = None
    start: dict[str, Any] = {}
    threads: dict[str, dict[str, int]] = {}
    interventions, incarnation, ended = 0, -1, ""
    for entry in entries:
        if entry.incarnation > incarnation:
            incarnation, ended = entry.incarnation, ""
        if entry.kind == "end":
            ended = entry.facts["how"]
        if entry.kind == "start":
            start = entry.facts
            threads.setdefault(str(start.get("ranks")), start.get("threads", {}))
        elif entry.kind == "verdict" and entry.step is not None:
            action = entry.facts["action"]
            stop = {"step": entry.step, **entry.facts} if action == "stop" else None
            interventions += action != "stop"
            if action == "skip":
                forced[entry.step] = "skip"
            elif action == "replay":
                replay = (entry.step, entry.facts.get("loss_bits", ""))
        elif entry.kind == "replayed" and entry.step is not None:
            replay = None
            if entry.facts.get("equal"):
                replayed.add(entry.step)
    return Decisions(
        forced, tuple(sorted(replayed)), replay, stop, interventions, start, threads, incarnation, ended
    )
