"""Starts that are refused, because what follows would be another run, or one that a decision has ended."""

from penstock.data import Lane, Recipe, Skips
from penstock.errors import RunStopped, UsageError, WorldSizeUnfit
from penstock.run.gang import Gang
from penstock.run.policies import Policy
from penstock.run.settings import Settings
from penstock.run.start.decisions import Decisions
from penstock.state import Keep


def refuse_seed(settings: Settings, before: Decisions) -> None:
    """Another seed would be another run from here on, and nobody would notice."""
    seed = before.start.get("seed", settings.seed)
    if seed != settings.seed:
        hint = f"give seed={seed}, or begin another run in another directory"
        raise UsageError(f"this run was begun with seed {seed}, not {settings.seed}", hint=hint)


def refuse_short_memory(policy: Policy, keep: Keep | None) -> None:
    """A rollback that reaches behind the checkpoints that are kept would end the run on the day it is needed."""
    needed = policy.checkpoints_needed
    if keep is None or keep.last >= needed:
        return
    assert policy.spike is not None, "more than one is needed"
    raise UsageError(
        f"a rollback leaves out {policy.spike.back} steps before a spike, but only the last {keep.last} checkpoints are kept, "
        f"one every {policy.save_every} steps",
        hint=f"keep=Keep(last={needed}) or more, or a smaller `back`",
    )


def refuse_sizes(recipe: Recipe, lane: Lane, gang: Gang) -> None:
    """A number of ranks that cannot share a batch is refused now, not in the night in which a host is lost (L1)."""
    ranks_per_lane = max(1, gang.ranks // lane.of)
    for size in gang.sizes:
        lanes = size // ranks_per_lane
        if size % ranks_per_lane:
            raise WorldSizeUnfit(
                size=size, reason=f"each of its lanes is read by {ranks_per_lane} ranks", fitting=()
            )
        for step, rows in recipe.batch_schedule:
            if rows % lanes:
                fitting = tuple(one for one in gang.sizes if not rows % max(1, one // ranks_per_lane))
                where = f"of {rows} rows" if step == 0 else f"of {rows} rows, from step {step} on,"
                reason = f"a batch {where} cannot be dealt to {lanes} lanes"
                raise WorldSizeUnfit(size=size, reason=reason, fitting=fitting)


def refuse_stopped(settings: Settings, skips: Skips, before: Decisions) -> None:
    """A stop is in force until the rules or the skips are others."""
    stop = before.stop
    if stop is None:
        return
    if (stop.get("rules"), stop.get("skips")) == (settings.policy.identity, skips.digest(1 << 62)):
        raise RunStopped(step=stop["step"], reason=f"{stop['reason']} (decided in an earlier life)")
