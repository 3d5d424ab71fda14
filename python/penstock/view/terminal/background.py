"""What takes time is done in threads, one for each kind of work, and only the newest of a kind counts.

Keys are answered meanwhile, and whoever leaves does not wait: the threads end with the process. Reading is safe to abandon, since views
do not write; a plan that is being measured is taken up again by the next one who opens it.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from textual.message import Message
from textual.message_pump import MessagePump

from penstock.errors import NameUnwritable, PenstockError


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Something to do in a thread, and what to do with the result afterwards."""

    #: What kind of work; a newer one of the same kind replaces it.
    slot: str
    work: Callable[[], Any]
    then: Callable[[Any], object]


class Loaded(Message):
    """A request is done."""

    def __init__(self, request: Request, result: Any, problem: Exception | None) -> None:
        super().__init__()
        self.request = request
        self.result = result
        self.problem = problem


class Loader:
    """Does requests for one page."""

    def __init__(self, page: MessagePump) -> None:
        self._page = page
        self._lock = threading.Lock()
        self._waiting: dict[str, Request] = {}
        self._busy: set[str] = set()
        #: The newest request of every kind that has not come back.
        self._newest: dict[str, Request] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is awaited."""
        return not self._newest

    def ask(self, slot: str, work: Callable[[], Any], then: Callable[[Any], object]) -> None:
        """Do some work in a thread; ``then`` is called with its result, on the page, unless newer work was asked for."""
        request = Request(slot, work, then)
        self._newest[slot] = request
        with self._lock:
            self._waiting[slot] = request
            if slot in self._busy:
                return
            self._busy.add(slot)
        threading.Thread(target=self._run, args=(slot,), name=f"penstock-view-{slot}", daemon=True).start()

    def deliver(self, loaded: Loaded) -> PenstockError | OSError | None:
        """Hand a result over; a problem that has a sentence is returned, any other is raised."""
        request = loaded.request
        if self._newest.get(request.slot) is not request:
            return None
        del self._newest[request.slot]
        if isinstance(loaded.problem, PenstockError | OSError):
            return loaded.problem
        if loaded.problem is not None:
            raise loaded.problem
        request.then(loaded.result)
        return None

    def _run(self, slot: str) -> None:
        while True:
            with self._lock:
                request = self._waiting.pop(slot, None)
                if request is None:
                    self._busy.discard(slot)
                    return
            result: Any = None
            problem: Exception | None = None
            try:
                result = request.work()
            except UnicodeEncodeError as reason:
                problem = NameUnwritable(name=reason.object, encoding=reason.encoding)
            except Exception as reason:  # noqa: BLE001 - it is raised again where the result is delivered
                problem = reason
            # The application may have ended meanwhile, and its loop with it.
            with suppress(RuntimeError):
                self._page.post_message(Loaded(request, result, problem))
