"""What a run was made with."""

from dataclasses import dataclass

from penstock.data import Recipe
from penstock.registry import Registry
from penstock.run.directory import RunDirectory
from penstock.run.gang import Gang
from penstock.run.pinning import Pins
from penstock.run.policies import Policy
from penstock.state import Checkpoints


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of ``Run``, and what was found around it."""

    #: Where this life writes, and where decisions and skips come from; the same, unless steps are rehearsed.
    directory: RunDirectory
    source: RunDirectory
    recipe: Recipe
    registry: Registry
    #: None: the run opens its own, in its directory.
    checkpoints: Checkpoints | None
    policy: Policy
    seed: int
    deterministic: bool
    gang: Gang
    pins: Pins
    #: The first step that is wanted, in a rehearsal.
    rehearsal_first: int | None = None
