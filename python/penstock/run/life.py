"""One life of a run: from joining the gang to its end. Everything that has to be closed is opened and closed here.

Order at the beginning: fence (from here no earlier life can commit), decisions of earlier lives from rank 0, the newest checkpoint that
fits the skips, the feed at its cursor. Order after a step: one exchange between ranks, then records, then saving. A decision is in
the journal before anything follows from it.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from penstock import events
from penstock.data import Cursor, SkipJournal
from penstock.data.feed.feed import cursor_at
from penstock.data.feed.options import BatchKeywords
from penstock.data.feed.prefetch import Prefetch
from penstock.data.tap.arrays import place_rings
from penstock.data.tap.feed_tap import Tap
from penstock.errors import RunStopped, SilentCorruption, UsageError
from penstock.events.points import reach
from penstock.observe.steps.recorder import recorder_of
from penstock.run.contract import Trainable
from penstock.run.journal import journal, step_records
from penstock.run.journal import life_entry as telling
from penstock.run.journal.metrics import Metrics
from penstock.run.journal.step_records import Records, StepRecord, bits, last_step
from penstock.run.policies import Verdict
from penstock.run.scalars import scalar
from penstock.run.settings import Settings
from penstock.run.start.feed_source import feed_at
from penstock.run.start.past import CURSOR, WINDOW, Past
from penstock.run.start.refusals import refuse_seed, refuse_short_memory, refuse_sizes, refuse_stopped
from penstock.run.start.run_place import life_token
from penstock.run.start.shared_facts import shared_decisions, shared_skips
from penstock.run.start.upkeep import keep_of
from penstock.run.step.garbage import Frozen
from penstock.run.step.judgement import Answer, Judge, Report, Said, number
from penstock.run.step.notices import CLOSING_S, Leave, Notice, Notices
from penstock.run.step.observation import Observation
from penstock.run.step.phases import Phases
from penstock.run.step.progress import StepProgress
from penstock.run.step.randomness import derive, seed_globals
from penstock.run.step.requests import Requests, Wish, reason_of
from penstock.run.step.rng_state import Standing
from penstock.run.step.saves import CalledOff, Late, Saving
from penstock.state import Checkpoints

_log = logging.getLogger("penstock.run")


class Life:
    """One life of a run: opens everything, runs the steps, closes everything."""

    def __init__(
        self, settings: Settings, state: Trainable, wanted: BatchKeywords, *, record: bool = True
    ) -> None:
        self.settings, self.state = settings, state
        self._wanted = wanted
        self.lane = state.lane_of(**wanted)
        self.timer = state.timer()
        self.standing = Standing(state)
        self._is_deferred = state.deferred
        self._is_prepared = False
        self._garbage = Frozen()
        self._ended = self._closed = False
        self._own_events = False
        self._notices = Notices(settings.policy.grace_s)
        self._batches: Prefetch[Any] | None = None
        self._tap: Tap | None = None
        #: The first step that was not executed yet.
        self.next_step = 0
        self._report = Report(0)
        self._answer: Answer | None = None
        #: Reports whose values are not looked at yet, because the device may still be at work on them.
        self._unjudged: deque[Report] = deque()
        self._last_loss = math.nan
        # The same on all ranks, and in no other life: no launcher names a start so that no other one has its name.
        token = life_token(state, settings.directory)
        self._checkpoints = settings.checkpoints or Checkpoints(
            settings.directory.checkpoints, keep=keep_of(settings), rank=state.rank, ranks=state.ranks
        )
        self.incarnation = self._checkpoints.begin(state, token=token)
        self._journal = journal.Journal(settings.directory.path, self.incarnation, state.rank)
        self._records = Records(
            settings.directory.path,
            self.incarnation,
            (state.rank, state.ranks),
            (self.lane.number, self.lane.of),
        )
        self._saving = Saving(self._checkpoints, state, settings.policy, self._journal)
        self._past = Past(self._checkpoints, state)
        self._metrics = Metrics(settings.directory.path, self.incarnation, state.rank)
        self._requests = Requests()
        place, repeats = settings.directory.path, settings.repeat is not None
        self.observed = Observation(
            recorder_of(place, self.incarnation, state.rank) if record and not repeats else None, state
        )
        self._metrics.seen, self._saving.committed = self.observed.scalars, self.observed.commit
        #: Why the program wants to end after this step, if it does.
        self._stopping: str | None = None
        self._to_host = getattr(state, "to_host", lambda value: value)
        self._phases = Phases(state, self.lane, settings.seed, self.observed)
        self._progress = StepProgress(state)

    @property
    def is_first(self) -> bool:
        """Whether this rank writes for all."""
        return self.state.rank == 0

    def begin(self) -> None:
        """Everything up to the first batch."""
        self._notices.open()
        directory = self.settings.directory
        if events.statistics() is None:
            events.start(directory.events(self.incarnation, self.state.rank))
            self._own_events = True
        before = shared_decisions(self.state, directory)
        self.judge = Judge(self.state, self.settings.policy, before, self.observed)
        self._skips = shared_skips(self.state, directory)
        if self.settings.repeat is None:
            # A repetition is compared, and names it.
            refuse_seed(self.settings, before)
            refuse_short_memory(self.settings.policy, self._checkpoints.keep)
            refuse_sizes(self.settings.recipe, self.lane, self.settings.gang)
        if self.is_first:
            directory.describe(telling.about(self.settings, self._checkpoints))
            directory.keep_recipe(self.settings.recipe)
            telling.begin(self._journal, self.settings, self.state, self.lane, before)
        refuse_stopped(self.settings, self._skips, before)
        self._restore("start")
        self._weights = telling.Weights(self.settings, self.next_step)
        if self._is_deferred:
            self._garbage.freeze()

    def steps(self) -> Iterator[tuple[int, Any]]:
        """Steps and their batches, until the data or the policy ends."""
        assert self._batches is not None, "it has begun"
        batches = iter(self._batches)
        stop = self.settings.policy.stop_at
        while True:
            batch = None
            self.observed.begin(self.next_step)
            if stop is None or self.next_step < stop:
                with events.span("run.data", step=self.next_step), self.observed.part("data"):
                    batch = next(batches, None)
            if batch is None or (stop is not None and batch.step >= stop):
                if not self._undo(self._judge_rest()):
                    break
                batches = iter(self._batches)
                continue
            self._begin_step(batch)
            with events.span("run.step", step=batch.step), self.observed.part("user"):
                yield batch.step, batch
            if self._end_step(batch.step):
                batches = iter(self._batches)
            self.observed.end(batch.step)
            if self._stopping is not None:
                break
        self.observed.pause()
        self._save("end")
        with self._notices.phase("checkpoint"):
            self._saving.settle()
        self._checkpoints.wait()
        self._records.end(self.next_step)

    def accept(self, loss: Any, grad_norm: Any, tokens: Any) -> bool:
        """Judge the step before the optimizer steps, where a rule may skip it; otherwise it is judged as a reported one is."""
        if self._report.is_accepted:
            raise UsageError(f"step {self._report.step} was accepted or refused already")
        self.report(loss, grad_norm, tokens)
        self._report.is_accepted = True
        if self._is_deferred and not self.judge.may_skip:
            # Every verdict that is left undoes the optimizer's step, or ends the run: the device is not waited for.
            return True
        self._answer = self._exchange(self._report, early=True)
        assert self._answer.verdict is not None, "a step was reported"
        return self._answer.verdict.action == "go"

    def report(self, loss: Any, grad_norm: Any, tokens: Any) -> None:
        """What the step gave."""
        for name, value in (("loss", loss), ("grad_norm", grad_norm), ("tokens", tokens)):
            if value is not None:
                setattr(self._report, name, self._to_host(scalar(name, value)))

    def log(self, values: dict[str, Any]) -> None:
        """Named numbers of this rank."""
        scalars = {name: self._to_host(scalar(name, value)) for name, value in values.items()}
        self._metrics.log(self._report.step, scalars)

    def save(self) -> None:
        """Save after this step, on all ranks."""
        self._requests.save()

    def stop(self, reason: str) -> None:
        """End after this step, on all ranks."""
        self._requests.stop(reason)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Something that is no part of training."""
        return self._phases.phase(name, self._report.step, self._notices, self._records, self._journal)

    def note(self, text: str, facts: dict[str, Any]) -> None:
        """Something that the program wants in the story."""
        self._journal.write("note", self._report.step, text=text, **facts)

    def _begin_step(self, batch: Any) -> None:
        step = batch.step
        reach("run.step")
        assert self._batches is not None, "the batch is of it"
        self.observed.batch(batch, self._batches)
        self._notices.pulse(step)
        if self._tap is not None:
            self._tap.show(step, batch.digest)
        if self.is_first:
            self._weights.tell(self._journal, step)
        self._report, self._answer = Report(step, batch.digest), None
        self.standing.begin()
        self._progress.begin()
        self.next_step = step + 1
        self.seed(step)

    def seed(self, step: int) -> None:
        """Every global generator, for a step."""
        seed, lane = self.settings.seed, self.lane.number
        seed_globals(seed, step=step, lane=lane)
        self.state.seed(derive(seed, "dropout", step=step, lane=lane))

    def _end_step(self, step: int) -> bool:
        """Judge, record, save, leave. Whether training went back to another step."""
        self._phases.refuse_open(step)
        self._report.stands, self._report.ended = self.standing.now(), step_records.now()
        report: Report | None = self._report
        answer = self._answer
        self._progress.end(step, reported=self._report.is_given)
        every = self.settings.policy.digest_every
        if every is not None and self.next_step % every == 0:
            self._report.parameters = self.state.digest().hex()
        if answer is None:
            self._unjudged.append(self._report)
            report = self._unjudged.popleft() if len(self._unjudged) > self._is_deferred else None
            answer = self._exchange(report, early=False)
        self._record(report, answer)
        # Values of this step may still be on their way; those of the step before are here anyway.
        self._metrics.look(step if self._is_deferred else None)
        wish = max(answer.wishes)
        scheduled = self._saving.wanted(self.next_step, late=answer.save, busy=answer.busy)
        due = bool(scheduled or answer.notice or wish)
        if self._undo(answer.verdict) or (due and self._undo(self._save(answer.why_saved))):
            self._notices.hear(answer.notice)
            self._requests.wish = max(self._requests.wish, wish)
            return True
        self._saving.note()
        if not self._is_prepared:
            # The first step has made what the optimizer keeps; memory for saving all of it is ready before it is needed.
            self._is_prepared = True
            self._checkpoints.prepare(self.state)
        if answer.failing:
            self._saving.raise_failed(self.next_step, answer.failing)
        if wish == Wish.STOP:
            self._stopping = reason_of(self.state, answer.wishes, self._requests.reason)
            if self.is_first:
                self._journal.write("stop", self.next_step, sync=True, reason=self._stopping)
        if answer.notice is not None:
            self._heed(answer.notice)
        return False

    def _judge_rest(self) -> Verdict | None:
        """Look at every value that was reported; the first verdict that wants to go back, if there is one."""
        while self._unjudged:
            report = self._unjudged.popleft()
            answer = self._exchange(report, early=False)
            self._record(report, answer)
            # Heeded after the next step.
            self._notices.hear(answer.notice)
            self._requests.wish = max(self._requests.wish, *answer.wishes)
            if answer.verdict is not None and answer.verdict.goes_back:
                return answer.verdict
        return None

    def _exchange(self, report: Report | None, *, early: bool) -> Answer:
        """One exchange with the other ranks, and what has to be written before anything follows from it."""
        said = Said(
            self._notices.take(),
            self.is_first and self._saving.late(),
            self._requests.taken(),
            self._saving.is_failing(),
            self._saving.is_busy(),
        )
        answer = self.judge.exchange(report, said, early=early)
        if report is None:
            return answer
        step, seen = report.step, answer.seen
        if answer.differing:
            reason = f"executed again, it gave other bits on rank {', '.join(map(str, answer.differing))}"
            self._decide("replayed", step, equal=False, ranks=list(answer.differing))
            problem = SilentCorruption(step=step, ranks=list(answer.differing), reason=reason)
            self._stop(problem, step, reason)
        if answer.replayed:
            self._decide("replayed", step, equal=True)
        verdict = answer.verdict
        if verdict is not None and verdict.action != "go" and not verdict.repeated:
            if verdict.goes_back:
                self._saving.settle()
                verdict = self._past.feasible(verdict, self._skips)
            if verdict.action == "stop":
                self._stop(RunStopped(step=step, reason=verdict.reason), step, verdict.reason)
            loss = math.nan if seen is None or seen.loss is None else seen.loss
            facts = {"leave_out": verdict.leave_out, "early": early, "loss_bits": bits(loss)}
            self._decide("verdict", step, action=verdict.action, reason=verdict.reason, **facts)
        return answer

    def _decide(self, kind: str, step: int, **facts: object) -> None:
        reach(f"run.{kind}")
        if self.is_first:
            self._journal.write(kind, step, sync=True, **facts)

    def _stop(self, problem: RunStopped, step: int, reason: str) -> None:
        rules, skips = self.settings.policy.identity, self._skips.digest(1 << 62)
        self._decide("verdict", step, action="stop", reason=reason, rules=rules, skips=skips)
        self.end(problem)
        raise problem

    def _record(self, report: Report | None, answer: Answer) -> None:
        if report is None or answer.seen is None:
            return
        seen = answer.seen
        whole = math.nan if seen.loss is None else seen.loss
        norm = math.nan if seen.grad_norm is None else seen.grad_norm
        tokens = int(number(report.tokens) or 0)
        values = (answer.own_loss, whole, norm, tokens, report.parameters)
        self._records.write(StepRecord(report.step, report.digest, *values, report.stands, report.ended))
        self._last_loss = whole
        self.observed.scalars(report.step, report.scalars())
        events.record("run.report", step=report.step, loss=whole, grad_norm=norm, tokens=tokens)
        if self.timer is not None:
            for name, step, seconds in self.timer.measured():
                events.record("run.device", name=name, step=step, seconds=seconds)

    def _undo(self, verdict: Verdict | None) -> bool:
        """Go back, if that is the verdict."""
        if verdict is None or not verdict.goes_back:
            return False
        self._unjudged.clear()
        # The step that went wrong is over; going back is in no step.
        self.observed.end(self._report.step)
        self.observed.pause()
        self._saving.settle()
        if verdict.leave_out is not None:
            if self.is_first:
                SkipJournal(self.settings.directory.skips).append(verdict.reason, steps=[verdict.leave_out])
            self._skips = shared_skips(self.state, self.settings.directory)
        if self._batches is not None:
            self._batches.close()
        self._restore(verdict.action)
        return True

    def _restore(self, why: str) -> None:
        """Go on from the newest checkpoint that fits."""
        with self._notices.phase("restore"), events.span("run.restore"):
            reach("run.restore")
            loaded = self._past.restore(self._skips, starting=why == "start")
        self.next_step = 0 if loaded is None else loaded.cursor.step
        self.judge.restored([] if loaded is None else loaded.window, self.next_step)
        self._open(None if loaded is None else loaded.cursor)
        # Counted before the mark makes an end of them.
        executed = 1 + last_step(self.settings.directory.path) if self.is_first else 0
        self._records.mark(self.next_step)
        self._metrics.restored(self.next_step)
        if self.is_first:
            facts: dict[str, Any] = {}
            if loaded is not None:
                facts = {"checkpoint": loaded.checkpoint.digest, "saved_in": loaded.checkpoint.incarnation}
            again = max(0, executed - self.next_step)
            self._journal.write("restore", self.next_step, why=why, again=again, **facts)
        if loaded is None:
            # From here on every step can be gone back to, and that saving works is known before an hour is spent.
            self._save("beginning")
        else:
            self._saving.restored(self.next_step)

    def _open(self, cursor: Cursor | None) -> None:
        settings = self.settings
        feed = feed_at(settings, self.lane, cursor, self._skips)
        try:
            self._batches = self.observed.open(self.state.batches(feed, **self._wanted))
        except BaseException:
            feed.close()
            raise
        if self._tap is not None:
            self._tap.close()
        folder = settings.directory.taps
        place_rings(folder)
        # What is being trained on, not what the feed has read ahead.
        self._tap = Tap(folder / f"{self.state.rank:04d}.tap", feed.plan, self.lane, rank=self.state.rank)

    def _save(self, why: str) -> Verdict | None:
        """Save the state before the next step. What was not judged yet is judged while the device copies, so that it is never idle: a verdict
        to go back calls the save off, and is returned.
        """
        if self._saving.saved == self.next_step:
            return self._judge_rest()
        assert self._batches is not None
        cursor = cursor_at(self._batches.plan, self.next_step).to_json()

        def late() -> Late:
            if (verdict := self._judge_rest()) is not None:
                raise CalledOff(verdict)
            metrics = {"loss": self._last_loss} if math.isfinite(self._last_loss) else {}
            window = [loss.hex() for loss in self.judge.window]
            return Late({CURSOR: cursor, WINDOW: window}, metrics | self._metrics.take())

        try:
            with self._notices.phase("checkpoint"), self.observed.part("checkpoint"):
                self._saving.save(self.next_step, late, why)
        except CalledOff as called_off:
            return called_off.verdict
        return None

    def _heed(self, notice: Notice) -> None:
        """The state is saved; leave, if that was asked for."""
        if self.is_first:
            self._journal.write("notice", self.next_step, sync=True, **msgspec.to_builtins(notice))
        if not notice.leave:
            return
        self.observed.end(self._report.step)
        limit_s = max(0.0, notice.leave_by - time.time() - CLOSING_S) if notice.leave_by else None
        with self._notices.phase("checkpoint"):
            self._saving.settle(limit_s)
        committed = self._saving.is_committed(self.next_step)
        leave = Leave(notice, self.next_step, committed=committed)
        self.end(leave, committed=committed)
        raise leave

    def break_off(self) -> None:
        """The program has left the loop by itself: save what is known to be whole, under its number."""
        if self._batches is None or self._ended or self.next_step == 0:
            return
        step, reported = self._report.step, self._report.is_given
        standing = self._progress.standing(reported=reported) if self.state.ranks == 1 else "unknown"
        if standing == "whole":
            self._end_step(step)
            self.observed.end(step)
        elif standing == "not begun":
            self.next_step = step
        if standing != "unknown":
            self._undo(self._save("break"))
            return
        saved = "nothing is saved" if self._saving.saved is None else f"step {self._saving.saved} is saved"
        _log.warning(
            "the loop was left in the middle of step %d, of which nothing is kept: %s; run.stop() ends a run after a whole step",
            step,
            saved,
        )

    def end(self, problem: BaseException | None = None, **facts: object) -> None:
        """Say how this life ended, once. Ranks other than the first only speak of trouble."""
        if self._ended:
            return
        self._ended = True
        self._saving.end()
        how, of_problem = telling.ending(problem)
        if self.is_first or how == "failed":
            self._journal.write("end", self.next_step, sync=True, how=how, **facts, **of_problem)
        if self._closed:
            self._journal.close()

    def close(self, *, orderly: bool = True) -> None:
        """Give everything back. After trouble nobody is waited for: a peer may be gone."""
        if self._closed:
            return
        self._closed = True
        self.observed.close()
        self._notices.close()
        self._garbage.thaw()
        if self._tap is not None:
            self._tap.close()
            place_rings(None)
        if self._batches is not None:
            self._batches.close()
        if orderly:
            self._saving.settle()
            if self.settings.checkpoints is None:
                self._checkpoints.close()
        else:
            self._checkpoints.give_up()
        self._records.close()
        self._metrics.close()
        if self._ended:
            self._journal.close()
        if self._own_events:
            events.stop()
            self._own_events = False
