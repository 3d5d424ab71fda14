"""The feed: batches of one lane, in order, read ahead by threads; resumable from a cursor at any size."""

import logging
import os
import random
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from penstock import _rust, events
from penstock.data.eras.lookahead import EraLookahead
from penstock.data.feed.batch import Batch, Finisher
from penstock.data.feed.batch_source import BatchSource, RustSource
from penstock.data.feed.cursor import Cursor
from penstock.data.feed.lane import Lane
from penstock.data.feed.options import MEMORY_BYTES, ReadKeywords, ReadOptions
from penstock.data.feed.python_stage import PythonStage
from penstock.data.feed.share import SharedFinish, key_of, warn_if_alone
from penstock.data.feed.undecodable import UndecodableCount
from penstock.data.maps.tokens import TokenMapper
from penstock.data.monitor import metrics, stalls
from penstock.data.monitor.statistics import RECURRENCE_BLOCKS, Counts, FeedStatistics, Spread
from penstock.data.plan.plan import Plan, prepare
from penstock.data.plan.row_copies import with_row_copies
from penstock.data.plan.samples import PlanWatch
from penstock.data.plan.to_rust import rust_plan
from penstock.data.recipe.recipe import Recipe
from penstock.data.recipe.schedule import is_whole
from penstock.data.recipe.skips import Skips
from penstock.data.records.reader import RecordReader
from penstock.data.tap.feed_tap import SUFFIX, Tap, home
from penstock.errors import CursorForeign, FeedClosed, RecipeInvalid, UsageError
from penstock.events.quantile import p50_p99
from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.data.service import Service

_log = logging.getLogger(__name__)
_STEP_MAX = 1 << 62
__all__ = ["Feed", "batch_at", "batch_of", "cursor_at", "open_feed"]


class Feed:
    """Batches of one lane. Iterate it; close it when done (or use it as a context)."""

    #: Where it says what it hands out, once asked to.
    _tap: Tap | None = None

    def __init__(
        self,
        plan: Plan,
        lane: Lane,
        *,
        cursor: Cursor | None = None,
        options: ReadOptions | None = None,
    ) -> None:
        self.plan = plan
        self.lane = lane
        self.options = options or ReadOptions(threads=0)
        self._step = 0 if cursor is None else cursor.step
        if cursor is not None:
            check_cursor(plan, cursor)
        check_lane(plan, lane, self._step)
        self._undecodable = UndecodableCount(plan.recipe.undecodable_max)
        limit_s = self.options.patience_s
        self._opened = self._open_source()
        self._source = self._opened.source
        if self._opened.lookahead is not None:
            # It does not know this feed, which can therefore be forgotten without being closed.
            weakref.finalize(self, self._opened.lookahead.stop)
        self._pid = os.getpid()
        self._counts = Counts(plan)
        # Not through this feed, so that it can be forgotten without being closed.
        self._stalls = stalls.watch(limit_s, self._source.stage)
        metrics.enter(self)
        warn_if_alone(self._source.sharing())

    def _open_source(self) -> "OpenedSource":
        return open_source(self.plan, self.lane, self._step, self._undecodable, self.options)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if os.getpid() != self._pid:
            raise FeedClosed(reason="it was opened in another process, and threads do not survive a fork")
        self._stalls.begin(self._step)
        try:
            with events.span("data.wait", step=self._step):
                batch = self._source.next()
        finally:
            self._stalls.end()
        if batch is None:
            raise StopIteration
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
        return self._source.ready()

    def busy_s(self) -> tuple[float, float, float, float]:
        """Seconds of all threads since it was opened: planning, reading and checking, hashing, maps. Cheap."""
        return self._source.stage_times()

    def statistics(self, *, recurrence: bool = False) -> FeedStatistics:
        """Counts, waits and times since opening. Cheap, unless ``recurrence`` asks how often packs recur; safe from any thread."""
        source = self._source
        waits = source.waits()
        wait = Spread(*p50_p99(waits.waits_s))
        aliases = [prepared.source.alias for prepared in self.plan.prepared]
        times = source.stage_times()
        shards, uniform = self._counts.shards
        recurring = source.recurrence(RECURRENCE_BLOCKS) if recurrence else None
        return FeedStatistics(
            batches=waits.batches,
            rows=self._counts.rows,
            tokens=self._counts.tokens,
            bytes=self._counts.bytes,
            padding_share=self._counts.padding_share,
            ready=waits.ready,
            wait_p50_s=wait.p50_s,
            wait_p99_s=wait.p99_s,
            plan_s=times.plan_s,
            read_s=times.read_s,
            digest_s=times.digest_s,
            shards_per_batch=shards,
            shards_uniform=uniform,
            rows_by_source=self._counts.by_source,
            epochs_by_source=dict(zip(aliases, source.epochs_before(self._step), strict=True)),
            undecodable=self._undecodable.told(),
            pack_recurrence=None if recurring is None else dict(zip(aliases, recurring, strict=True)),
            stages={"wait": wait, **source.stage_spread()},
            stalls=self._stalls.count,
            stalled_s=self._stalls.seconds,
            sharing=source.sharing(),
            store=_rust.store_counts(),
        )

    def reopened(self, cursor: Cursor, options: ReadOptions | None = None) -> "Feed":
        """A fresh feed of the same lane at another place, read as this one unless other options are given."""
        return Feed(self.plan, self.lane, cursor=cursor, options=options or self.options)

    def has_step(self, step: int) -> bool:
        """Whether anything comes at a step or after it."""
        plan, lane = self.plan, self.lane
        if plan.records or plan.drawn:
            # What is planned says it; fetching records and calling maps is for whoever wants the batch.
            planned = _rust.Feed(rust_plan(plan), (lane.number, lane.of), step, 0, MEMORY_BYTES)
            return planned.next() is not None
        with Feed(plan, lane, cursor=cursor_at(plan, step)) as probe:
            return next(probe, None) is not None

    def close(self) -> None:
        """End the reading threads. Batches that were handed out stay good."""
        if os.getpid() == self._pid:
            stalls.unwatch(self._stalls)
            metrics.leave(self)
            self._opened.close()
            if self._tap is not None:
                self._tap.close()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_feed(
    recipe: "Recipe | Service | str | os.PathLike[str]",
    *,
    lane: Lane | None = None,
    registry: Registry | str | os.PathLike[str] | None = None,
    cursor: Cursor | str | bytes | None = None,
    skips: Skips | None = None,
    watch: PlanWatch | None = None,
    **reading: Unpack[ReadKeywords],
) -> Feed:
    """Open a recipe for reading: measure what is missing, then start at the cursor (or at the beginning).

    ``threads`` read ahead (default: one per core but the caller's, at most 4; 0 reads in the caller's thread); they never change the order.
    ``share=True``: processes of this host that read the same lane make each batch once, and look at it in the same memory.
    ``stall_s``: how long a wait may last before it is told (default: ``PENSTOCK_STALL_S``, or 10 seconds).
    ``copies``: shuffled records of parquet and Arrow whose units are large are copied once into a form with cheap single rows (``auto``);
    ``always`` and ``never`` do as they say.
    A ``Service``, or its address (``penstock://host:port``), opens the recipe that is served there; it has its registry already.
    A path opens the recipe file; ``registry`` may be a place, and ``cursor`` a cursor's text.
    """
    options = ReadOptions(**reading)
    cursor = _cursor(cursor)
    recipe = _recipe(recipe)
    _check_given(lane, skips)
    if not isinstance(recipe, Recipe):
        if registry is not None or options.share:
            raise UsageError(
                "a service has its registry already, and shares what it makes",
                hint="give the registry to `penstock data serve`",
            )
        from penstock.data.service import open_service

        return open_service(recipe, lane=lane, cursor=cursor, skips=skips, options=options)
    plan = prepare(recipe, _registry(registry, recipe), watch, skips=skips)
    plan = with_row_copies(plan, options.copies, watch)
    if lane is None or lane.number == 0:
        for prepared in plan.prepared:
            for note in prepared.notes:
                _log.warning("%s: %s", prepared.source.alias, note)
    return Feed(plan, lane or Lane(), cursor=cursor, options=options)


def batch_at(
    recipe: Recipe | str | os.PathLike[str],
    *,
    step: int,
    lane: Lane | None = None,
    registry: Registry | str | os.PathLike[str] | None = None,
    skips: Skips | None = None,
) -> Batch:
    """The batch of one step, rebuilt from nothing but the recipe (and the skips, if there were any)."""
    loaded = _recipe(recipe)
    _check_given(lane, skips)
    if not isinstance(loaded, Recipe):
        raise UsageError(f"recipe must be a Recipe or the path of its file, got {loaded!r:.100}")
    return batch_of(prepare(loaded, _registry(registry, loaded), skips=skips), step, lane or Lane())


def _recipe(recipe: "Recipe | Service | str | os.PathLike[str]") -> "Recipe | Service | str":
    """A recipe, read from its file where a path is given; addresses of services are left as they are."""
    if isinstance(recipe, Recipe) or (isinstance(recipe, str) and "://" in recipe):
        return recipe
    if isinstance(recipe, str | os.PathLike):
        return Recipe.load(recipe)
    from penstock.data.service import Service

    if not isinstance(recipe, Service):
        hint = 'ps.open(ps.Recipe(…)), ps.open("recipe.toml") or ps.open("penstock://host:port")'
        what = "recipe must be a Recipe, the path of its file, or the address of a service"
        raise UsageError(f"{what}, got {recipe!r:.100}", hint=hint)
    return recipe


def _check_given(lane: Lane | None, skips: Skips | None) -> None:
    if lane is not None and not isinstance(lane, Lane):
        raise UsageError(f"lane must be a Lane, got {lane!r:.100}", hint="lane=Lane(0, of=8)")
    if skips is not None and not isinstance(skips, Skips):
        raise UsageError(f"skips must be Skips, got {skips!r:.100}", hint="skips=Skips(steps=[(97, 100)])")


def _registry(registry: Registry | str | os.PathLike[str] | None, recipe: Recipe) -> Registry:
    """The registry that was given, or else the one that the recipe names."""
    if registry is None:
        return recipe.open_registry()
    if isinstance(registry, Registry):
        return registry
    if not isinstance(registry, str | os.PathLike):
        raise UsageError(
            f"registry must be a Registry or its place, got {registry!r:.100}",
            hint='registry=Registry("path"), or its path',
        )
    return Registry(registry)


def _cursor(cursor: Cursor | str | bytes | None) -> Cursor | None:
    if cursor is None or isinstance(cursor, Cursor):
        return cursor
    if not isinstance(cursor, str | bytes):
        raise CursorForeign(
            cursor="", recipe="", reason=f"cursor must be a Cursor or its text, got {type(cursor).__name__}"
        )
    return Cursor.from_json(cursor)


def batch_of(plan: Plan, step: int, lane: Lane) -> Batch:
    """The batch of one step of a plan."""
    if not is_whole(step) or not 0 <= step < _STEP_MAX:
        raise RecipeInvalid(field="step", reason=f"must be a whole number from 0 on, got {step!r:.50}")
    check_lane(plan, lane, step, once=True)
    count = UndecodableCount(plan.recipe.undecodable_max)
    opened = open_source(plan, lane, step, count, ReadOptions(threads=0))
    try:
        batch = opened.source.next()
    finally:
        opened.close()
    if batch is None:
        raise FeedClosed(reason=f"the stream ends before step {step}", hint="look at an earlier step")
    if batch.step != step:
        raise FeedClosed(reason=f"step {step} is left out by the skips", hint="look without the skips")
    return batch


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """What makes the batches of a lane, and what measures ahead of it where sources of the recipe grow."""

    source: BatchSource
    lookahead: EraLookahead | None = None

    def close(self) -> None:
        """End the threads of both."""
        self.source.close()
        if self.lookahead is not None:
            self.lookahead.close()


def open_source(
    plan: Plan, lane: Lane, step: int, count: UndecodableCount, options: ReadOptions
) -> OpenedSource:
    """What makes the batches of a lane from a step on.

    Rust makes them alone, or, where samples are records or random maps are called, Rust and then Python.
    """
    threads, memory_bytes = options.thread_count, options.memory_bytes
    key = key_of(plan, lane) if options.share else None
    if not plan.records and not plan.drawn:
        rust_feed = _rust.Feed(rust_plan(plan), (lane.number, lane.of), step, threads, memory_bytes, key)
        return OpenedSource(RustSource(rust_feed, plan), look_ahead(plan, lane, rust_feed))
    # Saying which samples a step has takes no time worth a thread, and reading tokens takes little.
    beside = min(threads, 1) if plan.drawn else 0
    planned = _rust.Feed(rust_plan(plan), (lane.number, lane.of), step, beside, memory_bytes // 2)
    finish: Finisher = RecordReader(plan) if plan.records else TokenMapper(plan)
    if key is not None:
        finish = SharedFinish(plan, finish, key=key, budget_bytes=memory_bytes)
    finishing = PythonStage(
        planned,
        finish,
        accept=lambda batch: count.add(batch.faults),
        threads=threads,
        memory_bytes=memory_bytes,
    )
    return OpenedSource(finishing, look_ahead(plan, lane, planned))


def look_ahead(plan: Plan, lane: Lane, feed: _rust.Feed) -> EraLookahead | None:
    """Start to measure the eras of sources that grow, if there are any."""
    sources = {number: prepared.growing for number, prepared in enumerate(plan.prepared) if prepared.growing}
    if not sources:
        return None
    # Lanes begin apart from each other, and so do processes that read the same lane. Never from a global generator: those are
    # the training's.
    start = (lane.number + random.SystemRandom().random()) / lane.of
    return EraLookahead(feed, sources, start=start, watch=plan.watch)


def cursor_at(plan: Plan, step: int) -> Cursor:
    """The cursor of a step."""
    position = _rust.first_position(list(plan.recipe.batch_schedule), step)
    return Cursor(step, position, plan.prefix(step), plan.digest(step), plan.skips.digest(step))


def check_cursor(plan: Plan, cursor: Cursor) -> None:
    """A cursor belongs to a plan; one of another is refused."""
    expected = cursor_at(plan, cursor.step)
    for name, reason in {
        "prefix": "the recipes differ before its step",
        "plan": "the versions or measured columns behind them differ",
        "position": "the batch sizes differ",
        "skips": "the steps that were left out before it differ",
    }.items():
        if getattr(cursor, name) != getattr(expected, name):
            hint = _earlier_hint(plan, cursor) if name == "prefix" else None
            raise CursorForeign(cursor=cursor.prefix, recipe=expected.prefix, reason=reason, hint=hint)


def _earlier_hint(plan: Plan, cursor: Cursor) -> str | None:
    """What to set where a cursor is from before text that spells special tokens was text; None for any other one."""
    recipe = plan.recipe.with_special_tokens_in_text()
    if recipe.prefix(plan.versions, cursor.step) != cursor.prefix:
        return None
    return (
        'set special_in_text = "token" in the Tokenize or Chat stage: the run began when text that spells '
        "special tokens became control tokens"
    )


def check_lane(plan: Plan, lane: Lane, first: int, *, once: bool = False) -> None:
    """Every step from the first on can be dealt; a batch that lanes cannot share is an error at open, not a day later."""
    schedule = plan.recipe.batch_schedule
    for (step, rows), after in zip(schedule, [*(step for step, _ in schedule[1:]), None], strict=True):
        if (after is None or after > first) and not (once and step > first):
            lane.rows(0, rows)
