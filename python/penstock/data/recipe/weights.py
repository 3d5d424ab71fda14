"""Weights by step: fixed ones, and ramps that move from one set of weights to another.

A ramp is a formula, not a list of changes: the Rust side finds any place of it at once, so a ramp of a million steps opens as
fast as one change does. It begins with the weights that hold at its step and reaches its own at ``until``; the next entry of
the schedule breaks it off if it comes first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from penstock import _rust
from penstock.data.recipe.names import suggestion
from penstock.data.recipe.schedule import read_schedule
from penstock.errors import RecipeInvalid

SHAPES = ("linear", "cosine", "steps")
_STEP_MAX = 1 << 40
_HINT = (
    '[[0, {web = 0.7, code = 0.3}], [5000, {to = {web = 0.5, code = 0.5}, until = 9000, shape = "cosine"}]]'
)
Weights = dict[str, float]


@dataclass(frozen=True)
class Ramp:
    """Weights that move from those that hold at a step to others.

    ``linear`` moves them by the same amount at every step, ``cosine`` slowly at first and at the end, ``steps`` as ``linear`` does
    but only every so many steps.
    """

    #: The weights at the end, by alias.
    to: Weights
    #: The first step that has them.
    until: int
    shape: Literal["linear", "cosine", "steps"] = "linear"
    #: Of ``steps``: how many steps have the same weights.
    every: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.to, Mapping):
            raise RecipeInvalid(field="weights", reason=f"a ramp to {self.to!r:.100}", hint=_HINT)
        object.__setattr__(self, "to", plain_numbers(self.to))
        if self.shape not in SHAPES:
            reason = f"unknown ramp {self.shape!r:.50}"
            raise RecipeInvalid(field="weights", reason=reason, hint=", ".join(SHAPES))
        if type(self.until) is not int or not 0 < self.until < _STEP_MAX:
            reason = f"a ramp must end at a step, got {self.until!r:.50}"
            raise RecipeInvalid(field="weights", reason=reason, hint="until = 9000")
        if type(self.every) is not int or (self.every < 1) == (self.shape == "steps") or self.every < 0:
            reason = f"a ramp of shape {self.shape!r} cannot change every {self.every!r:.50} steps"
            raise RecipeInvalid(field="weights", reason=reason, hint='shape = "steps", every = 100')

    def plain(self) -> dict[str, Any]:
        """The ramp as a recipe file has it."""
        document: dict[str, Any] = {"to": self.to, "until": self.until, "shape": self.shape}
        return document | ({"every": self.every} if self.every else {})


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """Weights that hold from a step on, or move from there; shares of one."""

    step: int
    weights: Weights
    ramp: Ramp | None = None

    @property
    def until(self) -> Weights:
        """The shares at the end of the ramp, or those that stay."""
        return self.weights if self.ramp is None else shares(self.ramp.to)

    def at(self, step: int) -> Weights:
        """The shares at a step of the entry."""
        ramp = self.ramp
        if ramp is None:
            return self.weights
        part = _rust.ramp_part(ramp.shape, ramp.every, ramp.until - self.step, step - self.step)
        after = self.until
        aliases = list(dict.fromkeys((*self.weights, *after)))
        return {a: self.weights.get(a, 0.0) * (1 - part) + after.get(a, 0.0) * part for a in aliases}

    def document(self) -> Any:
        """What enters the recipe's digest."""
        positive = {alias: weight for alias, weight in self.weights.items() if weight > 0}
        if self.ramp is None:
            return positive
        to = {alias: weight for alias, weight in self.until.items() if weight > 0}
        return self.ramp.plain() | {"from": positive, "to": to}


def read_weights(schedule: Any) -> tuple[tuple[int, Weights | Ramp], ...]:
    """A schedule of weights as a recipe or its file has it."""
    if isinstance(schedule, tuple | list) and not schedule:
        return ()
    pairs = read_schedule("weights", schedule, (Mapping, Ramp), hint=_HINT)
    return tuple((step, _entry(step, entry)) for step, entry in pairs)


def _entry(step: int, entry: Any) -> Weights | Ramp:
    if isinstance(entry, Mapping) and isinstance(entry.get("to"), Mapping):
        known = [field.name for field in fields(Ramp)]
        for name in entry:
            if name not in known:
                reason = f"a ramp has no field {name!r:.50}"
                raise RecipeInvalid(field="weights", reason=reason, hint=suggestion(name, known))
        try:
            entry = Ramp(**entry)
        except TypeError as reason:
            raise RecipeInvalid(field="weights", reason=f"{reason}".partition(") ")[2], hint=_HINT) from None
    if not isinstance(entry, Ramp):
        return plain_numbers(entry)
    if entry.until <= step:
        shown = f"the ramp that begins at step {step} ends at step {entry.until}"
        raise RecipeInvalid(field="weights", reason=shown, hint="until is a step, and comes later")
    return entry


def check_weights(schedule: Sequence[tuple[int, Weights | Ramp]], known: set[str]) -> None:
    """That every weight is a number of a source, and that some source has one at every step."""
    for step, entry in schedule:
        weights = entry.to if isinstance(entry, Ramp) else entry
        for alias, weight in weights.items():
            if alias not in known:
                hint = suggestion(alias, sorted(known))
                raise RecipeInvalid(field="weights", reason=f"unknown source {alias!r}", hint=hint)
            if isinstance(weight, bool) or not (
                isinstance(weight, int | float) and 0 <= weight < float("inf")
            ):
                raise RecipeInvalid(
                    field="weights", reason=f"the weight of {alias} at step {step} is {weight!r}"
                )
        if not any(weight > 0 for weight in weights.values()):
            raise RecipeInvalid(field="weights", reason=f"no source has a weight from step {step} on")


def weight_entries(schedule: Sequence[tuple[int, Weights | Ramp]], own: Weights) -> tuple[WeightEntry, ...]:
    """The schedule in shares; a ramp begins with the weights before it, the first with the sources' ``own``."""
    entries: list[WeightEntry] = []
    for step, entry in schedule or ((0, own),):
        if isinstance(entry, Ramp):
            entries.append(WeightEntry(step, entries[-1].at(step) if entries else shares(own), entry))
        else:
            entries.append(WeightEntry(step, shares(entry)))
    return tuple(entries)


def entry_pairs(entries: Sequence[WeightEntry]) -> tuple[tuple[int, Weights], ...]:
    """The shares at every step at which an entry begins or a ramp ends."""
    pairs: list[tuple[int, Weights]] = []
    for at, entry in enumerate(entries):
        pairs.append((entry.step, entry.weights))
        following = entries[at + 1].step if at + 1 < len(entries) else None
        if entry.ramp is not None and (following is None or following > entry.ramp.until):
            pairs.append((entry.ramp.until, entry.until))
    return tuple(pairs)


def plain_numbers(weights: Mapping[str, Any]) -> Weights:
    """Weights with numbers of numpy as those of Python, which can be written down."""
    return {
        alias: float(weight) if isinstance(weight, float) else weight for alias, weight in weights.items()
    }


def shares(weights: Weights) -> Weights:
    """Weights as shares of one."""
    total = sum(weights.values())
    return {alias: weight / total for alias, weight in weights.items()}
