"""The timeline of a run, from what its directory holds: records, rows of steps, journal, anchors, and the journal of its supervisor.

Rows are of the boot's clock and exact. Moments of journals are of the wall clock, and births are known to a hundredth of a second; such a
moment is moved to the nearest place that agrees with the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RunDamaged
from penstock.observe.steps import (
    DEVICE,
    HOST,
    PARTS,
    UNMEASURED,
    StepRows,
    list_steps,
    read_anchors,
    read_steps,
)
from penstock.observe.steps.compile_file import CompileSpan, read_compiles, stretches_of
from penstock.report.accounts.account_names import UNKNOWN
from penstock.report.accounts.clock_map import WALL, ClockMap
from penstock.report.accounts.host_alignment import HostAlignment, alignments_of
from penstock.report.accounts.supervision import Stamp, SupervisedLife, supervised_lives
from penstock.report.accounts.timeline import (
    LifeTimeline,
    Marks,
    RankTimeline,
    Spans,
    StepColumns,
    Times,
)
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from penstock.run.journal.journal import Entry
from penstock.run.journal.step_records import LifeRecord

#: Moves that are shorter than this follow from how clocks are read.
MOVE_NS = 50_000_000
#: How exactly the system tells a birth.
TICK_NS = 10_000_000
_FAULTS_MAX = 20


@dataclass(slots=True)
class RunTimeline:
    """All ranks, and what is wrong with what was read."""

    ranks: list[RankTimeline] = field(default_factory=list)
    lost_rows: int = 0
    faults: list[str] = field(default_factory=list)
    #: Of lives whose ranks are on several hosts: how their clocks stand to each other.
    alignments: list[HostAlignment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Sources:
    """What a life is put together from."""

    clocks: ClockMap
    supervised: dict[int, SupervisedLife]
    ends: dict[tuple[int, int], Entry]
    #: When each rank of each life was compiling.
    compiles: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)


def run_timeline(
    run: Path, home: Path, columns: Sequence[str] = (*HOST, *DEVICE, "exchanged")
) -> RunTimeline:
    """Read a run, with some columns of its rows; ``home`` has the jobs that may have supervised it."""
    sources = _sources(run, home)
    timeline = _timeline(run, sources, columns, None)
    timeline.faults += sources.clocks.steps_of_the_wall_clock()
    timeline.faults = timeline.faults[:_FAULTS_MAX]
    return timeline


def rank_timelines(
    run: Path, home: Path, columns: Sequence[str], ranks: Sequence[int]
) -> Iterator[RankTimeline]:
    """Some ranks, one after another, so that only one has to be in memory."""
    sources = _sources(run, home)
    for rank in ranks:
        yield from _timeline(run, sources, columns, {rank}).ranks


def _sources(run: Path, home: Path) -> _Sources:
    entries = journal.read(run)
    return _Sources(
        ClockMap(read_anchors(run)),
        supervised_lives(entries, home),
        {(entry.incarnation, entry.rank): entry for entry in entries if entry.kind == "end"},
        _compiles(run),
    )


def _timeline(run: Path, sources: _Sources, columns: Sequence[str], ranks: set[int] | None) -> RunTimeline:
    timeline = RunTimeline()
    tables = None if ranks is None else [table for table in list_steps(run) if table[1] in ranks]
    rows = {(table.life, table.rank): table for table in read_steps(run, columns=columns, tables=tables)}
    of_records = {(life.incarnation, life.rank): life for life in _records(run, timeline.faults, ranks)}
    if not of_records:
        rows = _newest_loop(rows)
    for table in rows.values():
        timeline.lost_rows += table.lost_rows
        timeline.faults += [f"{fault.file} at byte {fault.offset}: {fault.reason}" for fault in table.faults]
    by_rank: dict[int, list[LifeTimeline]] = {}
    for key in sorted({*rows, *of_records}):
        life = _life(key, rows.get(key), of_records.get(key), sources)
        if life is not None:
            by_rank.setdefault(key[1], []).append(life)
    for rank, lives in sorted(by_rank.items()):
        timeline.ranks.append(_rank(rank, lives, sources.clocks))
    timeline.alignments = alignments_of(timeline.ranks)
    return timeline


def _newest_loop(rows: dict[tuple[int, int], StepRows]) -> dict[tuple[int, int], StepRows]:
    """Of a loop that was only observed: one that ended in order and begins with its first step again is another loop in the same directory."""
    lives = sorted({life for life, _ in rows})
    for before, life in reversed([*pairwise(lives)]):
        has_ended = all(table.is_closed for key, table in rows.items() if key[0] == before)
        if has_ended and all(_first_step(table) == 0 for key, table in rows.items() if key[0] == life):
            return {key: table for key, table in rows.items() if key[0] >= life}
    return rows


def _first_step(table: StepRows) -> int | None:
    """Also of rows that are only left as sums."""
    firsts = [table.rolled.get("first_step", ())[:1], table.columns["step"][:1]]
    return next((int(first) for column in firsts for first in column), None)


def _compiles(run: Path) -> dict[tuple[int, int], list[tuple[int, int]]]:
    spans: dict[tuple[int, int], list[CompileSpan]] = {}
    for span in read_compiles(run):
        spans.setdefault((span.life, span.rank), []).append(span)
    return {key: stretches_of(of_rank) for key, of_rank in spans.items()}


def _records(run: Path, faults: list[str], ranks: set[int] | None) -> list[LifeRecord]:
    """What could be read of the records."""
    lives: list[LifeRecord] = []
    try:
        lives.extend(records.lives(run, ranks))
    except RunDamaged as damage:
        faults.append(str(damage))
    return lives


def _life(
    key: tuple[int, int], table: StepRows | None, record: LifeRecord | None, sources: _Sources
) -> LifeTimeline | None:
    """One life of one rank; None when nothing is known of it."""
    number, rank = key
    start = (record.began or record.born) if record is not None else 0.0
    clock = sources.clocks.clock(number, rank, start)
    # Wall times of a life are those of its own boot: another host has another clock.
    clocks, supervised = sources.clocks.of(clock), sources.supervised.get(number)
    moments = [] if record is None else _moments(record, clocks, clock)
    has_rows = table is not None and (len(table) or len(table.rolled.get("step", ())))
    steps = _row_columns(table) if table is not None and has_rows else _record_columns(moments)
    marks = [moment for moment in moments if moment.kind == "mark"]
    if record is None and not len(steps.numbers):
        return None
    ended = next((moment.at_ns for moment in reversed(moments) if moment.kind == "end"), None)
    if record is None and table is not None and table.is_closed:
        # A loop that was only observed has no journal: its table says that it ended.
        ended = next((int(at) for at in steps.ends[-1:] if at != UNMEASURED), None)
    died = clocks.stamp(_died(supervised, rank), clock)
    cause = "" if supervised is None else supervised.what
    end = sources.ends.get(key) or sources.ends.get((number, 0))
    if end is not None and end.facts.get("how") == "failed":
        ended, died = None, died or end.boot_ns or clocks.moment(end.at)
        cause = cause or f"{end.facts.get('error')}: {end.facts.get('reason')}"
    life = LifeTimeline(
        number=number,
        clock=clock,
        requested=clocks.stamp(
            None if supervised is None else supervised.requested or supervised.ordered, clock
        ),
        born=_born(record, clocks, clocks.stamp(None if supervised is None else supervised.ordered, clock)),
        joined=None if record is None else record.began_ns or clocks.moment(record.began),
        resumed=Marks(
            np.array([mark.at_ns for mark in marks], np.int64),
            np.array([mark.step for mark in marks], np.int64),
        ),
        steps=steps,
        ended=ended,
        died=died,
        cause=cause,
    )
    return _with_spans(_agreed(life), supervised, clocks, rank, moments, sources.compiles.get(key, []))


def _born(record: LifeRecord | None, clocks: ClockMap, ordered: int | None) -> int | None:
    """When the process was made. The system says it in ticks, which began before; nobody is born before the order for it."""
    born = None if record is None else record.born_ns or clocks.moment(record.born)
    is_in_tick = born is not None and ordered is not None and born < ordered <= born + TICK_NS
    return ordered if is_in_tick else born


def _died(supervised: SupervisedLife | None, rank: int) -> Stamp | None:
    if supervised is None or rank >= len(supervised.pids):
        return None
    return supervised.exits.get(supervised.pids[rank])


def _row_columns(table: StepRows) -> StepColumns:
    """Rows in order of time, behind the sums of those that were thinned. One that goes back in time is damage, and its time is in no step."""
    columns = _with_sums(table)
    begins, ends = columns["begin"], columns["end"]
    until = np.where(ends == UNMEASURED, begins, ends)
    is_sound = (begins != UNMEASURED) & (until >= begins) & (columns["step"] >= 0)
    before = np.concatenate([[UNMEASURED], np.maximum.accumulate(np.where(is_sound, until, UNMEASURED))[:-1]])
    keep = is_sound & (begins >= before)
    parts = {part: columns[f"host.{part}"][keep] for part in PARTS if f"host.{part}" in columns}
    own = {"step", "begin", "end", "first_step", *(f"host.{part}" for part in PARTS)}
    others = {
        name: column[keep] for name, column in columns.items() if name not in own and column.dtype == np.int64
    }
    firsts = columns.get("first_step")
    return StepColumns(
        columns["step"][keep],
        begins[keep],
        ends[keep],
        parts,
        others,
        None if firsts is None else firsts[keep],
    )


def _with_sums(table: StepRows) -> dict[str, NDArray[Any]]:
    """Columns of rows and of sums over rows, in order of time; ``first_step`` only where there are sums."""
    columns: dict[str, Times] = {name: np.asarray(column) for name, column in table.columns.items()}
    if not len(table.rolled.get("step", ())):
        return columns
    rows = {**columns, "first_step": columns["step"]}
    sums: dict[str, Times] = {name: np.asarray(column) for name, column in table.rolled.items()}
    absent = np.full(len(sums["step"]), UNMEASURED, np.int64)
    together = {name: np.concatenate([sums.get(name, absent), column]) for name, column in rows.items()}
    order = np.argsort(together["begin"], kind="stable")
    is_sum = together["first_step"] <= together["step"]
    # What does not say how many steps it stands for stands for one.
    together["first_step"] = np.where(is_sum, together["first_step"], together["step"])
    return {name: column[order] for name, column in together.items()}


class _Moment(NamedTuple):
    """A moment of the records on the clock of a life."""

    kind: str
    step: int
    at_ns: int


def _moments(record: LifeRecord, clocks: ClockMap, clock: str) -> list[_Moment]:
    """In order. They were written in order, so a moment before the one before it says that somebody set the clock back.

    Records that say when they began in boot time count from there, whatever the wall clock did; others are found by the anchors.
    """
    moments: list[_Moment] = []
    latest = None
    for moment in record.moments:
        is_counted = record.began_ns and clock != WALL
        since = round((moment.at - record.began) * 1e9)
        at = record.began_ns + since if is_counted else clocks.at(moment.at)[1]
        latest = at if latest is None else max(at, latest)
        moments.append(_Moment(moment.kind, moment.step, latest))
    return moments


def _record_columns(moments: Sequence[_Moment]) -> StepColumns:
    """Steps of a run from before rows were recorded: a step begins where the moment before it was."""
    rows = []
    before: int | None = None
    for moment in moments:
        if moment.kind == "step":
            rows.append((moment.step, moment.at_ns if before is None else before, moment.at_ns))
        if moment.kind in ("step", "mark"):
            before = moment.at_ns
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return StepColumns(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


def _agreed(life: LifeTimeline) -> LifeTimeline:
    """The life with moments where rows allow them to be."""
    steps = life.steps
    until = np.where(steps.ends == UNMEASURED, steps.begins, steps.ends)
    marks = np.maximum.accumulate(life.resumed.times) if len(life.resumed.times) else life.resumed.times
    if len(until) and len(marks):
        place = np.searchsorted(steps.begins, marks, side="left") - 1
        inside = (place >= 0) & (until[np.maximum(place, 0)] > marks)
        low, high = steps.begins[np.maximum(place, 0)], until[np.maximum(place, 0)]
        marks = np.where(inside, np.where(marks - low < high - marks, low, high), marks)
        if place[0] < 0 or marks[0] <= steps.begins[0] + MOVE_NS:
            marks[0] = min(int(marks[0]), int(steps.begins[0]))
    first = min([int(at) for column in (marks, steps.begins) for at in column[:1]], default=None)
    known: list[int | None] = []
    limit = first
    for at in (life.joined, life.born, life.requested):
        at = at if at is None or limit is None else min(at, limit)
        limit = at if at is not None else limit
        known.append(at)
    joined, born, requested = known
    last = max([int(at) for column in (marks, until) for at in column[-1:]], default=None)
    floor = max([at for at in (last, joined, born, requested) if at is not None], default=None)
    ended = life.ended if life.ended is None or floor is None else max(life.ended, floor)
    floor = ended if ended is not None else floor
    died = life.died if life.died is None or floor is None else max(life.died, floor)
    return replace(
        life,
        requested=requested,
        born=born,
        joined=joined,
        resumed=Marks(marks, life.resumed.steps),
        ended=ended,
        died=died,
    )


def _with_spans(
    life: LifeTimeline,
    supervised: SupervisedLife | None,
    clocks: ClockMap,
    rank: int,
    moments: Sequence[_Moment],
    compiles: Sequence[tuple[int, int]],
) -> LifeTimeline:
    """What the supervisor and the clocks tell about stretches of a life."""
    spans: list[tuple[str, int, int]] = []
    if life.requested is not None and life.born is not None:
        # What comes before the order is time in a queue.
        ordered = None if supervised is None else clocks.stamp(supervised.ordered, life.clock)
        spans.append(("spawn", min(max(ordered or 0, life.requested), life.born), life.born))
    if supervised is not None and supervised.failed is not None:
        failed, gone = (clocks.stamp(at, life.clock) for at in (supervised.failed, supervised.gone))
        if failed is not None and gone is not None and failed < gone:
            spans.append(("drain", failed, gone))
        if supervised.is_hang and failed is not None and life.sign < failed:
            spans.append(("hang", _last_work(life), failed))
        ordered = clocks.stamp(supervised.next_ordered, life.clock)
        if gone is not None and ordered is not None and gone < ordered:
            spans.append(("backoff", gone, ordered))
    spans = [("suspended", begin, end) for begin, end in clocks.suspends(life.number, rank)] + spans
    kept: list[tuple[str, int, int]] = []
    for span in spans:
        if not any(_cross(span, other) for other in kept):
            kept.append(span)
    first, last = life.first, life.last
    inside = [("compile", begin, end) for begin, end in compiles if first <= begin and end <= last]
    # There may be tens of thousands of them, none of which crosses another.
    few = tuple(kept)
    kept += [span for span in inside if not any(_cross(span, other) for other in few)]
    if not life.steps.parts:
        kept += [span for span in _phases(moments) if not any(_cross(span, other) for other in kept)]
    names = tuple(name for name, _, _ in kept)
    edges = np.array([[begin, end] for _, begin, end in kept], np.int64).reshape(-1, 2)
    return replace(life, spans=Spans(names, edges[:, 0].copy(), edges[:, 1].copy()))


def _last_work(life: LifeTimeline) -> int:
    ends = life.steps.ends[life.steps.ends != UNMEASURED]
    moments = [*(int(at) for column in (ends, life.resumed.times) for at in column[-1:]), *life.marks]
    return max(moments, default=life.sign)


def _cross(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    """Whether neither lies inside the other nor apart from it."""
    begin, end = max(one[1], other[1]), min(one[2], other[2])
    return begin < end and (begin, end) not in ((one[1], one[2]), (other[1], other[2]))


def _phases(moments: Sequence[_Moment]) -> list[tuple[str, int, int]]:
    """Phases of a run without rows."""
    spans, begin = [], None
    for moment in moments:
        if moment.kind == "phase":
            begin = moment.at_ns
        elif moment.kind == "training" and begin is not None:
            spans.append(("eval", begin, moment.at_ns))
            begin = None
    return spans


def _rank(rank: int, lives: Sequence[LifeTimeline], clocks: ClockMap) -> RankTimeline:
    """Lives in order of time, with the gap between two clocks estimated."""
    ordered = sorted(lives, key=lambda life: life.number)
    for place in range(1, len(ordered)):
        before, life = ordered[place - 1], ordered[place]
        if before.clock == life.clock and life.first < before.last <= life.first + MOVE_NS:
            ordered[place] = _moved(life, before.last)
        elif before.clock != life.clock:
            ordered[place - 1] = replace(before, gap_estimate=_gap(before, life, clocks))
    has_rows = any(life.steps.parts for life in ordered)
    return RankTimeline(rank, tuple(ordered), "rest" if has_rows else UNKNOWN)


def _gap(before: LifeTimeline, life: LifeTimeline, clocks: ClockMap) -> int | None:
    """How long wall clocks say that it took from the last sign of a life to the first of the next; below 0 where one of them was wrong."""
    last, first = clocks.wall(before.clock, before.last), clocks.wall(life.clock, life.first)
    return None if last is None or first is None else first - last


def _moved(life: LifeTimeline, first: int) -> LifeTimeline:
    """A life whose first moments are known less exactly than the end of the one before it."""

    def later(at: int | None) -> int | None:
        return None if at is None else max(at, first)

    begins: Times = np.maximum(life.spans.begins, first)
    spans = Spans(life.spans.names, begins, np.maximum(life.spans.ends, first))
    return _agreed(
        replace(
            life,
            requested=later(life.requested),
            born=later(life.born),
            joined=later(life.joined),
            spans=spans,
        )
    )
