"""One life of a run: from joining the gang to its end. Everything that has to be closed is opened and closed here.

Order at the beginning: fence (from here no earlier life can commit), decisions of earlier lives from rank 0, the newest checkpoint that
fits the skips, the feed at its cursor. Order after a step: one exchange between ranks, then records, then saving. A decision is in
the journal before anything follows from it.
"""

import math
import time
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock import events
from penstock.data import Cursor, Feed, SkipJournal, Skips
from penstock.data import open as open_feed
from penstock.data.ahead import Ahead
from penstock.data.feed import cursor_at
from penstock.data.showing import place_rings
from penstock.data.tapping import Tap
from penstock.errors import (
    CheckpointDamaged,
    RollbackImpossible,
    RunStopped,
    ServiceMismatch,
    SilentCorruption,
    UsageError,
)
from penstock.events.points import reach
from penstock.run import journal, telling
from penstock.run.contract import Trainable
from penstock.run.decisions import Decisions, decisions_of
from penstock.run.judging import Answer, Judge, Report, number
from penstock.run.notices import Leave, Notice, Notices
from penstock.run.policies import Verdict
from penstock.run.randomness import derive, seed_globals
from penstock.run.records import Records, StepRecord, bits, last_step
from penstock.run.saving import Saving
from penstock.run.settings import Settings
from penstock.run.standing import Standing
from penstock.run.upkeep import keep_of
from penstock.state import Checkpoint, Checkpoints
from penstock.state.committing import quarantine

#: What a checkpoint of a run has beside its tensors.
CURSOR, WINDOW = "cursor", "run.window"


class Life:
    """See the module's description."""

    def __init__(self, settings: Settings, state: Trainable, feeding: dict[str, Any]) -> None:
        self.settings, self.state = settings, state
        self._feeding = feeding
        self.lane = state.lane_of(**feeding)
        self.timer = state.timer()
        self.standing = Standing(state)
        self._ended = False
        self._closed = False
        self._own_events = False
        self._notices = Notices()
        self._batches: Ahead[Any] | None = None
        self._tap: Tap | None = None
        #: The first step that was not executed yet.
        self.next_step = 0
        self._report = Report(0)
        self._answer: Answer | None = None
        #: Reports whose values are not looked at yet, because the device may still be at work on them.
        self._unjudged: deque[Report] = deque()
        self._last_loss = math.nan
        # The same on all ranks, and in no other life: no launcher names a start so that no other one has its name.
        token = state.share(uuid.uuid4().hex.encode()).decode()
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
        before = self._shared_decisions()
        self.judge = Judge(self.state, self.settings.policy, before)
        self._skips = self._shared_skips()
        if self.settings.repeat is None:
            # A repetition is compared, and names it.
            self._refuse_seed(before)
        if self.is_first:
            directory.describe(telling.about(self.settings, self._checkpoints))
            directory.keep_recipe(self.settings.recipe)
            telling.begin(self._journal, self.settings, self.state, self.lane, before)
        self._refuse_stopped(before)
        self._restore("start")
        self._weights = telling.Weights(self.settings, self.next_step)

    def steps(self) -> Iterator[tuple[int, Any]]:
        """Steps and their batches, until the data or the policy ends."""
        assert self._batches is not None, "it has begun"
        batches = iter(self._batches)
        stop = self.settings.policy.stop_at
        while True:
            batch = None
            if stop is None or self.next_step < stop:
                with events.span("run.data", step=self.next_step):
                    batch = next(batches, None)
            if batch is None or (stop is not None and batch.step >= stop):
                if not self._judge_rest():
                    break
                batches = iter(self._batches)
                continue
            self._begin_step(batch)
            with events.span("run.step", step=batch.step):
                yield batch.step, batch
            if self._end_step(batch.step):
                batches = iter(self._batches)
        self._save("end")
        with self._notices.phase("checkpoint"):
            self._saving.settle()
        self._checkpoints.wait()
        self._records.end(self.next_step)

    def accept(self, loss: Any, grad_norm: Any, tokens: Any) -> bool:
        """Judge the step before the optimizer does."""
        if self._answer is not None:
            raise UsageError(f"step {self._report.step} was accepted or refused already")
        self.report(loss, grad_norm, tokens)
        self._answer = self._exchange(self._report, early=True)
        assert self._answer.verdict is not None, "a step was reported"
        return self._answer.verdict.action == "go"

    def report(self, loss: Any, grad_norm: Any, tokens: Any) -> None:
        """What the step gave."""
        for name, value in (("loss", loss), ("grad_norm", grad_norm), ("tokens", tokens)):
            if value is not None:
                setattr(self._report, name, value)

    def note(self, text: str, facts: dict[str, Any]) -> None:
        """Something that the program wants in the story."""
        self._journal.write("note", self._report.step, text=text, **facts)

    def _begin_step(self, batch: Any) -> None:
        step = batch.step
        reach("run.step")
        self._notices.pulse(step)
        if self._tap is not None:
            self._tap.show(step, batch.digest)
        if self.is_first:
            self._weights.tell(self._journal, step)
        self._report, self._answer = Report(step, batch.digest), None
        self.standing.begin()
        self.next_step = step + 1
        self.seed(step)

    def seed(self, step: int) -> None:
        """Every global generator, for a step."""
        seed, lane = self.settings.seed, self.lane.number
        seed_globals(seed, step=step, lane=lane)
        self.state.seed(derive(seed, "dropout", step=step, lane=lane))

    def _end_step(self, step: int) -> bool:
        """Judge, record, save, leave. Whether training went back to another step."""
        self._report.stands, self._report.ended = self.standing.now(), time.time()
        report: Report | None = self._report
        answer = self._answer
        every = self.settings.policy.digest_every
        if every is not None and self.next_step % every == 0:
            self._report.parameters = self.state.digest().hex()
        if answer is None:
            self._unjudged.append(self._report)
            report = self._unjudged.popleft() if len(self._unjudged) > self.state.deferred else None
            answer = self._exchange(report, early=False)
        self._record(report, answer)
        due = answer.save or answer.notice is not None or self._saving.due(self.next_step)
        if self._undo(answer.verdict) or (due and self._judge_rest()):
            self._notices.hear(answer.notice)
            return True
        if due:
            self._save("schedule" if answer.notice is None else answer.notice.reason)
        self._saving.note()
        if answer.notice is not None:
            self._heed(answer.notice)
        return False

    def _judge_rest(self) -> bool:
        """Look at every value that was reported; whether training went back because of one."""
        while self._unjudged:
            report = self._unjudged.popleft()
            answer = self._exchange(report, early=False)
            self._record(report, answer)
            if self._undo(answer.verdict):
                return True
        return False

    def _exchange(self, report: Report | None, *, early: bool) -> Answer:
        """One exchange with the other ranks, and what has to be written before anything follows from it."""
        save = self.is_first and self._saving.late()
        answer = self.judge.exchange(report, early=early, notice=self._notices.take(), save=save)
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
            if verdict.action == "stop":
                self._stop(RunStopped(step=step, reason=verdict.reason), step, verdict.reason)
            loss = math.nan if seen is None or seen.loss is None else seen.loss
            facts = {"leave_out": verdict.leave_out, "early": early, "loss_bits": bits(loss)}
            self._decide("verdict", step, action=verdict.action, reason=verdict.reason, **facts)
        return answer

    def _decide(self, kind: str, step: int, **facts: Any) -> None:
        reach(f"run.{kind}")
        if self.is_first:
            self._journal.write(kind, step, sync=True, **facts)

    def _stop(self, problem: RunStopped, step: int, reason: str) -> None:
        rules, skips = self.settings.policy.identity, self._skips.digest(1 << 62)
        self._decide("verdict", step, action="stop", reason=reason, rules=rules, skips=skips)
        self.end(problem)
        raise problem

    def _refuse_seed(self, before: Decisions) -> None:
        """Another seed would be another run from here on, and nobody would notice."""
        seed = before.start.get("seed", self.settings.seed)
        if seed != self.settings.seed:
            hint = f"give seed={seed}, or begin another run in another directory"
            raise UsageError(f"this run was begun with seed {seed}, not {self.settings.seed}", hint=hint)

    def _refuse_stopped(self, before: Decisions) -> None:
        stop = before.stop
        if stop is not None and (stop.get("rules"), stop.get("skips")) == (
            self.settings.policy.identity,
            self._skips.digest(1 << 62),
        ):
            raise RunStopped(step=stop["step"], reason=f"{stop['reason']} (decided in an earlier life)")

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
        events.record("run.report", step=report.step, loss=whole, grad_norm=norm, tokens=tokens)
        if self.timer is not None:
            for name, step, seconds in self.timer.measured():
                events.record("run.device", name=name, step=step, seconds=seconds)

    def _undo(self, verdict: Verdict | None) -> bool:
        """Go back, if that is the verdict."""
        if verdict is None or verdict.action not in ("rollback", "replay"):
            return False
        self._unjudged.clear()
        self._saving.settle()
        if verdict.leave_out is not None:
            if self.is_first:
                SkipJournal(self.settings.directory.skips).append(verdict.reason, steps=[verdict.leave_out])
            self._skips = self._shared_skips()
        if self._batches is not None:
            self._batches.close()
        self._restore(verdict.action)
        return True

    def _restore(self, why: str) -> None:
        """Go on from the newest checkpoint that fits."""
        refused: list[Checkpoint] = []
        with self._notices.phase("restore"), events.span("run.restore"):
            reach("run.restore")
            found = self._checkpoints.resume(self.state, fits=lambda each: self._fits(each, refused))
        if found is None and (refused or why != "start"):
            known = [each.step for each in refused]
            place = self._checkpoints.store.url
            raise RollbackImpossible(
                step=min((s[0] for s in self._skips.steps), default=0), place=place, known=known
            )
        cursor: Cursor | None = None
        window: list[float] = []
        if found is not None:
            entries = self._checkpoints.entries(found, rank=self.state.rank)
            cursor = Cursor.from_json(entries[CURSOR])
            window = [float.fromhex(each) for each in entries.get(WINDOW, [])]
            self._leave_behind(found)
        self.next_step = 0 if cursor is None else cursor.step
        self.judge.restored(window, self.next_step)
        self._open(cursor)
        # Counted before the mark makes an end of them.
        executed = 1 + last_step(self.settings.directory.path) if self.is_first else 0
        self._records.mark(self.next_step)
        if self.is_first:
            facts: dict[str, Any] = (
                {} if found is None else {"checkpoint": found.digest, "saved_in": found.incarnation}
            )
            again = max(0, executed - self.next_step)
            self._journal.write("restore", self.next_step, why=why, again=again, **facts)
        if found is None:
            # From here on every step can be gone back to, and that saving works is known before an hour is spent.
            self._save("beginning")
        else:
            self._saving.restored(self.next_step)

    def _open(self, cursor: Cursor | None) -> None:
        settings = self.settings
        feed = self._feed_at(cursor)
        try:
            self._batches = self.state.batches(feed, **self._feeding)
        except BaseException:
            feed.close()
            raise
        if self._tap is not None:
            self._tap.close()
        folder = settings.directory.taps
        place_rings(folder)
        # What is being trained on, not what the feed has read ahead.
        self._tap = Tap(folder / f"{self.state.rank:04d}.tap", feed.plan, self.lane, rank=self.state.rank)

    def _feed_at(self, cursor: Cursor | None) -> Feed:
        """The recipe's batches from a cursor on, from the registry or from a service."""
        settings = self.settings
        if settings.service is None:
            return open_feed(
                settings.recipe, lane=self.lane, registry=settings.registry, cursor=cursor, skips=self._skips
            )
        feed = open_feed(settings.service, lane=self.lane, cursor=cursor, skips=self._skips)
        served = feed.plan.recipe.digest
        if served != settings.recipe.digest:
            feed.close()
            raise ServiceMismatch(wanted=f"of recipe {settings.recipe.digest}", served=f"of recipe {served}")
        return feed

    def _fits(self, found: Checkpoint, refused: list[Checkpoint]) -> bool:
        """Whether a checkpoint was made with the same steps left out before it. Others belong to a past that was undone."""
        try:
            entries = self._checkpoints.entries(found, rank=0)
        except CheckpointDamaged:
            # Loading finds the same and quarantines it.
            return True
        if CURSOR not in entries:
            hint = "load it yourself into the state, and give the run another place for its checkpoints"
            raise UsageError(f"the checkpoint of step {found.step} has no cursor", hint=hint)
        cursor = Cursor.from_json(entries[CURSOR])
        if cursor.skips == self._skips.digest(cursor.step):
            return True
        refused.append(found)
        return False

    def _leave_behind(self, found: Checkpoint) -> None:
        """Checkpoints of an undone past are nobody's newest any more."""
        if not self.is_first:
            return
        log = self._checkpoints.log
        for each in log.read().good():
            if each.number > found.number and not self._fits_committed(each.number):
                quarantine(log, each.number, "it was gone back behind", rank=0, at=time.time())

    def _fits_committed(self, number: int) -> bool:
        known = [each for each in self._checkpoints.list() if each.number == number]
        return all(self._fits(each, []) for each in known)

    def _save(self, why: str) -> None:
        if self._saving.saved == self.next_step:
            return
        assert self._batches is not None
        entries = {
            CURSOR: cursor_at(self._batches.plan, self.next_step).to_json(),
            WINDOW: [each.hex() for each in self.judge.window],
        }
        metrics = {"loss": self._last_loss} if math.isfinite(self._last_loss) else {}
        with self._notices.phase("checkpoint"):
            self._saving.save(self.next_step, entries, metrics, why)

    def _heed(self, notice: Notice) -> None:
        """The state is saved; leave, if that was asked for."""
        if self.is_first:
            self._journal.write("notice", self.next_step, sync=True, **msgspec.to_builtins(notice))
        if not notice.leave:
            return
        limit_s = max(1.0, notice.leave_by - time.time()) if notice.leave_by else None
        committed = self._saving.settle(limit_s)
        leave = Leave(notice, self.next_step, committed=committed)
        self.end(leave, committed=committed)
        raise leave

    def _shared_decisions(self) -> Decisions:
        mine = b""
        if self.is_first:
            mine = msgspec.json.encode(decisions_of(journal.read(self.settings.directory.path)))
        return msgspec.json.decode(self.state.share(mine), type=Decisions)

    def _shared_skips(self) -> Skips:
        mine = b""
        if self.is_first:
            mine = msgspec.json.encode(SkipJournal(self.settings.directory.skips).read().to_json())
        return Skips(**msgspec.json.decode(self.state.share(mine)))

    def end(self, problem: BaseException | None = None, **facts: Any) -> None:
        """Say how this life ended, once. Ranks other than the first only speak of trouble."""
        if self._ended:
            return
        self._ended = True
        self._saving.note()
        how = "done"
        if isinstance(problem, Leave):
            how = "left"
        elif isinstance(problem, RunStopped):
            how = "stopped"
        elif isinstance(problem, GeneratorExit):
            how = "broken off"
        elif problem is not None:
            how = "failed"
            facts = {**facts, "error": type(problem).__name__, "reason": str(problem)[:2000]}
        if self.is_first or how == "failed":
            self._journal.write("end", self.next_step, sync=True, how=how, **facts)
        if self._closed:
            self._journal.close()

    def close(self, *, orderly: bool = True) -> None:
        """Give everything back. After trouble nobody is waited for: a peer may be gone."""
        if self._closed:
            return
        self._closed = True
        self._notices.close()
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
        if self._ended:
            self._journal.close()
        if self._own_events:
            events.stop()
            self._own_events = False
