"""Legs: how a source goes on when the length of rows changes by schedule.

A source is read in *phases*, one per length. At a change, what the source has not delivered of its epoch is packed to the new
length in a *rest* of its own; after that come whole epochs in the new length. How many rows a source had delivered at the
change follows from the mixture alone, so the rest is a table like any other: built once, found by its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.data.plan.table_cache import BrokenLeg, PlanTable, rest_table

if TYPE_CHECKING:
    from penstock._rust.plan import CourseValues, StopValues, TurnPlan
    from penstock.data.plan.plan import Prepared
    from penstock.data.recipe.recipe import Recipe
    from penstock.registry import Registry


@dataclass(frozen=True, slots=True)
class Phase:
    """A source under one length of rows."""

    #: The step from which rows have this length.
    step: int
    length: int
    #: The table of a whole epoch.
    whole: PlanTable
    #: Rows that the source has delivered before, and the epoch that it goes on with.
    first: int = 0
    epoch: int = 0
    #: The first part that comes after the rest.
    part: int = 0
    #: What the length before left of the epoch, and what the orders of that derive from.
    rest: PlanTable | None = None
    rest_key: str = ""

    @property
    def tables(self) -> tuple[Any, ...]:
        """What of it enters the plan's digest."""
        rest = None if self.rest is None else (self.rest.table, self.rest.packs)
        return (self.whole.table, self.whole.packs, rest)


def merged(lengths: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """A schedule of lengths without changes that change nothing."""
    kept = [lengths[0]]
    for step, length in lengths[1:]:
        if length != kept[-1][1]:
            kept.append((step, length))
    return kept


def plan_phases(recipe: "Recipe", registry: "Registry", prepared: Sequence["Prepared"]) -> "list[Prepared]":
    """Plan where each source stands at each change of length; changes that the stream never comes to are left out."""
    planned = [replace(entry, phases=entry.phases[:1]) for entry in prepared]
    for number in range(1, len(prepared[0].phases)):
        step = prepared[0].phases[number].step
        stops = _rust.stops_at(turn_plan(recipe), [_course(entry) for entry in planned], step)
        if stops is None:
            break
        planned = [
            replace(now, phases=(*now.phases, _change(recipe, registry, now, entry.phases[number], stop)))
            for now, entry, stop in zip(planned, prepared, stops, strict=True)
        ]
    return planned


def turn_plan(recipe: "Recipe") -> "TurnPlan":
    """What decides whose turn it is, as the Rust side takes it."""
    aliases = [source.alias for source in recipe.sources]
    return {
        "seed": recipe.seed % (1 << 64),
        "batch": list(recipe.batch_schedule),
        "weights": [
            (entry.step, [entry.weights.get(alias, 0.0) for alias in aliases])
            for entry in recipe.weight_entries
        ],
        "ramps": [
            {
                "step": entry.step,
                "until": entry.ramp.until,
                "to": [entry.until.get(alias, 0.0) for alias in aliases],
                "shape": entry.ramp.shape,
                "every": entry.ramp.every,
            }
            for entry in recipe.weight_entries
            if entry.ramp is not None
        ],
        "shuffle": recipe.shuffle,
        "exhaustion": recipe.exhaustion,
    }


def _course(prepared: "Prepared") -> "CourseValues":
    last = prepared.phases[-1]
    phase = (last.first, last.epoch, 0 if last.rest is None else last.rest.packs, last.part)
    return (prepared.source.epochs, phase, [last.whole.packs])


def _change(recipe: "Recipe", registry: "Registry", now: "Prepared", to: Phase, stop: "StopValues") -> Phase:
    """The phase that begins where a source stands; what it breaks off is packed anew."""
    count, part, epoch, within = stop
    last = now.phases[-1]
    if part is not None and within == 0:
        return replace(to, first=count, epoch=epoch, part=part)
    if now.packing.policy == "crop":
        # Crops are drawn anew in every epoch, so there is nothing left of one: the next begins.
        return replace(to, first=count, epoch=epoch + 1, part=0)
    table, key = last.whole.table, now.tokens.digest
    if part is None and last.rest is not None:
        table, key = last.rest.table, last.rest_key
    broken = BrokenLeg(table, key, recipe.seed % (1 << 64), last.length, epoch, within)
    rest, rest_key = rest_table(registry, broken, now.packing, to.length)
    after = last.part if part is None else part + 1
    return replace(to, first=count, epoch=epoch, part=after, rest=rest, rest_key=rest_key)
