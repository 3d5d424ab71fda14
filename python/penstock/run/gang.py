"""Which rank of how many this process is, as its launcher says: ``penstock run``, torchrun, srun, or nobody."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import UsageError


@dataclass(frozen=True, slots=True)
class Gang:
    """What is known before any group of processes is made."""

    rank: int = 0
    ranks: int = 1
    launcher: str = "none"
    #: The launcher's name for the job, and which of its lives this is.
    job: str = ""
    life: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the journal has it."""
        return {"launcher": self.launcher, "job": self.job, "life": self.life}


def gang_of(environment: Mapping[str, str] = os.environ) -> Gang:
    """From the variables of the launcher. An sbatch script without srun counts as one process, whatever it was given."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        ours = "PENSTOCK_JOB" in environment
        job = environment.get("PENSTOCK_JOB" if ours else "TORCHELASTIC_RUN_ID", "")
        life = environment.get("PENSTOCK_INCARNATION" if ours else "TORCHELASTIC_RESTART_COUNT", "0")
        return _gang(environment, ("RANK", "WORLD_SIZE"), "penstock" if ours else "torchrun", job, life)
    if "SLURM_PROCID" in environment and "SLURM_STEP_NUM_TASKS" in environment:
        names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
        job, life = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_RESTART_COUNT", "0")
        return _gang(environment, names, "slurm", job, life)
    return Gang()


def check(gang: Gang, ranks: int) -> None:
    """The state knows as many ranks as were started; else each would train alone on all rows."""
    if gang.ranks != ranks:
        raise UsageError(
            f"{gang.launcher} started {gang.ranks} ranks, but the state knows {ranks}",
            hint="call penstock.torch.join() (or jax.distributed.initialize()) before the model is made",
        )


def _gang(environment: Mapping[str, str], names: tuple[str, str], launcher: str, job: str, life: str) -> Gang:
    try:
        rank, ranks = int(environment[names[0]]), int(environment[names[1]])
        found = Gang(rank, ranks, launcher, job, int(life))
    except ValueError as reason:
        raise UsageError(f"{names[0]} and {names[1]} are no numbers: {reason}") from reason
    if not 0 <= rank < ranks:
        raise UsageError(f"there is no rank {rank} of {ranks}", hint=f"look at {names[0]} and {names[1]}")
    return found
