"""How many threads finish steps at once, decided by what they use of the processors. Time is simulated: no clock, no threads."""

import heapq
from collections.abc import Callable

import pytest

from penstock.data.feed.worker_count import WINDOW, WorkerCount


class Workers:
    """Threads that finish steps as long as they are allowed to, in simulated time.

    Of every step some seconds are Python (one thread at a time), some are work beside the GIL, and some are waiting.
    """

    def __init__(self, threads: int) -> None:
        self.now = 0.0
        self.count = WorkerCount(threads, now=lambda: self.now)
        #: When the GIL is free again.
        self._free = 0.0
        self._ends: list[tuple[float, float]] = []

    def finish(
        self, steps: int, *, python: float = 0.0, beside: float = 0.0, waiting: float = 0.0, away: float = 0.0
    ) -> float:
        """Let steps be finished for a consumer that is away for a while after each; how many are allowed at once, on average."""
        allowed = 0
        for _ in range(steps):
            asked = self.now
            # At none, the consumer does it.
            while len(self._ends) < max(1, self.count.allowed):
                self.count.begin()
                self._free = max(self._free, self.now) + python
                heapq.heappush(self._ends, (self._free + beside + waiting, python + beside))
            self.now, used = heapq.heappop(self._ends)
            self.count.end(used)
            self.count.answered(away, self.now - asked)
            self.now += away
            allowed += self.count.allowed
        return allowed / steps


@pytest.mark.parametrize("threads", [2, 4, 16])
def test_threads_that_only_take_the_gil_from_each_other_become_one_or_none(threads: int) -> None:
    """Goal: nothing is lost by handing over; now and then all are tried. Method: steps that are Python alone, for a consumer that
    has a little work of its own, or none."""
    workers = Workers(threads)
    workers.finish(8 * WINDOW, python=0.001, away=0.0002)
    assert 1 <= workers.finish(2000 * WINDOW, python=0.001, away=0.0002) < 1.2
    assert workers.finish(2000 * WINDOW, python=0.001) < 0.2


@pytest.mark.parametrize(
    "step",
    [
        {"waiting": 0.01},
        {"beside": 0.01},
        {"python": 0.001, "waiting": 0.02},
        {"python": 0.001, "beside": 0.01},
    ],
)
def test_threads_that_wait_or_work_beside_the_gil_stay_all(step: dict[str, float]) -> None:
    workers = Workers(4)
    assert workers.finish(1000 * WINDOW, **step) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda workers: workers.finish(64 * WINDOW, waiting=0.01),
        lambda workers: workers.finish(64 * WINDOW, beside=0.01),
    ],
)
def test_what_changes_is_noticed(change: Callable[[Workers], float]) -> None:
    """Goal: the store becomes slow, or images follow text. Method: Python alone until one is left, then something else."""
    workers = Workers(4)
    workers.finish(8 * WINDOW, python=0.001)
    assert workers.count.allowed == 0
    change(workers)
    assert workers.count.allowed == 4
    workers.finish(64 * WINDOW, python=0.001)
    assert workers.count.allowed == 0


def test_a_consumer_that_begins_to_work_has_a_thread_at_once() -> None:
    """Goal: training that begins after a warm-up is not slowed. Method: one pause of 10 ms, ten steps long."""
    workers = Workers(4)
    workers.finish(8 * WINDOW, python=0.001)
    assert workers.count.allowed == 0
    workers.finish(2, python=0.001, away=0.01)
    assert workers.count.allowed == 1


def test_one_thread_is_one() -> None:
    workers = Workers(1)
    assert workers.finish(64 * WINDOW, waiting=0.01) == 1


def test_threads_that_have_little_to_do_are_not_judged() -> None:
    """Goal: a consumer that is never kept waiting says nothing of the threads. Method: Python alone, and training that takes longer."""
    workers = Workers(4)
    assert workers.finish(64 * WINDOW, python=0.001, away=0.05) == 4
