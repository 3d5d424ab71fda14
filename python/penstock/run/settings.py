"""What a run was made with."""

from dataclasses import dataclass

from penstock.data import Recipe
from penstock.registry import Registry
from penstock.run.directory import RunDirectory
from penstock.run.gang import Gang
from penstock.run.pinning import Pins
from penstock.run.policies import Policy
from penstock.run.repeating import Repeat
from penstock.state import Checkpoints


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of ``Run``, and what was found around it."""

    directory: RunDirectory
    recipe: Recipe
    registry: Registry
    #: None: the run opens its own, in its directory.
    checkpoints: Checkpoints | None
    policy: Policy
    seed: int
    deterministic: bool
    gang: Gang
    pins: Pins
    #: Steps of another run's directory are executed again here.
    repeat: Repeat | None = None
