"""What happened to a run, as marks with a time, a step and a sentence: lives, deaths, returns, checkpoints, decisions."""

from dataclasses import dataclass, field
from typing import Any

from penstock.observe.steps import read_steps
from penstock.report.exports.export_bookmark import key_of
from penstock.report.exports.run_look import RunLook
from penstock.report.run_story import sentence
from penstock.run.journal.journal import Entry

#: What entries of the journal are called; a death stands where it was, and not where the next life told of it.
_KINDS = {"start": "life", "commit": "checkpoint"}
_LEFT_OUT = frozenset({"incident"})
#: Nanoseconds that 64 bits hold; a clock may say anything.
_AT_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened."""

    kind: str
    life: int
    rank: int
    step: int | None
    #: Nanoseconds since 1970.
    at: int
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewMoments:
    """Those that a target has not, in order of time, and what its bookmark says when it has."""

    moments: list[Moment]
    entries: dict[str, int]
    deaths: list[str]


def new_moments(look: RunLook) -> NewMoments:
    """What has happened since the last look."""
    bookmark = look.bookmark
    counts: dict[str, int] = {}
    moments: list[Moment] = []
    for entry in look.entries:
        key = key_of(entry.incarnation, entry.rank)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= bookmark.entries.get(key, 0) or entry.kind in _LEFT_OUT:
            continue
        kind = _KINDS.get(entry.kind, entry.kind)
        at = min(round(min(max(entry.at, 0.0), _AT_MAX / 1e9) * 1e9), _AT_MAX)
        moments.append(
            Moment(kind, entry.incarnation, entry.rank, entry.step, at, _words(entry), entry.facts)
        )
    known = [*bookmark.deaths]
    for moment in [*_deaths(look), *_births(look)]:
        key = f"{moment.kind}-{key_of(moment.life, moment.rank)}"
        if key not in known:
            known.append(key)
            moments.append(moment)
    return NewMoments(sorted(moments, key=lambda one: one.at), counts, known)


def _words(entry: Entry) -> str:
    """The sentence of an entry, in characters that every form can hold."""
    return sentence(entry).encode("utf-8", "backslashreplace").decode("utf-8")


def _deaths(look: RunLook) -> list[Moment]:
    """Lives that did not end in order, each of a rank where its own time is known."""
    deaths = []
    for rank in look.timeline.ranks:
        for life in rank.lives:
            if life.ended is not None or not look.is_table_over(life.number, rank.rank):
                continue
            if life.died is None and (
                life.number == look.newest_life or _is_closed(look, life.number, rank.rank)
            ):
                continue
            at = (life.last if life.died is None else life.died) + look.clock_ns(life.number, rank.rank)
            step = int(life.steps.numbers[-1]) if len(life.steps.numbers) else None
            text = f"life {life.number} of rank {rank.rank} died" + (f": {life.cause}" if life.cause else "")
            deaths.append(Moment("death", life.number, rank.rank, step, at, text))
    return deaths


def _births(look: RunLook) -> list[Moment]:
    """Lives of a loop without a journal begin with their first row."""
    births = []
    if not look.entries:
        for rank in look.timeline.ranks[:1]:
            for life in rank.lives:
                at = life.first + look.clock_ns(life.number, rank.rank)
                step = int(life.steps.numbers[0]) if len(life.steps.numbers) else None
                births.append(Moment("life", life.number, rank.rank, step, at, f"life {life.number} begins"))
    return births


def _is_closed(look: RunLook, life: int, rank: int) -> bool:
    tables = read_steps(look.run, columns=["step"], tables=[(life, rank)]) if look.tables else []
    return any(table.is_closed for table in tables)
