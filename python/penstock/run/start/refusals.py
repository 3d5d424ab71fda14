"""Starts that are refused, because what follows would be another run, or one that a decision has ended."""

from penstock.data import Skips
from penstock.errors import RunStopped, UsageError
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


def refuse_stopped(settings: Settings, skips: Skips, before: Decisions) -> None:
    """A stop is in force until the rules or the skips are others."""
    stop = before.stop
    if stop is None:
        return
    if (stop.get("rules"), stop.get("skips")) == (settings.policy.identity, skips.digest(1 << 62)):
        raise RunStopped(step=stop["step"], reason=f"{stop['reason']} (decided in an earlier life)")
