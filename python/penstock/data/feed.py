"""The feed: batches of one lane, in order, read ahead by threads; resumable from a cursor at any size."""

import os
import random
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from penstock import _rust, events
from penstock.data.batch import Batch
from penstock.data.cursor import Cursor
from penstock.data.finishing import Finished, Finishing
from penstock.data.forerunner import Forerunner
from penstock.data.handing import rust_plan
from penstock.data.lane import Lane
from penstock.data.measured import PlanWatch
from penstock.data.planning import Plan, prepare
from penstock.data.recipe import Recipe
from penstock.data.records.reading import RecordReader
from penstock.data.skips import Skips
from penstock.data.statistics import RECURRENCE_BLOCKS, Counts, FeedStatistics
from penstock.data.tapping import SUFFIX, Tap, home
from penstock.data.tokenmaps import TokenMapper
from penstock.data.undecodable import UndecodableCount
from penstock.errors import CursorForeign, FeedClosed, RecipeInvalid
from penstock.registry import Registry

#: For batches that wait; a few small ones are as good as many.
MEMORY_BYTES = 32 << 20
#: Of a feed, unless the caller says otherwise. The caller's own thread helps when it would have to wait.
THREADS = max(1, min(4, (os.cpu_count() or 1) - 1))


class Feed:
    """Batches of one lane. Iterate it; close it when done (or use it as a context)."""

    def __init__(
        self,
        plan: Plan,
        lane: Lane,
        *,
        cursor: Cursor | None = None,
        threads: int = 0,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self.plan = plan
        self.lane = lane
        self._step = 0 if cursor is None else cursor.step
        if cursor is not None:
            _check_cursor(plan, cursor)
        _check_lane(plan, lane, self._step)
        if threads < 0:
            raise RecipeInvalid(field="threads", reason=f"{threads} threads cannot be started")
        self._undecodable = UndecodableCount(plan.recipe.undecodable_max)
        self._feed, self._forerunner = start(
            plan, lane, self._step, self._undecodable, threads=threads, memory_bytes=memory_bytes
        )
        if self._forerunner is not None:
            # It does not know this feed, which can therefore be forgotten without being closed.
            weakref.finalize(self, self._forerunner.stop)
        self._pid = os.getpid()
        self._counts = Counts(plan)
        self._tap: Tap | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if os.getpid() != self._pid:
            raise FeedClosed(reason="it was opened in another process, and threads do not survive a fork")
        with events.span("data.wait", step=self._step):
            made = self._feed.next()
        if made is None:
            raise StopIteration
        batch = made if isinstance(made, Batch) else Batch(made, self.plan)
        self._step = batch.step + 1
        self._counts.add(batch)
        if self._tap is not None:
            self._tap.show(batch.step, batch.digest)
        return batch

    def publish(self, path: Path | None = None) -> Path:
        """Say from now on, in a small file, which batch was handed out last, for ``penstock view``; the file is returned."""
        if self._tap is None:
            self._tap = Tap(path or home() / f"{os.getpid()}-{id(self):x}{SUFFIX}", self.plan, self.lane)
        return self._tap.path

    @property
    def cursor(self) -> Cursor:
        """Where to resume so that the batch returned last is not seen again."""
        return cursor_at(self.plan, self._step)

    @property
    def ready(self) -> int:
        """Batches that are made and wait to be asked for."""
        return self._feed.waits()[1]

    def statistics(self, *, recurrence: bool = False) -> FeedStatistics:
        """Counts, waits and times since opening. Cheap, unless ``recurrence`` asks how often packs recur; safe from any thread."""
        batches, ready, waits = self._feed.waits()
        waited = np.frombuffer(waits, dtype=np.float64)
        p50, p99 = np.percentile(waited, [50, 99]) if len(waited) else (0.0, 0.0)
        made = self._feed if isinstance(self._feed, _rust.Feed) else self._feed.planned
        aliases = [each.source.alias for each in self.plan.prepared]
        plan_s, read_s, digest_s = made.stage_times()
        shards, uniform = self._counts.shards
        recurring = made.recurrence(RECURRENCE_BLOCKS) if recurrence else None
        return FeedStatistics(
            batches=batches,
            rows=self._counts.rows,
            tokens=self._counts.tokens,
            bytes=self._counts.bytes,
            padding_share=self._counts.padding_share,
            ready=ready,
            wait_p50_s=float(p50),
            wait_p99_s=float(p99),
            plan_s=plan_s,
            read_s=read_s,
            digest_s=digest_s,
            shards_per_batch=shards,
            shards_uniform=uniform,
            rows_by_source=self._counts.by_source,
            epochs_by_source=dict(zip(aliases, made.epochs_before(self._step), strict=True)),
            undecodable=self._undecodable.told(),
            pack_recurrence=None if recurring is None else dict(zip(aliases, recurring, strict=True)),
        )

    def close(self) -> None:
        """End the reading threads. Batches that were handed out stay good."""
        if os.getpid() == self._pid:
            self._feed.close()
            if self._tap is not None:
                self._tap.close()
            if self._forerunner is not None:
                self._forerunner.close()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_feed(
    recipe: Recipe,
    *,
    lane: Lane | None = None,
    registry: Registry | None = None,
    cursor: Cursor | None = None,
    threads: int | None = None,
    skips: Skips | None = None,
    watch: PlanWatch | None = None,
) -> Feed:
    """Open a recipe for reading: measure what is missing, then start at the cursor (or at the beginning).

    ``threads`` read ahead (default: one per core but the caller's, at most 4; 0 reads in the caller's thread); they never change the order.
    """
    plan = prepare(recipe, registry or Registry(), watch, skips=skips)
    count = THREADS if threads is None else threads
    return Feed(plan, lane or Lane(), cursor=cursor, threads=count)


def batch_at(
    recipe: Recipe,
    *,
    step: int,
    lane: Lane | None = None,
    registry: Registry | None = None,
    skips: Skips | None = None,
) -> Batch:
    """The batch of one step, rebuilt from nothing but the recipe (and the skips, if there were any)."""
    return batch_of(prepare(recipe, registry or Registry(), skips=skips), step, lane or Lane())


def batch_of(plan: Plan, step: int, lane: Lane) -> Batch:
    """The batch of one step of a plan."""
    if step < 0:
        raise RecipeInvalid(field="step", reason=f"there is no step {step}")
    _check_lane(plan, lane, step, once=True)
    count = UndecodableCount(plan.recipe.undecodable_max)
    feed, forerunner = start(plan, lane, step, count, threads=0, memory_bytes=MEMORY_BYTES)
    try:
        made = feed.next()
    finally:
        feed.close()
        if forerunner is not None:
            forerunner.close()
    if made is None:
        raise FeedClosed(reason=f"the stream ends before step {step}", hint="look at an earlier step")
    if made.step != step:
        raise FeedClosed(reason=f"step {step} is left out by the skips", hint="look without the skips")
    return made if isinstance(made, Batch) else Batch(made, plan)


def start(
    plan: Plan, lane: Lane, step: int, count: UndecodableCount, *, threads: int, memory_bytes: int
) -> tuple[_rust.Feed | Finishing, Forerunner | None]:
    """What makes the batches of a lane from a step on, and what measures ahead of it where sources grow.

    Rust makes them alone, or, where samples are records or random maps are called, Rust and then Python.
    """
    if not plan.records and not plan.drawn:
        made = _rust.Feed(rust_plan(plan), (lane.number, lane.of), step, threads, memory_bytes)
        return made, forerun(plan, lane, made)
    # Saying which samples a step has takes no time worth a thread, and reading tokens takes little.
    beside = min(threads, 1) if plan.drawn else 0
    planned = _rust.Feed(rust_plan(plan), (lane.number, lane.of), step, beside, memory_bytes // 2)
    finish: Callable[[_rust.FeedBatch], Finished] = RecordReader(plan) if plan.records else TokenMapper(plan)
    finishing = Finishing(
        planned,
        finish,
        accept=lambda batch: count.add(batch.faults),
        threads=threads,
        memory_bytes=memory_bytes,
    )
    return finishing, forerun(plan, lane, planned)


def forerun(plan: Plan, lane: Lane, feed: _rust.Feed) -> Forerunner | None:
    """Start to measure the eras of sources that grow, if there are any."""
    sources = {number: each.growing for number, each in enumerate(plan.prepared) if each.growing}
    if not sources:
        return None
    # Lanes begin apart from each other, and so do processes that read the same lane. Never from a global generator: those are
    # the training's.
    start = (lane.number + random.SystemRandom().random()) / lane.of
    return Forerunner(feed, sources, start=start, watch=plan.watch)


def cursor_at(plan: Plan, step: int) -> Cursor:
    """The cursor of a step."""
    position = _rust.first_position(list(plan.recipe.batch_schedule), step)
    return Cursor(step, position, plan.prefix(step), plan.digest(step), plan.skips.digest(step))


def _check_cursor(plan: Plan, cursor: Cursor) -> None:
    expected = cursor_at(plan, cursor.step)
    for name, reason in {
        "prefix": "the recipes differ before its step",
        "plan": "the versions or measured columns behind them differ",
        "position": "the batch sizes differ",
        "skips": "the steps that were left out before it differ",
    }.items():
        if getattr(cursor, name) != getattr(expected, name):
            raise CursorForeign(cursor=cursor.prefix, recipe=expected.prefix, reason=reason)


def _check_lane(plan: Plan, lane: Lane, first: int, *, once: bool = False) -> None:
    """Every step from the first on can be dealt; a batch that lanes cannot share is an error at open, not a day later."""
    schedule = plan.recipe.batch_schedule
    for (step, rows), after in zip(schedule, [*(step for step, _ in schedule[1:]), None], strict=True):
        if (after is None or after > first) and not (once and step > first):
            lane.rows(0, rows)
