"""The form in which anybody can hand over a timeline: JSON, whole nanoseconds, every field checked before anything is computed.

::

    {"form": 1, "rank": 0, "origin": "2026-11-16T09:00:00Z", "lives": [
      {"requested": 0, "born": 2000, "joined": 5000, "resumed": [[9000, 0]],
       "steps": [[0, 9000, 12000], [1, 12000, null]], "phases": [["data", 9000, 9500]], "ended": null, "died": 13000}]}

What is absent or null is unknown. Lives and phases may stand in any order, steps stand in the order of time. A file may hold a list of
such objects, one for each rank.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import TimelineInvalid
from penstock.report.accounts.account_names import SPAN_ACCOUNTS, SPAN_PARTS
from penstock.report.accounts.nested_spans import SpansCross, pieces_of
from penstock.report.accounts.timeline import (
    UNMEASURED,
    LifeTimeline,
    Marks,
    RankTimeline,
    Spans,
    StepColumns,
    Times,
)

FORM = 1
#: Numbers are below this, so that every program that reads JSON reads the same ones.
NUMBER_MAX = 1 << 53
BYTES_MAX = 1 << 30
RANKS_MAX = 1 << 20
LIVES_MAX = 1 << 20
_RANK_KEYS = {"form", "rank", "origin", "lives"}
_LIFE_KEYS = {"requested", "born", "joined", "resumed", "steps", "phases", "ended", "died"}
_MOMENTS = ("requested", "born", "joined", "ended", "died")
_SPAN_NAMES = frozenset({*SPAN_ACCOUNTS, *SPAN_PARTS})


def read_timeline(path: Path) -> Any:
    """The document in a file, unchecked."""
    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        if len(text) > BYTES_MAX:
            raise TimelineInvalid(field=str(path), reason=f"it has more than {BYTES_MAX} bytes")
        return json.loads(text, parse_constant=_refuse_constant)
    except OSError as reason:
        raise TimelineInvalid(
            field=str(path), reason=f"it cannot be read: {reason.strerror or reason}"
        ) from reason
    except (ValueError, RecursionError) as reason:
        raise TimelineInvalid(field=str(path), reason=f"it is not JSON: {reason}") from reason


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def timelines_of(document: Any) -> list[RankTimeline]:
    """Check a document; one object, or a list of them."""
    objects = document if isinstance(document, list) else [document]
    if not 0 < len(objects) <= RANKS_MAX:
        raise TimelineInvalid(
            field="timeline", reason=f"expected one object for each rank, got {len(objects)}"
        )
    ranks: dict[int, RankTimeline] = {}
    for place, one in enumerate(objects):
        where = f"[{place}]" if isinstance(document, list) else ""
        timeline = _rank(one, where)
        if timeline.rank in ranks:
            raise TimelineInvalid(field=f"{where}.rank", reason=f"rank {timeline.rank} stands here twice")
        ranks[timeline.rank] = timeline
    return [ranks[rank] for rank in sorted(ranks)]


def _rank(document: Any, where: str) -> RankTimeline:
    _object(document, where or "timeline", _RANK_KEYS)
    if not _is_number(document.get("form")) or document["form"] != FORM:
        raise TimelineInvalid(
            field=f"{where}.form", reason=f"expected {FORM}, got {_short(document.get('form'))}"
        )
    rank = _number(document.get("rank", 0), f"{where}.rank")
    if not isinstance(document.get("origin", ""), str):
        raise TimelineInvalid(
            field=f"{where}.origin", reason=f"expected a string, got {_short(document['origin'])}"
        )
    lives = document.get("lives")
    if not isinstance(lives, list) or not 0 < len(lives) <= LIVES_MAX:
        raise TimelineInvalid(
            field=f"{where}.lives", reason=f"expected a list of at least one life, got {_short(lives)}"
        )
    checked = [_life(life, f"{where}.lives[{place}]") for place, life in enumerate(lives)]
    order = sorted(range(len(checked)), key=lambda place: (checked[place].first, checked[place].last))
    for earlier, later in pairwise(order):
        if checked[later].first < checked[earlier].last:
            reason = f"it begins at {checked[later].first}, before life {earlier} is over at {checked[earlier].last}"
            raise TimelineInvalid(field=f"{where}.lives[{later}]", reason=reason)
    return RankTimeline(
        rank, tuple(replace(checked[place], number=number) for number, place in enumerate(order))
    )


def _life(document: Any, where: str) -> LifeTimeline:
    _object(document, where, _LIFE_KEYS)
    moments = {
        name: None if document.get(name) is None else _number(document[name], f"{where}.{name}")
        for name in _MOMENTS
    }
    marks = _columns(document.get("resumed"), f"{where}.resumed", ("at", "step"))
    steps = _columns(document.get("steps"), f"{where}.steps", ("step", "began", "ended"), open_end=True)
    life = LifeTimeline(
        requested=moments["requested"],
        born=moments["born"],
        joined=moments["joined"],
        ended=moments["ended"],
        died=moments["died"],
        resumed=Marks(marks[0], marks[1]),
        steps=StepColumns(steps[0], steps[1], steps[2]),
        spans=_spans(document.get("phases"), f"{where}.phases"),
    )
    if not any(moment is not None for moment in moments.values()) and not (
        len(marks[0]) or len(steps[0]) or life.spans.names
    ):
        raise TimelineInvalid(field=where, reason="no moment, step or phase of it is known")
    check_order(life, where)
    return life


def check_order(life: LifeTimeline, where: str) -> None:
    """Refuse what cannot have happened: moments that go back, steps over each other, spans that cross."""
    names = [name for name in _MOMENTS[:3] if getattr(life, name) is not None]
    for earlier, later in pairwise(names):
        if getattr(life, later) < getattr(life, earlier):
            reason = f"expected at least {earlier} ({getattr(life, earlier)}), got {getattr(life, later)}"
            raise TimelineInvalid(field=f"{where}.{later}", reason=reason)
    _check_steps(life, where)
    signs = [("its last step or mark", at) for at in _training_ends(life)]
    signs += [
        (name, getattr(life, name)) for name in (*names[-1:], "ended") if getattr(life, name) is not None
    ]
    for name in ("ended", "died"):
        moment = getattr(life, name)
        for earlier, at in signs:
            if moment is not None and earlier != name and moment < at:
                raise TimelineInvalid(
                    field=f"{where}.{name}", reason=f"expected at least {earlier} ({at}), got {moment}"
                )
    try:
        pieces_of(life.spans)
    except SpansCross as crossing:
        first, second = crossing.first, crossing.second
        reason = f"{_span(life.spans, first)} and {_span(life.spans, second)}: {crossing.reason}"
        raise TimelineInvalid(field=f"{where}.phases[{second}]", reason=reason) from None


def _training_ends(life: LifeTimeline) -> list[int]:
    ends = life.steps.ends[life.steps.ends != UNMEASURED]
    return [int(at) for column in (life.resumed.times, life.steps.begins, ends) for at in column[-1:]]


def _check_steps(life: LifeTimeline, where: str) -> None:
    steps, marks = life.steps, life.resumed.times
    is_known = steps.ends != UNMEASURED
    _refuse_first(is_known & (steps.ends < steps.begins), f"{where}.steps", "it ends before it begins")
    until = np.where(is_known, steps.ends, steps.begins)
    _refuse_first(
        steps.begins[1:] < until[:-1], f"{where}.steps", "it begins before the one before it is over", 1
    )
    _refuse_first(marks[1:] < marks[:-1], f"{where}.resumed", "it comes before the one before it", 1)
    before = np.searchsorted(steps.begins, marks, side="left") - 1
    if len(until):
        is_inside = (before >= 0) & (until[before] > marks)
        _refuse_first(is_inside, f"{where}.resumed", "it lies inside of a step")
    start = max(life.marks, default=None)
    begins = [int(at) for column in (marks, steps.begins) for at in column[:1]]
    if start is not None and begins and min(begins) < start:
        raise TimelineInvalid(
            field=where, reason=f"training begins at {min(begins)}, before its last mark at {start}"
        )


def _refuse_first(is_wrong: np.ndarray, where: str, reason: str, shift: int = 0) -> None:
    if is_wrong.any():
        raise TimelineInvalid(field=f"{where}[{int(np.argmax(is_wrong)) + shift}]", reason=reason)


def _span(spans: Spans, place: int) -> str:
    return f"{spans.names[place]} {int(spans.begins[place])} to {int(spans.ends[place])}"


def _spans(rows: Any, where: str) -> Spans:
    rows = _list(rows, where)
    names: list[str] = []
    for place, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 3:
            raise TimelineInvalid(
                field=f"{where}[{place}]", reason=f"expected [name, from, to], got {_short(row)}"
            )
        if not isinstance(row[0], str) or row[0] not in _SPAN_NAMES:
            reason = f"expected one of {', '.join(sorted(_SPAN_NAMES))}; got {_short(row[0])}"
            raise TimelineInvalid(field=f"{where}[{place}]", reason=reason)
        names.append(row[0])
    begins = _column([row[1] for row in rows], where, "from")
    ends = _column([row[2] for row in rows], where, "to")
    _refuse_first(ends < begins, where, "it ends before it begins")
    return Spans(tuple(names), begins, ends)


def _columns(rows: Any, where: str, names: Sequence[str], *, open_end: bool = False) -> list[Times]:
    """Rows as columns."""
    rows = _list(rows, where)
    for place, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise TimelineInvalid(
                field=f"{where}[{place}]", reason=f"expected [{', '.join(names)}], got {_short(row)}"
            )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return [
        _column(column, where, name, may_be_null=open_end and name == names[-1])
        for name, column in zip(names, columns, strict=True)
    ]


def _column(values: Sequence[Any], where: str, name: str, *, may_be_null: bool = False) -> Times:
    for place, value in enumerate(values):
        if not (type(value) is int and 0 <= value < NUMBER_MAX) and not (may_be_null and value is None):
            _number(value, f"{where}[{place}].{name}")
    return np.array([UNMEASURED if value is None else value for value in values], np.int64)


def _list(rows: Any, where: str) -> list[Any]:
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise TimelineInvalid(field=where, reason=f"expected a list, got {_short(rows)}")
    return rows


def _object(document: Any, where: str, keys: set[str]) -> None:
    if not isinstance(document, dict):
        raise TimelineInvalid(field=where, reason=f"expected an object, got {_short(document)}")
    unknown = sorted(set(document) - keys)
    if unknown:
        reason = f"unknown key {_short(unknown[0])}; there are {', '.join(sorted(keys))}"
        raise TimelineInvalid(field=where, reason=reason)


def _is_number(value: Any) -> bool:
    return type(value) is int


def _number(value: Any, where: str) -> int:
    if not _is_number(value) or not 0 <= value < NUMBER_MAX:
        reason = f"expected an integer from 0 to 2**53 - 1, got {_short(value)}"
        raise TimelineInvalid(field=where, reason=reason)
    return int(value)


def _short(value: Any) -> str:
    """A value for a message, however long it is. Integers of Python may be too long to be written at all."""
    if type(value) is int and abs(value) >= 1 << 200:
        return f"an integer of {value.bit_length()} bits"
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"
