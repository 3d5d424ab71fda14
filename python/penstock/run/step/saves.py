"""When a run saves, and what of its checkpoints is in the journal."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock import events
from penstock.errors import PenstockError, SaveFailed
from penstock.run.contract import Trainable
from penstock.run.journal.journal import Journal
from penstock.run.policies import Policy, Verdict
from penstock.state import Checkpoints, Pending

_log = logging.getLogger("penstock.run")


@dataclass(frozen=True, slots=True)
class Late:
    """What is known of a step only when all of its values were looked at."""

    entries: dict[str, Any]
    metrics: dict[str, float]


class CalledOff(Exception):
    """A save is not wanted, because the step before it is undone."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Saving:
    """The saves of one life. Only rank 0 journals."""

    def __init__(self, checkpoints: Checkpoints, state: Trainable, policy: Policy, journal: Journal) -> None:
        self.checkpoints = checkpoints
        self._state = state
        self._policy = policy
        self._journal = journal
        self._under_way: list[Pending] = []
        self._committed: set[int] = set()
        #: Hears of every checkpoint that was committed, by the step before which it stands.
        self.committed: Callable[[int], None] = lambda step: None
        self._is_postponed = False
        #: Names of metrics that were committed in this life.
        self._metrics: set[str] = set()
        #: The step that was saved last, if any was in this life.
        self.saved: int | None = None
        self._clock = time.monotonic()
        #: Why a save failed that must not be passed over, if one did.
        self.failed: BaseException | None = None

    def due(self, step: int) -> bool:
        """Whether the policy wants a checkpoint before a step, by the step's number. The same on all ranks."""
        every = self._policy.save_every
        wanted = step in self._policy.save_at or (every is not None and step % every == 0)
        return wanted and step != self.saved

    def wanted(self, step: int, *, late: bool, busy: bool) -> bool:
        """Whether to save now, by number or clock. While an earlier capture is being written, training waits for it, or the save does."""
        wanted = late or self.due(step) or self._is_postponed
        self._is_postponed = wanted and busy and self._policy.when_busy == "postpone"
        return wanted and not self._is_postponed

    def is_busy(self) -> bool:
        """Whether an earlier capture is still being written."""
        return any(not pending.done() for pending in self._under_way)

    def late(self) -> bool:
        """Whether it wants one by the clock. Ranks have clocks of their own, so that of rank 0 counts."""
        limit_s = self._policy.save_every_s
        return limit_s is not None and time.monotonic() - self._clock >= limit_s

    def save(self, step: int, late: Callable[[], Late], why: str) -> Pending:
        """Capture, and go on. What is ``late`` is asked for when the copies are launched: it may wait for the device, which has work
        meanwhile, and may call the save off by raising.
        """
        collected = Late({}, {})
        waited_s = 0.0

        def entries() -> dict[str, Any]:
            nonlocal collected, waited_s
            began = time.perf_counter()
            collected = late()
            self._metrics |= collected.metrics.keys()
            waited_s = time.perf_counter() - began
            return collected.entries

        with events.span("run.capture", step=step, why=why):
            pending = self.checkpoints.save(step, self._state, entries, metrics=lambda: collected.metrics)
        # Waiting for the device's own work holds nobody up.
        pending.blocked_s -= waited_s
        self._under_way.append(pending)
        self.saved = step
        self._clock = time.monotonic()
        return pending

    def restored(self, step: int) -> None:
        """What is there now was loaded."""
        self.saved = step
        self._committed.add(step)
        # The life that wrote it may have died before it heard that it exists.
        self.committed(step)
        self._clock = time.monotonic()

    def is_failing(self) -> bool:
        """Whether training must not go on unsaved: a save has failed, or another incarnation has taken over. Asks nobody."""
        if self.failed is None:
            try:
                self.checkpoints.check()
            except (PenstockError, OSError, RuntimeError) as problem:
                self.failed = problem
        return self.failed is not None

    def raise_failed(self, step: int, ranks: tuple[int, ...]) -> NoReturn:
        """A save failed, here or elsewhere: all ranks know after the same step, and nobody trains on without being saved."""
        if self.failed is not None:
            raise self.failed
        raise SaveFailed(
            step=step,
            reason=f"rank {', '.join(map(str, ranks))} could not save",
            hint="the journal of that rank says why",
        )

    def is_committed(self, step: int) -> bool:
        """Whether the checkpoint before a step exists."""
        return step in self._committed

    def note(self) -> None:
        """Put into the journal what has ended by now."""
        if not self._under_way:
            return
        ended = [entry for entry in self._under_way if entry.done()]
        self._under_way = [entry for entry in self._under_way if not entry.done()]
        for pending in ended:
            self._journalled(pending)

    def end(self) -> None:
        """The life ends. A best checkpoint that nothing was logged for is told once: it would be missed when it is needed."""
        self.note()
        best = None if self._policy.keep is None else self._policy.keep.best
        if self._state.rank or best is None or len(self._committed) < 2 or best.metric in self._metrics:
            return
        with suppress(PenstockError, OSError):
            if not any(best.metric in checkpoint.metrics for checkpoint in self.checkpoints.list()):
                _log.warning(
                    "no checkpoint has the metric %r that Keep(best=…) goes by: log it on rank 0, run.log(%s=…), before a save",
                    best.metric,
                    best.metric,
                )

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until every save has ended, or time is over; whether all have."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for pending in self._under_way:
            pending.ended(None if until is None else max(0.0, until - time.monotonic()))
        self.note()
        return not self._under_way

    def _journalled(self, pending: Pending) -> None:
        if pending.error is None:
            self._committed.add(pending.step)
            self.committed(pending.step)
        if self._state.rank != 0 and pending.error is None:
            return
        problem = pending.error
        # Not synced, which would wait for a busy disk: nobody acts on these lines, the log of the checkpoints is what counts.
        if problem is None:
            checkpoint = pending.wait()
            apart: dict[str, Any] = {"kept_apart": pending.kept_apart} if pending.kept_apart else {}
            self._journal.write(
                "commit",
                pending.step,
                digest=checkpoint.digest,
                number=checkpoint.number,
                bytes=checkpoint.bytes,
                written=pending.bytes_written,
                blocked_s=round(pending.blocked_s, 6),
                durable_s=round(pending.durable_s, 6),
                **apart,
            )
        else:
            hint = problem.hint if isinstance(problem, PenstockError) else None
            self._journal.write("save_failed", pending.step, reason=str(problem), hint=hint)
