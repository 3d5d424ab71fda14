"""What a worker says about its progress, and what it is told: ``pulse(step)`` once a step.

The worker's slot of the job's file of pulses is mapped, and a pulse is one copy into it: about two microseconds and no system
call. Outside a job all of this does nothing. The first process of a worker that pulses owns the slot; its children,
forked or started, do not write into it.
"""

import os
import struct
import time
from mmap import mmap
from types import TracebackType
from typing import NamedTuple

from penstock.errors.root import UsageError
from penstock.process.watch.pulse_file import (
    HEADER,
    KINDS,
    LISTENS,
    NOTICE,
    NUMBER,
    PHASE_BYTES,
    PROGRESS,
    RECORD_BYTES,
    SLOT_BYTES,
    STANDING,
    parsed,
    sealed,
    slots_of,
    whole,
)

#: How many steps of a life say nothing about the later ones: they compile, allocate and fill caches.
UNTYPICAL_STEPS = 2
#: The phase of who was asked to stop and has saved: a little time is left for its end.
LEAVING = "leaving"
_clock = time.clock_gettime_ns
_BOOT = time.CLOCK_BOOTTIME


class Notice(NamedTuple):
    """What the supervision asks this worker to do."""

    #: ``stop``: save and leave before the deadline. ``save``: save and go on.
    kind: str
    reason: str
    #: As ``time.time()`` counts; infinite without a deadline.
    leave_by: float
    #: Grows with every notice of a life.
    number: int
    #: The same for who is in phase ``checkpoint`` then.
    save_by: float = float("inf")

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline, never less than 0."""
        return max(0.0, self.leave_by - time.time())


class _Slot:
    """The place of a process in the file of pulses."""

    def __init__(self, memory: mmap, place: int, incarnation: int) -> None:
        self._memory = memory
        self._record = slice(place, place + RECORD_BYTES)
        self._notice = slice(place + RECORD_BYTES, place + SLOT_BYTES)
        self._number = slice(place + NUMBER.start, place + NUMBER.stop)
        self._incarnation = incarnation
        self._pid = os.getpid()
        self._beats = self._step = self._steps = 0
        self._step_at = self._step_ns = self._typical = self._longest = 0
        self._since = _clock(_BOOT)
        #: The phase that a block or a call has set; pulses outside of one are steps.
        self.phase: str | None = None
        self._word = "start"
        self._phase = b"start"
        #: Nothing but a step lies between the last pulse and now.
        self._plain = False
        self._flags = 0
        self._seen = b"\0\0\0\0"
        self._last_notice: Notice | None = None
        self._stand()
        self._write()

    def beat(self, step: int, phase: str | None, flags: int) -> Notice | None:
        now = _clock(_BOOT)
        word = phase or self.phase or "step"
        if word != self._word:
            self._turn(word, now)
        if flags != self._flags:
            self._flags = flags
            self._stand()
        if self._plain:
            self._measure(now - self._step_at)
        self._plain = True
        self._step, self._step_at = step, now
        self._steps += 1
        try:
            self._write()
        except struct.error as problem:
            self._step = 0
            raise UsageError(f"a step must be a whole number from 0, got {step!r}") from problem
        return self._last_notice if self._memory[self._number] == self._seen else self._look()

    def turn(self, word: str | None) -> None:
        """Begins a phase; without a word, whatever pulses say."""
        self.phase = word
        latest = self.notice()
        if word is None and self._word == "checkpoint" and latest is not None and latest.kind == "stop":
            # The save that was waited for is over; who goes on with steps says so with the next one.
            word = LEAVING
        self._turn(word or "step", _clock(_BOOT))
        self._write()

    def notice(self) -> Notice | None:
        return self._last_notice if self._memory[self._number] == self._seen else self._look()

    def _measure(self, took: int) -> None:
        self._step_ns = took
        if self._steps <= UNTYPICAL_STEPS:
            return
        self._longest = max(self._longest, took)
        usual = self._typical
        # A step of an hour must not make the next hang invisible: one step moves the usual time by an eighth at most.
        self._typical = usual + (min(max(took, usual // 2), 2 * usual) - usual) // 8 if usual else took

    def _turn(self, word: str, now: int) -> None:
        phase = _encoded(word)
        self._word, self._phase, self._since, self._plain = word, phase, now, False
        self._stand()

    def _stand(self) -> None:
        number = self._last_notice.number if self._last_notice else 0
        self._standing = STANDING.pack(
            self._since, self._pid, self._incarnation, self._flags, number, self._phase
        )

    def _write(self) -> None:
        self._beats += 1
        progress = PROGRESS.pack(
            self._beats,
            self._step,
            self._steps,
            self._step_at,
            self._step_ns,
            self._typical,
            self._longest,
        )
        self._memory[self._record] = sealed(progress + self._standing)

    def _look(self) -> Notice | None:
        half = self._memory[self._notice]
        # Being written at this moment: the next pulse sees it.
        if not whole(half):
            return self._last_notice
        deadline_ns, number, kind, reason, save_by_ns = NOTICE.unpack(half[:-4])
        offset_s = time.time() - _clock(_BOOT) / 1e9
        self._last_notice = Notice(
            KINDS.get(kind, "stop"),
            reason.rstrip(b"\0").decode(errors="replace"),
            offset_s + deadline_ns / 1e9 if deadline_ns else float("inf"),
            number,
            offset_s + max(save_by_ns, deadline_ns) / 1e9 if deadline_ns else float("inf"),
        )
        self._seen = number.to_bytes(4, "little")
        # That it was seen is told to the supervision.
        self._stand()
        self._write()
        return self._last_notice


class _Nowhere:
    """The slot of a process that has none."""

    phase: str | None = None

    def beat(self, step: int, phase: str | None, flags: int) -> Notice | None:
        return None

    def turn(self, word: str | None) -> None:
        self.phase = word

    def notice(self) -> Notice | None:
        return None


_slot: _Slot | _Nowhere | None = None


def pulse(step: int, *, phase: str | None = None, heed: bool = True) -> Notice | None:
    """Say that this step is reached; call it once a step. What comes back asks to save or to leave, if anything does.

    ``phase`` says what this is; without it the phase that a ``with phase(…)`` around this set, else ``step``. Who pulses is believed to
    look at what comes back, and is given time to leave before SIGTERM; who does not says ``heed=False``.
    """
    return (_slot or _opened()).beat(step, phase, LISTENS if heed else 0)


def notice() -> Notice | None:
    """What the supervision asks this worker to do; nothing as long as it asks nothing."""
    return (_slot or _opened()).notice()


class phase:  # noqa: N801 - used like a function
    """Say what the worker is doing: ``with phase("checkpoint"): …``, or ``phase("eval")`` until it is set again.

    Phases have times of their own: a long checkpoint is no hang. ``phase(None)`` goes back to plain steps.
    """

    def __init__(self, name: str | None) -> None:
        if name is not None:
            _encoded(name)
        slot = _slot or _opened()
        self._before = slot.phase
        slot.turn(name)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (_slot or _opened()).turn(self._before)


def _encoded(word: str) -> bytes:
    encoded = word.encode()
    if not 0 < len(encoded) <= PHASE_BYTES or "\0" in word:
        raise UsageError(f"a phase must be a word of 1 to {PHASE_BYTES} bytes, got {word!r}")
    return encoded


def _opened() -> _Slot | _Nowhere:
    """The slot of this process, found at its first pulse: a warm process forks workers that have imported this already."""
    global _slot
    _slot = _own_slot() or _Nowhere()
    return _slot


def _own_slot() -> _Slot | None:
    path, _, slot = os.environ.get("PENSTOCK_PULSES", "").rpartition(":")
    if not path or not slot.isdecimal():
        return None
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        slots = slots_of(os.pread(file, HEADER.size, 0))
        if int(slot) >= slots or os.fstat(file).st_size < (slots + 1) * SLOT_BYTES:
            return None
        memory = mmap(file, (slots + 1) * SLOT_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)
    place = (int(slot) + 1) * SLOT_BYTES
    life = os.environ.get("PENSTOCK_INCARNATION", "0")
    incarnation = int(life) if life.isdecimal() else 0
    before = parsed(memory[place : place + RECORD_BYTES])
    if before is not None and before.incarnation == incarnation and _others(before.pid):
        return None
    return _Slot(memory, place, incarnation)


def _others(pid: int) -> bool:
    """Whether the slot is a living relative's."""
    return pid != os.getpid() and os.path.exists(f"/proc/{pid}")


def _leave() -> None:
    global _slot
    if _slot is not None:
        _slot = _Nowhere()


os.register_at_fork(after_in_child=_leave)
