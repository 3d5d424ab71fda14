"""Batches of a feed, turned into a framework's arrays a few steps before they are asked for; resumable exactly.

The feed runs ahead of the loop, so its own cursor is too far. What counts is what was handed out: ``state_dict`` names the
step after that, whatever waits in between. A stream that ends is rewound, so that the next loop over it begins again, as
loops over loaders expect. It knows no framework; ``penstock.torch`` and ``penstock.jax`` say how a batch is turned.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from penstock.data.feed.batch import Batch
from penstock.data.feed.cursor import Cursor
from penstock.data.feed.feed import Feed, cursor_at
from penstock.data.feed.lane import Lane
from penstock.data.feed.options import ReadOptions
from penstock.data.monitor.statistics import FeedStatistics
from penstock.data.plan.plan import Plan
from penstock.errors import CursorForeign, FeedClosed, PenstockError, UsageError

PREFETCH_MAX = 64
#: A stream that still has batches here has no end that anybody reaches.
STEPS_MAX = 1 << 48

Turned = TypeVar("Turned")


class Prefetch(Generic[Turned]):
    """Iterate it, as often as you like: it goes on where it is. Close it when done (or use it as a context)."""

    def __init__(
        self,
        feed: Feed,
        turn: Callable[[Batch], Turned],
        *,
        prefetch: int = 2,
        options: ReadOptions | None = None,
    ) -> None:
        """``options``: how the feed is read when it is opened anew; as it was opened, unless they are given."""
        if not 0 <= prefetch <= PREFETCH_MAX:
            raise UsageError(f"prefetch is {prefetch}, but 0 to {PREFETCH_MAX} batches can be held ahead")
        self._feed = feed
        self._turn = turn
        self._prefetch = prefetch
        self._options = options or feed.options
        #: The step after the batch that was handed out last.
        self._step = feed.cursor.step
        #: Turned and waiting, in order, each with its step.
        self._waiting: deque[tuple[int, Turned]] = deque()
        #: What the feed said when it was asked ahead of time; raised once everything before it was handed out.
        self._problem: PenstockError | None = None
        #: Whether the feed no longer stands where ``_waiting`` ends, so that it is opened anew before it is read.
        self._adrift = False
        #: Whether a batch was handed out since the loader was made or loaded.
        self._passed = False
        self._closed = False
        self._steps: int | None = None
        #: Is around turning one batch; for whoever measures it.
        self.turning: AbstractContextManager[object] = nullcontext()

    def __iter__(self) -> Iterator[Turned]:
        # A loop that knows the length stops without asking for more; the next one then finds the end first, and means a
        # new pass. After `load_state_dict` the end is what is left of the pass that was saved.
        if not self._fill() and not self._passed:
            return
        while self._fill():
            _, turned = self._waiting[0]
            self._turn_ready()
            self._step = self._waiting.popleft()[0] + 1
            self._passed = True
            yield turned

    def _fill(self) -> bool:
        """Have at least one batch waiting; False, and back at the beginning, when the stream has ended."""
        if self._closed:
            raise FeedClosed(reason="the loader was closed")
        if self._waiting:
            return True
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if self._adrift:
            self._reopen(cursor_at(self.plan, self._step))
        if self._turn_one():
            return True
        self._step = 0
        self._adrift = True
        return False

    def _turn_ready(self) -> None:
        """Turn what the feed has ready, so that the loop never waits for a batch that it has not asked for."""
        room = self._prefetch + 1 - len(self._waiting)
        if room <= 0 or self._problem is not None or self._adrift:
            return
        try:
            for _ in range(min(room, self._feed.ready)):
                self._turn_one()
        except PenstockError as problem:
            self._problem = problem

    def _turn_one(self) -> bool:
        try:
            batch = next(self._feed)
            with self.turning:
                turned = self._turn(batch)
            self._waiting.append((batch.step, turned))
        except StopIteration:
            return False
        except PenstockError:
            self._adrift = True
            raise
        except BaseException:
            # Interrupted between taking and keeping (Ctrl-C, out of memory): read again rather than skip a step.
            self._waiting.clear()
            self._adrift = True
            raise
        return True

    def _reopen(self, cursor: Cursor) -> None:
        fresh = self._feed.reopened(cursor, self._options)
        self._feed.close()
        self._feed = fresh
        self._step = cursor.step
        self._waiting.clear()
        self._problem = None
        self._adrift = False

    @property
    def plan(self) -> Plan:
        """The recipe with everything measured; it stays the same for the loader's life."""
        return self._feed.plan

    @property
    def lane(self) -> Lane:
        """Which of the parallel consumers this is."""
        return self._feed.lane

    @property
    def waiting(self) -> int:
        """Batches that were turned ahead and not handed out yet."""
        return len(self._waiting)

    def standing(self) -> tuple[int, tuple[float, float, float, float]]:
        """Batches that are ready, turned or not, and the seconds that all threads of the feed planned, read, hashed and mapped. Cheap."""
        return len(self._waiting) + self._feed.ready, self._feed.busy_s()

    def cursor(self, *, after: int | None = None) -> Cursor:
        """Where to resume so that the batch handed out last (or that of step ``after``) is not seen again."""
        return cursor_at(self.plan, self._step if after is None else after + 1)

    def state_dict(self, *, after: int | None = None) -> dict[str, Any]:
        """All that resuming needs, as plain values: the same on every lane, good for any number of lanes and framework.

        A framework that fetches batches before it trains on them passes the step that it has finished as ``after``.
        """
        return {"cursor": self.cursor(after=after).to_json()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken; refused, and nothing changed, when it belongs to another stream."""
        if self._closed:
            raise FeedClosed(reason="the loader was closed")
        text = state.get("cursor") if isinstance(state, Mapping) else None
        if not isinstance(text, str | bytes):
            contents = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise CursorForeign(
                cursor="",
                recipe=self.plan.recipe.digest,
                reason=f"the state holds no cursor, only {contents}",
            )
        self._reopen(Cursor.from_json(text))
        self._passed = False

    def __len__(self) -> int:
        """Batches of the whole stream, wherever the loader stands."""
        if self._steps is None:
            self._steps = count_steps(self._feed)
        return self._steps

    def __bool__(self) -> bool:
        return True

    def statistics(self, *, recurrence: bool = False) -> FeedStatistics:
        """Numbers of the feed since it was opened; it is opened anew by ``load_state_dict`` and by a new pass."""
        return self._feed.statistics(recurrence=recurrence)

    def close(self) -> None:
        """End the reading threads. Batches that were handed out stay good."""
        self._closed = True
        self._waiting.clear()
        self._feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def count_steps(feed: Feed) -> int:
    """How many batches a stream has, found by asking at O(log n) places; TypeError, as ``len`` demands, if it is endless."""
    plan = feed.plan
    limits = [source.epochs for source in plan.recipe.sources]
    ends = None not in limits if plan.recipe.exhaustion == "drop" else any(limits)
    past = 1
    while ends and past < STEPS_MAX and feed.has_step(past - 1):
        past *= 2
    if not ends or past >= STEPS_MAX:
        raise TypeError("the stream has no end, so it has no length; limit its sources with epochs=")
    # Step past - 1 is beyond the end, and step past // 2 - 1 is not (or there is no step at all).
    low, high = past // 2, past - 1
    while low < high:
        middle = (low + high) // 2
        if feed.has_step(middle):
            low = middle + 1
        else:
            high = middle
    return low - sum(max(0, min(stop, low) - first) for first, stop in plan.skips.steps)
