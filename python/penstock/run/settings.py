"""What a run was made with."""

from dataclasses import dataclass

from penstock.data import Recipe
from penstock.data.service import Service
from penstock.registry import Registry
from penstock.run.determinism import Pins
from penstock.run.directory import RunDirectory
from penstock.run.gang import Gang
from penstock.run.policies import Policy
from penstock.run.proof.repeat_mode import Repeat
from penstock.state import Checkpoints


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of ``Run``, and what was found around it."""

    directory: RunDirectory
    recipe: Recipe
    #: None: batches come from a service.
    registry: Registry | None
    #: None: the run opens its own, in its directory.
    checkpoints: Checkpoints | None
    policy: Policy
    seed: int
    deterministic: bool
    gang: Gang
    pins: Pins
    #: Makes the batches, where no registry does.
    service: Service | None = None
    #: Steps of another run's directory are executed again here.
    repeat: Repeat | None = None

    @property
    def origin(self) -> str:
        """Where batches come from: the registry's place, or the service's address."""
        if self.registry is not None:
            return self.registry.url
        assert self.service is not None, "batches come from one of the two"
        return self.service.address
