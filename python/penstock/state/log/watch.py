"""Watch: a thread that looks into the log now and then, so that an incarnation that was replaced hears of it within seconds.

Without it a job that was fenced trains on until its next save. The thread also answers whoever wants to repair the place: a repair
puts a question, and an incarnation that is at work says so.
"""

import logging
import threading
import uuid

from penstock import events
from penstock.errors import Fenced, PenstockError, PlaceInUse
from penstock.state.log.incarnation import check_newest
from penstock.state.log.log import Log
from penstock.state.ranks.clock import Clock, Wait
from penstock.store import Store

#: How often the log is read.
PERIOD_S = 10.0
_LOG = logging.getLogger("penstock.state")


class Watch:
    """The watch of one rank, from the beginning of its incarnation until ``stop`` or the end of the process."""

    def __init__(self, log: Log, incarnation: int, *, answers: bool, period_s: float) -> None:
        self._log, self._incarnation, self._answers, self._period_s = log, incarnation, answers, period_s
        self._stopped = threading.Event()
        #: Why this incarnation may not write any more, once that is known. Set by the thread alone.
        self.fenced: Fenced | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            try:
                check_newest(self._log.read(), self._incarnation, self._log.store.url)
                if self._answers:
                    _answer(self._log.store, self._incarnation)
            except Fenced as problem:
                events.record("state.fenced", incarnation=self._incarnation, reason=str(problem))
                self.fenced = problem
                return
            except PenstockError as problem:
                # A store that does not answer now may answer the next time; a save would say what is wrong.
                _LOG.debug("the log cannot be read: %s", problem)


def ask_for_life(store: Store, *, patience_s: float, clock: Clock | None = None) -> None:
    """Raise ``PlaceInUse`` if an incarnation that is at work in a place says so within a time."""
    question = uuid.uuid4().hex
    answers = f"repair/answers/{question}"
    if patience_s <= 0:
        return
    store.put_if_absent(f"repair/questions/{question}.json", b"{}")
    try:
        wait = Wait(patience_s, clock or Clock())
        while True:
            for entry in store.entries(answers):
                incarnation = entry.name.rpartition("/")[2].removesuffix(".json")
                raise PlaceInUse(place=store.url, incarnation=int(incarnation))
            if not wait.again():
                return
    finally:
        store.delete(f"repair/questions/{question}.json")
        for entry in list(store.entries(answers)):
            store.delete(entry.name)


def _answer(store: Store, incarnation: int) -> None:
    for entry in store.entries("repair/questions"):
        question = entry.name.rpartition("/")[2].removesuffix(".json")
        store.put_if_absent(f"repair/answers/{question}/{incarnation}.json", b"{}")
