"""What a run does about values that should not be: rules as data, judged by pure functions over global values.

Every rank judges the same values by the same function, so all come to the same verdict without asking each other again. A verdict
names its step, its action and its reason; it is in the journal before anybody acts on it, and from then on it is in force
for every execution of that step, in this life and in later ones (R2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, get_args

import msgspec

from penstock._rust import digest
from penstock.errors import UsageError
from penstock.state import Keep

#: ``skip``: the step does not change the model. ``rollback``: back to a checkpoint, and the steps are left out of the data.
#: ``replay``: execute the step again from the checkpoint before it; other bits stop the run (silent corruption), the same bits skip it.
Action = Literal["skip", "rollback", "replay", "stop"]
_ACTIONS = get_args(Action)
#: Of the median: a window of equal values still has a scale to judge by.
_SCALE_LEAST = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """A value far above the recent ones: more than ``k`` times the median absolute deviation above the median."""

    k: float = 8.0
    #: How many of the last accepted values are looked at, and how many there have to be.
    window: int = 128
    least: int = 16
    #: Which of the reported values.
    of: Literal["loss", "grad_norm"] = "loss"
    then: Action = "skip"
    #: With ``rollback``: how many steps before the spike are left out as well.
    back: int = 0

    def __post_init__(self) -> None:
        if not self.k > 0:
            raise UsageError(f"k must be positive, got {self.k}")
        if not 2 <= self.least <= self.window:
            raise UsageError(f"least must be from 2 to window, got {self.least} of {self.window}")
        if self.back < 0:
            raise UsageError(f"back must be 0 or more, got {self.back}")
        if self.of not in ("loss", "grad_norm"):
            raise UsageError(f"of must be 'loss' or 'grad_norm', got {self.of!r}")
        if self.then not in _ACTIONS:
            raise UsageError(f"then must be one of {', '.join(_ACTIONS)}, got {self.then!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When to save, when to stop, and what to do about bad values."""

    #: A checkpoint after so many steps (by the number of the step), or after so many seconds, or both.
    save_every: int | None = 1000
    save_every_s: float | None = None
    #: Before these steps as well.
    save_at: tuple[int, ...] = ()
    #: When it is time to save and the one before is still being written: training waits, or the save does, until a later step.
    when_busy: Literal["wait", "postpone"] = "wait"
    #: Of the checkpoints that the run opens itself. None: the last three, or as many as a rollback needs; ``Keep(every=1)`` keeps all.
    keep: Keep | None = None
    #: From SIGTERM or Ctrl-C until whoever sent it loses patience: the process has left by then, saved or not.
    grace_s: float = 30.0
    #: The first step that is not executed any more.
    stop_at: int | None = None
    #: A loss or gradient norm that is no number, on any rank. None: nobody looks.
    non_finite: Action | None = "stop"
    spike: Spike | None = None
    #: So many verdicts other than ``stop``; one more is a ``stop``.
    interventions_max: int = 100
    #: Parameter digests in the records, after every so many steps. They cost a pass over all that a rank holds.
    digest_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("save_every", "save_every_s", "digest_every", "grace_s"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise UsageError(f"{name} must be positive, got {limit}")
        if self.interventions_max < 0:
            raise UsageError(f"interventions_max must be 0 or more, got {self.interventions_max}")
        if self.when_busy not in ("wait", "postpone"):
            raise UsageError(f"when_busy must be 'wait' or 'postpone', got {self.when_busy!r}")
        if self.non_finite not in (None, *_ACTIONS):
            raise UsageError(
                f"non_finite must be None or one of {', '.join(_ACTIONS)}, got {self.non_finite!r}"
            )

    def to_json(self) -> dict[str, Any]:
        """As the journal has it."""
        return asdict(self)

    @property
    def actions(self) -> frozenset[Action]:
        """What the rules can ask for."""
        spike = None if self.spike is None else self.spike.then
        return frozenset(action for action in (self.non_finite, spike) if action is not None)

    @property
    def checkpoints_needed(self) -> int:
        """How many of the last checkpoints a rollback may have to reach behind; one at least."""
        if self.spike is None or self.spike.then != "rollback" or self.save_every is None:
            return 1
        return 1 + math.ceil(self.spike.back / self.save_every)

    @property
    def identity(self) -> str:
        """Of the rules alone: a stop is in force until they change."""
        rules = {"non_finite": self.non_finite, "spike": self.spike and asdict(self.spike)}
        return digest(msgspec.json.encode(rules, order="deterministic"))[3:19]


@dataclass(frozen=True, slots=True)
class Observed:
    """What all ranks together reported of a step."""

    step: int
    #: Mean of the ranks; not finite when that of any rank is not. None when nobody reported one.
    loss: float | None = None
    #: The largest of the ranks.
    grad_norm: float | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a step, and why."""

    step: int
    action: Literal["go", "skip", "rollback", "replay", "stop"]
    reason: str = ""
    #: The steps that are left out, with ``rollback``: first, and after the last.
    leave_out: tuple[int, int] | None = None
    #: Whether it was decided in an earlier execution of the step.
    repeated: bool = False

    @property
    def goes_back(self) -> bool:
        """Whether training goes on from an earlier step."""
        return self.action in ("rollback", "replay")


@dataclass(frozen=True, slots=True)
class Case:
    """What else a judge has to know."""

    #: Accepted values before this step, oldest first.
    window: Sequence[float] = ()
    #: Decisions that are in force, by step.
    forced: Mapping[int, str] | None = None
    #: Steps that were executed again and gave the same bits.
    replayed: frozenset[int] = frozenset()
    interventions: int = 0
    #: Whether the optimizer has not stepped yet, so that a step can be skipped by doing nothing.
    early: bool = True


def judge(policy: Policy, seen: Observed, case: Case) -> Verdict:
    """The verdict about a step. Pure."""
    if case.forced and case.forced.get(seen.step) == "skip" and case.early:
        return Verdict(seen.step, "skip", "decided before", repeated=True)
    breach = _broken(policy, seen, case.window)
    if breach is None:
        return Verdict(seen.step, "go")
    action, reason, back = breach
    if action != "stop" and case.interventions >= policy.interventions_max:
        return Verdict(seen.step, "stop", f"{reason}; all {policy.interventions_max} interventions are spent")
    if action == "replay" and seen.step in case.replayed:
        action, reason = "skip", f"{reason}; executed again it is the same, so it is the data or the model"
    if action == "skip" and not case.early:
        # The optimizer has stepped with it: only going back undoes that.
        action, back = "rollback", 0
    if action == "rollback":
        return Verdict(seen.step, "rollback", reason, (max(0, seen.step - back), seen.step + 1))
    return Verdict(seen.step, action, reason)


def push(window: Sequence[float], value: float | None, spike: Spike | None) -> tuple[float, ...]:
    """The window after an accepted value."""
    if spike is None or value is None or not math.isfinite(value):
        return tuple(window)
    return (*window, value)[-spike.window :]


def threshold(spike: Spike, window: Sequence[float]) -> float | None:
    """Above which a value is a spike; None while too few are known."""
    if len(window) < spike.least:
        return None
    middle = median(window)
    scale = median(abs(value - middle) for value in window)
    return middle + spike.k * max(scale, _SCALE_LEAST * abs(middle))


def joined(step: int, rows: Sequence[tuple[float | None, float | None, float]]) -> Observed:
    """What all ranks reported (loss, gradient norm, tokens), as one. In the order of ranks, so equal everywhere."""
    losses = [loss for loss, _, _ in rows if loss is not None]
    norms = [norm for _, norm, _ in rows if norm is not None]
    # NaN loses every comparison, so it is looked for first.
    norm = next((value for value in norms if math.isnan(value)), max(norms, default=None))
    return Observed(
        step, sum(losses) / len(losses) if losses else None, norm, int(sum(tokens for _, _, tokens in rows))
    )


def _broken(policy: Policy, seen: Observed, window: Sequence[float]) -> tuple[Action, str, int] | None:
    for name, value in (("loss", seen.loss), ("gradient norm", seen.grad_norm)):
        if policy.non_finite is not None and value is not None and not math.isfinite(value):
            return policy.non_finite, f"the {name} is {value}", 0
    spike = policy.spike
    value = None if spike is None else getattr(seen, spike.of)
    if spike is None or value is None:
        return None
    limit = threshold(spike, window)
    if limit is None or value <= limit:
        return None
    name = "loss" if spike.of == "loss" else "gradient norm"
    reason = f"the {name} {value:.6g} is above {limit:.6g}, {spike.k:g} deviations over the median of {len(window)}"
    return spike.then, reason, spike.back
