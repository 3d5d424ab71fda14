"""Which rank of how many this process is, as its launcher says: ``penstock run``, torchrun, srun, mpirun, or nobody."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import UsageError
from penstock.state.ranks.launcher import launch_of, place_of

#: Numbers of ranks that the launcher may go on with, separated by commas.
SIZES = "PENSTOCK_WORLD_SIZES"


@dataclass(frozen=True, slots=True)
class Gang:
    """What is known before any group of processes is made."""

    rank: int = 0
    ranks: int = 1
    launcher: str = "none"
    #: The launcher's name for the job, and which of its lives this is.
    job: str = ""
    life: int = 0
    #: Where `penstock run` keeps what it notes about the job; empty with another launcher.
    job_directory: str = ""
    #: How many ranks a later life of the job may have, where hosts may be lost for good; empty where their number is fixed.
    sizes: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the journal has it. What supervised the run is found by it, also by people whose own home is another."""
        place = {"job_directory": self.job_directory} if self.job_directory else {}
        return {"launcher": self.launcher, "job": self.job, "life": self.life, **place}


def gang_of(environment: Mapping[str, str] = os.environ) -> Gang:
    """From the variables of the launcher."""
    place, launch = place_of(environment), launch_of(environment)
    if launch is None:
        return Gang(place.rank, place.ranks)
    ours = launch.launcher == "penstock"
    directory = environment.get("PENSTOCK_JOB_DIRECTORY", "") if ours else ""
    sizes = _sizes(environment.get(SIZES, "")) if ours else ()
    return Gang(place.rank, place.ranks, launch.launcher, launch.job, launch.life, directory, sizes)


def _sizes(text: str) -> tuple[int, ...]:
    """The launcher's list. What is no number comes from elsewhere and says nothing."""
    return tuple(sorted({int(size) for size in text.split(",") if size.strip().isdecimal()} - {0}))


def check(gang: Gang, ranks: int) -> None:
    """The state knows as many ranks as were started; else each would train alone on all rows."""
    if gang.ranks != ranks:
        raise UsageError(
            f"{gang.launcher} started {gang.ranks} ranks, but the state knows {ranks}",
            hint="call penstock.torch.join() (or jax.distributed.initialize()) before the model is made",
        )
