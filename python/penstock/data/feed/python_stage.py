"""Finishing in Python what Rust has planned: threads turn each made step into its batch, ahead of the consumer and in order.

Rust says what a step consists of; records have to be fetched and decoded, and random maps have to be called. Threads take steps
one by one and finish them in any order; batches are handed out in the order in which steps were taken. How far threads
may be ahead is bounded by count and by the bytes of what waits, and an exception waits for its turn like a batch. What caused
it may pass: whoever asks again after an exception gets the same step, finished anew.
"""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from penstock import _rust
from penstock.data.feed.batch import Batch, Finisher
from penstock.data.feed.batch_source import RustPlanned, StageTimes, Waits
from penstock.data.feed.share import Sharing
from penstock.data.feed.worker_count import WorkerCount
from penstock.data.monitor.statistics import Spread
from penstock.errors import CorruptShard, FeedClosed
from penstock.events.quantile import p50_p99

#: Steps that are taken and not handed out yet, at most.
DEPTH_MAX = 64
#: How many waiting times are remembered.
_WAITS_MAX = 4096
#: Longest nap of a thread that waits for another; it looks again then, whether it was woken or not.
_NAP_S = 1.0
#: How long a closing feed waits for threads that are inside a user's function.
_JOIN_S = 30.0


#: What stands for a step: its batch, the reason why there is none, or None after the last step.
_Outcome = Batch | BaseException | None
#: A step to finish: which one since the feed was opened, and what Rust made of it.
_Task = tuple[int, _rust.FeedBatch]


class PythonStage(RustPlanned):
    """Batches that Python finishes, in order. Dropping it ends the threads, as closing it does."""

    def __init__(
        self,
        feed: _rust.Feed,
        finish: Finisher,
        *,
        accept: Callable[[Batch], None],
        threads: int,
        memory_bytes: int,
    ) -> None:
        super().__init__(feed)
        #: Called for every batch that is handed out, in order; what it raises is raised instead.
        self._accept = accept
        count = min(threads, DEPTH_MAX)
        self._shared = _Shared(feed, finish, memory_bytes, WorkerCount(max(1, count)))
        self._waits: deque[float] = deque(maxlen=_WAITS_MAX)
        self._handed_out = 0
        #: When the last batch was handed out.
        self._answered = time.perf_counter()
        workers = [
            threading.Thread(
                target=_work, args=(self._shared, number), name=f"penstock-finish-{number}", daemon=True
            )
            for number in range(count)
        ]
        # Daemons, so that a feed that nobody closed does not keep the process; the finalizer also runs before the end.
        self._finalizer = weakref.finalize(self, _stop, self._shared, workers, os.getpid())
        self._threaded = bool(workers)
        for worker in workers:
            worker.start()

    def next(self) -> Batch | None:
        """The next batch, or None at the end, which stays. After an error, asking again tries the same step again."""
        begun = time.perf_counter()
        outcome = self._shared.wait_next() if self._threaded else self._shared.finish_here()
        if isinstance(outcome, BaseException):
            self._shared.try_again()
            raise outcome
        if outcome is None:
            return None
        try:
            self._accept(outcome)
        except Exception as problem:
            self._shared.stay(problem)
            raise
        self._shared.give()
        self._handed_out += 1
        now = time.perf_counter()
        self._waits.append(now - begun)
        if self._threaded:
            self._shared.answered(begun - self._answered, now - begun)
            self._answered = now
        return outcome

    def ready(self) -> int:
        """Batches that are finished and wait."""
        return self._shared.ready

    def waits(self) -> Waits:
        """How often and how long the consumer waited."""
        return Waits(self._handed_out, self._shared.ready, list(self._waits))

    def stage(self) -> str:
        """What is waited for: ``finish`` when a step is being finished, else what Rust does."""
        return "finish" if self._shared.busy else self.planned.stage()

    def stage_times(self) -> StageTimes:
        """How long planning, reading and hashing in Rust took, and the maps of the recipe."""
        return StageTimes(*self.planned.stage_times(), map_s=self._shared.finisher.map_s())

    def stage_spread(self) -> dict[str, Spread]:
        """How long planning in Rust and finishing in Python take; reading and hashing are part of finishing."""
        plan = Spread(*self.planned.stage_spread()["plan"])
        return {"plan": plan, "finish": Spread(*p50_p99(list(self._shared.took)))}

    def sharing(self) -> Sharing | None:
        """What this process is for others that finish the same steps; None when they are not shared."""
        return self._shared.finisher.sharing()

    def close(self) -> None:
        """End the threads."""
        self._finalizer()


class _Shared:
    """What the consumer and the threads share; it does not know the consumer, who can therefore be forgotten."""

    def __init__(
        self,
        feed: _rust.Feed,
        finish: Finisher,
        memory_bytes: int,
        count: WorkerCount,
    ) -> None:
        self.feed = feed
        self.finisher = finish
        self._count = count
        #: How long the last steps took to finish, and how many are being finished.
        self.took: deque[float] = deque(maxlen=_WAITS_MAX)
        self.busy = 0
        self._memory_bytes = memory_bytes
        #: Held while the next step is taken from Rust, so that steps are numbered in their order.
        self._taking = threading.Lock()
        #: Guards everything below; notified whenever any of it changes.
        guard = threading.RLock()
        self._changed = threading.Condition(guard)
        #: Threads that are not needed now wait here, where batches that come and go do not wake them.
        self._needed = threading.Condition(guard)
        self._taken = 0
        self._handed_out = 0
        self._outcomes: dict[int, _Outcome] = {}
        #: Steps that could not be finished, and those of them that have to be finished again; each as Rust made it.
        self._failed: dict[int, _rust.FeedBatch] = {}
        self._again: deque[_Task] = deque()
        #: What the caller's own thread is about to finish, where there is no other.
        self._begun: _Task | None = None
        self._waiting_bytes = 0
        #: The largest batch so far; unknown until the first is finished, and until then nobody begins a second one.
        self._largest_bytes: int | None = None
        #: No further steps are taken once the stream has ended, and while an error waits to be told.
        self._ended = False
        self._halted = False
        #: The answer from now on, whatever is asked.
        self._final: BaseException | None = None
        self._closed = False

    @property
    def ready(self) -> int:
        """Batches that are finished and wait."""
        with self._changed:
            return sum(not isinstance(outcome, BaseException | None) for outcome in self._outcomes.values())

    def wait_task(self, worker: int) -> bool:
        """Waits until there may be something to do for a worker; False when there is nothing more."""
        with self._changed:
            while not self._closed:
                if self._ended and not self._failed and not self._again:
                    return False
                if worker >= self._count.allowed:
                    self._needed.wait(_NAP_S)
                elif self._again or self._may_take():
                    return True
                else:
                    self._changed.wait(_NAP_S)
            return False

    def take(self) -> _Task | None:
        """A step to finish; None when there is none now."""
        with self._changed:
            if self._again:
                return self._again.popleft()
        with self._taking:
            with self._changed:
                if self._closed or not self._may_take():
                    return None
                number = self._taken
                self._taken += 1
            return self._next_batch(number)

    def _next_batch(self, number: int) -> _Task | None:
        try:
            rust_batch = self.feed.next()
        except Exception as problem:  # noqa: BLE001 - it is raised at its step, by whoever asks for that
            self.put(number, problem)
            return None
        if rust_batch is None:
            self.put(number, None)
            return None
        return number, rust_batch

    def _may_take(self) -> bool:
        return not self._ended and not self._halted and self._has_room()

    def _has_room(self) -> bool:
        ahead = self._taken - self._handed_out
        if ahead == 0 or self._largest_bytes is None:
            return ahead == 0
        unfinished = ahead - len(self._outcomes)
        expected = self._waiting_bytes + (unfinished + 1) * self._largest_bytes
        return ahead < DEPTH_MAX and expected <= self._memory_bytes

    def finish(self, number: int, rust_batch: _rust.FeedBatch) -> None:
        """Finish a step and keep what comes of it until its turn."""
        begun, used = time.perf_counter(), time.thread_time()
        self.busy += 1
        self._count.begin()
        # Damage then names the steps that its shard was read for.
        _rust.read_for_step(rust_batch.step)
        try:
            self.put(number, self.finisher(rust_batch))
        except CorruptShard as problem:
            self.fail(number, rust_batch, problem.before_step(rust_batch.step))
        except Exception as problem:  # noqa: BLE001 - it is raised at its step, by whoever asks for that
            self.fail(number, rust_batch, problem)
        finally:
            _rust.read_for_step(None)
            self.busy -= 1
            self.took.append(time.perf_counter() - begun)
            if self._count.end(time.thread_time() - used):
                self._call_workers()

    def fail(self, number: int, rust_batch: _rust.FeedBatch, problem: BaseException) -> None:
        """A step could not be finished; it is kept, in case that it can later."""
        with self._changed:
            self._failed[number] = rust_batch
            self.put(number, problem)

    def put(self, number: int, outcome: _Outcome) -> None:
        with self._changed:
            if self._closed:
                return
            self._outcomes[number] = outcome
            if outcome is None:
                self._ended = True
            elif isinstance(outcome, BaseException):
                self._halted = True
            else:
                self._waiting_bytes += outcome.size_bytes
                self._largest_bytes = max(self._largest_bytes or 0, outcome.size_bytes)
            self._changed.notify_all()

    def try_again(self) -> None:
        """The consumer was told of an error. Others may have met what caused it too: all steps that failed are tried again."""
        with self._changed:
            if self._closed or self._final is not None:
                return
            for number in sorted(n for n, o in self._outcomes.items() if isinstance(o, BaseException)):
                del self._outcomes[number]
                rust_batch = self._failed.pop(number, None)
                if rust_batch is not None:
                    self._again.append((number, rust_batch))
                else:
                    # Rust has not made it, and nobody took one after it.
                    self._taken = number
            self._halted = False
            self._changed.notify_all()

    def answered(self, away_s: float, waited_s: float) -> None:
        """The consumer had a batch; it was away before it asked, and waited."""
        if self._count.answered(away_s, waited_s):
            self._call_workers()

    def _call_workers(self) -> None:
        with self._needed:
            self._needed.notify_all()

    def wait_next(self) -> _Outcome:
        """What comes next, once it is there; finished by the caller's own thread where no other is needed."""
        with self._changed:
            while not self._closed and self._handed_out not in self._outcomes:
                if self._count.allowed == 0 and self._taken - self._handed_out == len(self._outcomes) + len(
                    self._again
                ):
                    break
                self._changed.wait(_NAP_S)
            else:
                return self._answer()
        return self.finish_here()

    def finish_here(self) -> _Outcome:
        """What comes next, finished by the caller's own thread."""
        if self._handed_out not in self._outcomes and not self._closed:
            # Kept until it is done, since the caller may be interrupted (Ctrl-C) and ask again.
            self._begun = self._begun or self.take()
            if self._begun is not None:
                self.finish(*self._begun)
                self._begun = None
        with self._changed:
            return self._answer()

    def _answer(self) -> _Outcome:
        if self._closed:
            return FeedClosed(reason="it was closed")
        return self._outcomes[self._handed_out] if self._final is None else self._final

    def give(self) -> None:
        """The batch that comes next was handed out."""
        with self._changed:
            outcome = self._outcomes.pop(self._handed_out)
            assert outcome is not None
            assert not isinstance(outcome, BaseException)
            self._waiting_bytes -= outcome.size_bytes
            self._handed_out += 1
            self._changed.notify_all()

    def stay(self, problem: BaseException) -> None:
        """Answer with this from now on."""
        with self._changed:
            self._final = problem
            self._ended = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let threads end and forget what waits."""
        with self._changed:
            self._closed = True
            self._outcomes.clear()
            self._failed.clear()
            self._again.clear()
            self._changed.notify_all()
            self._needed.notify_all()
        self.feed.close()
        # Others that finish the same steps find another to ask.
        self.finisher.close()


def _work(shared: _Shared, worker: int) -> None:
    while shared.wait_task(worker):
        if (task := shared.take()) is None:
            continue
        try:
            shared.finish(*task)
        except BaseException as problem:  # noqa: BLE001 - a thread that died of it would leave the consumer waiting
            shared.fail(*task, problem)
        # Otherwise the last batch would live in this frame for as long as the thread waits for room.
        del task


def _stop(shared: _Shared, workers: list[threading.Thread], process: int) -> None:
    # In the child of a fork there are no threads, and locks may be held by nobody.
    if os.getpid() != process:
        return
    shared.close()
    deadline = time.monotonic() + _JOIN_S
    for worker in workers:
        if worker is not threading.current_thread():
            worker.join(max(0.0, deadline - time.monotonic()))
