"""The memory of captures: a few arenas, prepared in the background and used again; a capture waits until one is free.

Touching and pinning memory takes longer than copying to it, so it is done once, before it is needed where somebody says in time
how much that will be (``prepare``). The budget is kept: there are never more arenas than it allows.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from penstock import _rust, events
from penstock.errors import SaveFailed
from penstock.state.contract import Mover
from penstock.state.load.host_mover import THREADS

#: How long preparing waits for a capture that is being written.
_PREPARE_S = 600.0


@dataclass(slots=True)
class Arena:
    """Memory for one capture."""

    memory: memoryview
    #: Who prepared it, to be told when it goes.
    movers: list[Mover] = field(default_factory=list)
    busy: bool = False

    def release(self) -> None:
        """Give the memory back."""
        for mover in self.movers:
            mover.release(self.memory)
        self.movers.clear()


class Arenas:
    """A few arenas, of which a capture takes one that is free."""

    def __init__(self, count: int = 1) -> None:
        self._count = count
        self._arenas: list[Arena] = []
        self._free = threading.Condition()
        #: Preparing is serial, and apart from saving.
        self._preparer = ThreadPoolExecutor(1, thread_name_prefix="penstock-arena")
        self._preparing: Future[None] | None = None
        self._closing = False

    def prepare(self, bytes_: int, movers: list[Mover]) -> None:
        """Have memory for captures of this size soon; returns at once."""
        with self._free:
            if self._preparing is None or self._preparing.done():
                self._preparing = self._preparer.submit(self._prepare, bytes_, movers)

    def _prepare(self, bytes_: int, movers: list[Mover]) -> None:
        with events.span("state.prepare", bytes=bytes_):
            for _ in range(self._count):
                with self._free:
                    # One that is in use and too small is replaced as soon as it is free.
                    if not self._free.wait_for(lambda: self._is_settled(bytes_), timeout=_PREPARE_S):
                        return
                    small = any(
                        not candidate.busy and len(candidate.memory) < bytes_ for candidate in self._arenas
                    )
                    if self._closing or (len(self._arenas) == self._count and not small):
                        return
                    arena = self._make(bytes_)
                    arena.busy = True
                try:
                    self._ready(arena, movers)
                finally:
                    self.give(arena)

    def _is_settled(self, bytes_: int) -> bool:
        """Whether it is known if there is something to do: memory is allowed, idle, or large enough."""
        return (
            self._closing
            or self._has_room()
            or all(len(candidate.memory) >= bytes_ for candidate in self._arenas)
        )

    def _make(self, bytes_: int) -> Arena:
        """A new arena in the place of one that is too small, or beside the others."""
        small = next((a for a in self._arenas if not a.busy and len(a.memory) < bytes_), None)
        if small is not None:
            self._arenas.remove(small)
            small.release()
        arena = Arena(memoryview(_rust.Arena(bytes_)))
        self._arenas.append(arena)
        return arena

    def _ready(self, arena: Arena, movers: list[Mover]) -> None:
        memory = arena.memory.obj
        assert isinstance(memory, _rust.Arena)
        memory.touch(THREADS)
        for mover in movers:
            if mover not in arena.movers:
                mover.prepare(arena.memory)
                arena.movers.append(mover)

    def take(self, bytes_: int, movers: list[Mover], *, step: int, deadline_s: float) -> Arena:
        """An arena of at least this size, as soon as one is free."""
        with self._free:
            if not self._free.wait_for(self._has_room, timeout=deadline_s):
                raise SaveFailed(
                    step=step,
                    reason=f"earlier captures were not written within {deadline_s:.0f} s, and memory is limited",
                    hint="save less often, or allow more captures in memory",
                )
            arena = next(
                (a for a in self._arenas if not a.busy and len(a.memory) >= bytes_), None
            ) or self._make(bytes_)
            arena.busy = True
        try:
            if any(mover not in arena.movers for mover in movers):
                self._ready(arena, movers)
        except BaseException:
            self.give(arena)
            raise
        return arena

    def _has_room(self) -> bool:
        """Whether an arena is idle, or one more is allowed."""
        return len(self._arenas) < self._count or any(not arena.busy for arena in self._arenas)

    def give(self, arena: Arena) -> None:
        """Let the next capture have it."""
        with self._free:
            arena.busy = False
            self._free.notify_all()

    def close(self) -> None:
        """Give all memory back, once nobody uses it."""
        with self._free:
            self._closing = True
            self._free.notify_all()
        self._preparer.shutdown(wait=True)
        with self._free:
            for arena in self._arenas:
                if not arena.busy:
                    arena.release()
            self._arenas = [arena for arena in self._arenas if arena.busy]
