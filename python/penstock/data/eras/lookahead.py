"""The lookahead: measures eras before a feed needs them, in threads of its own.

A feed reads one era while the lookahead measures the next ones: never more than two beyond the one that is read, so that a
run of an hour does not tokenise a terabyte. It starts with what the feed waits for. Several processes that read the same
recipe share the work without talking: each begins at another slice of an era, and a slice that somebody has finished is
found instead of measured.

Whatever goes wrong is kept for the consumer, who gets it at the step that needs the era; steps before that are not touched.
The threads end when the feed closes, and also when the program ends without closing it.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock import _rust, events
from penstock.errors import FeedClosed, SourceEmpty

if TYPE_CHECKING:
    from penstock.data.eras.source import EraSource, Grown

#: Eras that are measured beyond the one that is read.
AHEAD_ERAS = 2
#: How often the lookahead looks where the feed is while there is nothing to measure.
IDLE_S = 0.1


class EraLookahead:
    """Threads that measure the eras which a feed will need next."""

    def __init__(
        self,
        feed: _rust.Feed | _rust.BatchServer,
        sources: "dict[int, EraSource]",
        *,
        start: float,
        watch: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """``sources`` by their number in the feed; ``start`` from 0 to 1 says where in an era this process begins."""
        self._feed = feed
        self._sources = sources
        self._start = start
        self._watch = watch
        self._closing = threading.Event()
        self._pid = os.getpid()
        #: Packs of each era that the feed knows, by source.
        self._packs: dict[int, list[int]] = {number: [] for number in sources}
        #: Sources of which no more will be measured.
        self._failed: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="penstock-era-prefetch", daemon=False)
        self._thread.start()

    def stop(self) -> None:
        """Let the threads end soon; a slice that is being measured is left unfinished."""
        # In the child of a fork there is no thread, and the lock inside the event may be held by nobody.
        if os.getpid() == self._pid:
            self._closing.set()

    def close(self) -> None:
        """End the threads."""
        self.stop()
        self._thread.join()

    def check(self) -> None:
        """Raise when the work should end: the feed closes, or the program ends without having closed it."""
        if self._closing.is_set() or not threading.main_thread().is_alive():
            raise FeedClosed(reason="it was closed while an era was measured")

    def _run(self) -> None:
        try:
            while (number := self._next()) != -1:
                self.check()
                if number is None:
                    self._closing.wait(IDLE_S)
                else:
                    self._advance(number)
        except FeedClosed:
            return
        except BaseException as problem:  # noqa: BLE001 - a thread that died of it would leave the consumer waiting
            for number in self._sources:
                self._feed.fail_source(number, problem)

    def _next(self) -> int | None:
        """The source to go on with; None when all are far enough ahead, -1 when there is nothing left."""
        wanted = self._feed.wanted()
        open_sources = [
            number
            for number, source in self._sources.items()
            if number not in self._failed and len(self._packs[number]) < len(source.eras)
        ]
        if not open_sources:
            return -1
        ahead = {number: eras_ahead(self._packs[number], wanted[number]) for number in open_sources}
        number = min(ahead, key=ahead.__getitem__)
        return number if ahead[number] < AHEAD_ERAS else None

    def _advance(self, number: int) -> None:
        source, era = self._sources[number], len(self._packs[number])
        try:
            with events.span("data.era", source=source.alias, era=era):
                grown = source.find(era) or self._measure(number, era)
            total = sum(self._packs[number]) + grown.packs
            if era == len(source.eras) - 1 and total == 0:
                raise SourceEmpty(source=source.alias, rows=source.version.rows)
            self._feed.add_part(number, grown.part)
        except FeedClosed:
            raise
        except BaseException as problem:  # noqa: BLE001 - the feed raises it at the step that needs the era
            self._failed.add(number)
            self._feed.fail_source(number, problem)
        else:
            self._packs[number].append(grown.packs)

    def _measure(self, number: int, era: int) -> "Grown":
        source = self._sources[number]
        is_waited_for = eras_ahead(self._packs[number], self._feed.wanted()[number]) < 0
        cores = os.cpu_count() or 1
        slices = source.eras[era].slices
        done, total = 0, source.eras[era].rows
        # Who waits gets all cores; work ahead leaves half of them to the training.
        threads = cores if is_waited_for else max(1, cores // 2)
        with ThreadPoolExecutor(threads, thread_name_prefix="penstock-measure") as pool:
            for place in begun_at(len(slices), self._start):
                source.measure_slice(era, place, pool, self.check)
                done += slices[place].stop - slices[place].first
                if self._watch is not None:
                    self._watch(f"measuring era {era + 1} of {source.alias}", done, total)
        return source.finish(era)


def begun_at(count: int, start: float) -> list[int]:
    """All of ``count`` places, beginning at a share of them and coming round."""
    first = int(start * count)
    return [*range(first, count), *range(first)]


def eras_ahead(packs: Sequence[int], wanted: int) -> int:
    """How many measured eras lie beyond the one in which the last wanted row is; -1 when that is not measured."""
    end = 0
    for number, count in enumerate(packs):
        end += count
        # An era without packs holds no row, and is passed over.
        if wanted <= end and count:
            return len(packs) - 1 - number
    return -1
