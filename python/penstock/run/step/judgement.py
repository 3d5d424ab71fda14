"""From what ranks report to what is done about it: one exchange per step, one verdict, the same on every rank.

The exchange carries what else ranks have to agree on between steps: notices, and whether it is time to save.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.run.contract import Trainable
from penstock.run.journal.step_records import bits
from penstock.run.policies import Case, Observed, Policy, Verdict, joined, judge, push
from penstock.run.start.decisions import Decisions
from penstock.run.step.notices import Notice
from penstock.run.step.observation import Observation
from penstock.run.step.requests import Wish

#: So many steps before a replay can be compared; earlier ones are executed again without.
LOSSES_MAX = 10_000


@dataclass(slots=True)
class Report:
    """What this rank said about a step. Values may still be on a device."""

    step: int
    #: Of the batch.
    digest: str = ""
    loss: Any = None
    grad_norm: Any = None
    tokens: Any = None
    #: Where generators stood when it ended, and when that was.
    stands: dict[str, int] = field(default_factory=dict)
    ended: float = 0.0
    #: Digest of the parameters after the step, if it was asked for.
    parameters: str = ""
    #: Whether the program has asked if the optimizer may step.
    is_accepted: bool = False

    @property
    def is_given(self) -> bool:
        """Whether the program has said anything."""
        return self.is_accepted or any(
            value is not None for value in (self.loss, self.grad_norm, self.tokens)
        )

    def numbers(self) -> tuple[float | None, float | None, float]:
        """The values, once they are looked at."""
        loss, norm, tokens = map(number, (self.loss, self.grad_norm, self.tokens))
        return loss, norm, tokens or 0.0

    def scalars(self) -> dict[str, float]:
        """What was said, by name, once it is looked at."""
        values = {"loss": self.loss, "grad_norm": self.grad_norm, "tokens": self.tokens}
        return {name: known for name, value in values.items() if (known := number(value)) is not None}


@dataclass(frozen=True, slots=True)
class Answer:
    """What all ranks know after an exchange."""

    #: None when no step was judged.
    seen: Observed | None
    #: This rank's own loss, and NaN without one.
    own_loss: float
    verdict: Verdict | None
    notice: Notice | None
    save: bool
    #: What each rank's program asks for, and the ranks whose saves failed.
    wishes: tuple[Wish, ...]
    failing: tuple[int, ...]
    #: Whether any rank is still writing an earlier capture.
    busy: bool
    #: Ranks whose replay gave other bits.
    differing: tuple[int, ...] = ()
    #: Whether a replay has come to its step, with the same bits.
    replayed: bool = False

    @property
    def why_saved(self) -> str:
        """What a checkpoint after it is made for, in a word."""
        if self.notice is not None:
            return self.notice.reason
        return "asked" if max(self.wishes) else "schedule"


@dataclass(frozen=True, slots=True)
class Said:
    """What else this rank has to tell the others after a step."""

    notice: Notice | None = None
    #: Whether it is time to save, by the clock of rank 0.
    save: bool = False
    wish: Wish = Wish.NOTHING
    #: Whether a save of this rank has failed, and whether one is under way.
    failing: bool = False
    busy: bool = False


class Judge:
    """Decides about steps, in their order."""

    def __init__(
        self, state: Trainable, policy: Policy, decisions: Decisions, observed: Observation | None = None
    ) -> None:
        self._state, self._policy = state, policy
        self._observed = observed or Observation(None)
        self.forced: dict[int, str] = dict(decisions.forced)
        self.replayed = frozenset(decisions.replayed)
        #: The step that is being executed again, and the bits of the loss of all ranks the first time.
        self.replay = decisions.replay
        self.interventions = decisions.interventions
        self.window: tuple[float, ...] = ()
        #: Losses of this rank since the last restore, by step; what a replay is compared with.
        self._losses: dict[int, str] = {}
        self._earlier: dict[int, str] = {}
        self._may_replay = "replay" in policy.actions

    @property
    def may_skip(self) -> bool:
        """Whether a verdict before the optimizer's step can differ from one after it: by a rule that skips, or a skip decided before.

        The same for all steps of a life, or a step that waits would be judged before the one before it. Follows from the policy and the journal
        alone, so all ranks answer alike.
        """
        return bool(self.forced) or not self._policy.actions.isdisjoint(("skip", "replay"))

    def exchange(self, report: Report | None, said: Said, *, early: bool) -> Answer:
        """Tell the others and hear them. All ranks call it, for the same step."""
        with self._observed.part("judge"):
            # Waits for the values of this step alone.
            own = (None, None, 0.0) if report is None else report.numbers()
        loss = math.nan if own[0] is None else own[0]
        differs = report is not None and self._differs(report.step, loss)
        notice = said.notice
        mine = [
            0.0 if notice is None else (2.0 if notice.leave else 1.0),
            0.0 if notice is None else notice.leave_by,
            float(said.save),
            float(own[0] is not None),
            loss,
            float(own[1] is not None),
            math.nan if own[1] is None else own[1],
            own[2],
            float(differs),
            float(said.wish),
            float(said.failing),
            float(said.busy),
        ]
        with self._observed.part("exchange"):
            rows = self._state.agree(mine)
            if len(rows) > 1:
                # Inside of the part: from this moment the part's time leads back to when this rank came, or before.
                self._observed.exchanged()
        asked = (
            _notice(rows, notice),
            bool(rows[0][2]),
            tuple(Wish(int(row[9])) for row in rows),
            tuple(rank for rank, row in enumerate(rows) if row[10]),
            any(row[11] for row in rows),
        )
        if report is None:
            return Answer(None, math.nan, None, *asked)
        seen = joined(
            report.step, [(row[4] if row[3] else None, row[6] if row[5] else None, row[7]) for row in rows]
        )
        differing = tuple(rank for rank, row in enumerate(rows) if row[8])
        if not differing and self._replay_ends(seen) is False:
            # Each rank had its own bits and yet the mean differs: one without a loss of its own.
            differing = (0,)
        replayed = not differing and self._replay_ends(seen) is True
        if replayed:
            self.replay = None
            self.replayed |= {seen.step}
        verdict = None if differing else self._judge(seen, early)
        if self._may_replay:
            self._losses[report.step] = bits(loss)
            while len(self._losses) > LOSSES_MAX:
                del self._losses[next(iter(self._losses))]
        return Answer(seen, loss, verdict, *asked, differing, replayed)

    def _judge(self, seen: Observed, early: bool) -> Verdict:
        case = Case(self.window, self.forced, self.replayed, self.interventions, early)
        verdict = judge(self._policy, seen, case)
        if verdict.action == "go" and self._policy.spike is not None:
            self.window = push(self.window, getattr(seen, self._policy.spike.of), self._policy.spike)
        self.interventions += verdict.action not in ("go", "stop") and not verdict.repeated
        if verdict.action == "skip":
            self.forced[seen.step] = "skip"
        if verdict.action == "replay":
            self.replay = (seen.step, bits(math.nan if seen.loss is None else seen.loss))
        return verdict

    def restored(self, window: Sequence[float], step: int) -> None:
        """Training goes on from a checkpoint. What was executed after it may be executed again, and compared."""
        self.window = tuple(window)
        self._earlier = {at: loss for at, loss in self._losses.items() if at >= step}
        self._losses = {}

    def _differs(self, step: int, loss: float) -> bool:
        return self.replay is not None and self._earlier.get(step, bits(loss)) != bits(loss)

    def _replay_ends(self, seen: Observed) -> bool | None:
        """Whether the step that is executed again is this one, and is the same; None if it is another."""
        if self.replay is None or self.replay[0] != seen.step:
            return None
        return bits(math.nan if seen.loss is None else seen.loss) == self.replay[1]


def number(value: Any) -> float | None:
    """A number of Python from whatever a framework calls one."""
    if value is None:
        return None
    return float(value.item() if hasattr(value, "item") else value)


def _notice(rows: list[list[float]], own: Notice | None) -> Notice | None:
    """The strongest notice that any rank has heard."""
    strongest = max(row[0] for row in rows)
    if not strongest:
        return None
    limits = [row[1] for row in rows if row[1]]
    heard = [rank for rank, row in enumerate(rows) if row[0] == strongest]
    reason = own.reason if own is not None else f"rank {heard[0]} was asked"
    return Notice(reason, leave=strongest == 2.0, leave_by=min(limits, default=0.0))
