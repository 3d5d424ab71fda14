"""Several pieces of work on one store, one store operation at a time, in an order that the test chooses.

Each actor is a thread that stops before every operation of its store until it is let go, so whatever can happen between
two operations of concurrent processes can be made to happen, and again. Between steps nothing moves.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.store import Entry, Store

#: Work that takes more turns than this does not end.
STEPS_MAX = 5000
_TIMEOUT_S = 60


class Killed(BaseException):
    """The process of this actor is gone."""


class Actor:
    """Some work with its own view of the store."""

    def __init__(self, name: str, store: Store, work: Callable[[Store], object]) -> None:
        self.name = name
        self.problem: BaseException | None = None
        self.done = False
        self._killed = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._store = Stepped(store, self._gate)
        self._thread = threading.Thread(target=self._run, args=(self._store, work), name=name)
        self._thread.start()
        self._await()

    def step(self) -> bool:
        """Let it do one operation and everything up to the next one; whether that changed the store."""
        before = self._store.changes
        self._go.release()
        self._await()
        return self._store.changes != before

    def kill(self) -> None:
        """End it before its next operation."""
        self._killed = True
        self.step()

    def _await(self) -> None:
        assert self._stopped.acquire(timeout=_TIMEOUT_S), f"{self.name} hangs"

    def _gate(self) -> None:
        self._stopped.release()
        assert self._go.acquire(timeout=_TIMEOUT_S), f"{self.name} was forgotten"
        if self._killed:
            raise Killed

    def _run(self, store: "Stepped", work: Callable[[Store], object]) -> None:
        try:
            self._gate()
            work(store)
        except Killed:
            pass
        except (PenstockError, AssertionError) as problem:
            self.problem = problem
        finally:
            self.done = True
            self._stopped.release()


class Stepped:
    """A real store with a gate before every operation."""

    def __init__(self, store: Store, gate: Callable[[], None]) -> None:
        self._store, self._gate = store, gate
        self.url = store.url
        self.changes = 0

    def get(self, name: str) -> bytes:
        self._gate()
        return self._store.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._gate()
        return self._store.get_range(name, start, length)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._gate()
        self.changes += 1
        return self._store.put_if_absent(name, data)

    def replace(self, name: str, data: bytes) -> None:
        self._gate()
        self.changes += 1
        self._store.replace(name, data)

    def describe(self, name: str) -> Entry:
        self._gate()
        return self._store.describe(name)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        self._gate()
        yield from list(self._store.entries(prefix))

    def delete(self, name: str) -> None:
        self._gate()
        self.changes += 1
        self._store.delete(name)

    def local_path(self, name: str) -> Path | None:
        return self._store.local_path(name)


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is, for how many operations, and whether it is killed then."""

    actor: int
    operations: int
    kills: bool = False


def interleave(
    actors: list[Actor], turns: list[Turn], *, killable: set[str], after_change: Callable[[], None]
) -> None:
    """Run actors to their end: first in the given turns, then in turns of one operation."""
    try:
        for number in range(STEPS_MAX):
            running = [actor for actor in actors if not actor.done]
            if not running:
                return
            turn = turns[number] if number < len(turns) else Turn(number, 1)
            actor = running[turn.actor % len(running)]
            for _ in range(turn.operations):
                if not actor.done and actor.step():
                    after_change()
            if turn.kills and actor.name in killable and not actor.done:
                actor.kill()
        raise AssertionError(f"not done after {STEPS_MAX} turns: {[a.name for a in actors if not a.done]}")
    finally:
        for actor in actors:
            if not actor.done:
                actor.kill()
