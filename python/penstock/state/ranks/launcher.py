"""What launchers tell the processes they start: their place among the ranks, and a name that the ranks of one start share.

No launcher gives every start a name of its own. Slurm counts steps and requeues, torchrun counts restarts, but a second ``torchrun`` with the
same ``--rdzv-id`` has the name of the first, and a static rendezvous has none. So such a name only finds the others; ``roll`` says who
they are.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import UsageError

#: Where ranks find their rank, how many there are, and their number on the host; the innermost launcher comes first. Inside of an
#: allocation mpirun starts its daemons with srun, so what Slurm says there is about those.
_PLACES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """One rank of how many, and its number on the host."""

    rank: int = 0
    ranks: int = 1
    local: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """A start, as far as its launcher names it."""

    launcher: str
    #: The launcher's name for the job, and what tells starts inside of it apart (a step, a port).
    job: str
    part: str = ""
    #: How often the launcher has started it again.
    life: int = 0

    @property
    def name(self) -> str:
        """The same on all ranks of a start."""
        return ".".join(word for word in (self.launcher, self.job, self.part, str(self.life)) if word)


def place_of(environment: Mapping[str, str] = os.environ) -> Place:
    """Where this process stands. An sbatch script without srun counts as one process, whatever it was given."""
    for rank, ranks, local in _PLACES:
        if rank in environment and ranks in environment:
            place = Place(*(_number(environment, name) for name in (rank, ranks, local)))
            if not 0 <= place.rank < place.ranks:
                raise UsageError(
                    f"the rank must be 0 or more and below the number of ranks, got rank {place.rank} of {place.ranks}",
                    hint=f"look at {rank} and {ranks}",
                )
            return place
    return Place()


def launch_of(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """What the launcher calls this start; None if none of those that are known has started this process."""
    get = environment.get
    if "PENSTOCK_JOB" in environment:
        return Launch("penstock", get("PENSTOCK_JOB", ""), life=_number(environment, "PENSTOCK_INCARNATION"))
    if "TORCHELASTIC_RUN_ID" in environment:
        job = get("TORCHELASTIC_RUN_ID", "")
        restarts = _number(environment, "TORCHELASTIC_RESTART_COUNT")
        return Launch("torchrun", "" if job == "none" else job, get("MASTER_PORT", ""), restarts)
    if "OMPI_COMM_WORLD_RANK" in environment:
        return Launch("mpirun", get("PMIX_NAMESPACE") or get("OMPI_MCA_ess_base_jobid", ""))
    if "SLURM_PROCID" in environment and "SLURM_STEP_NUM_TASKS" in environment:
        restarts = _number(environment, "SLURM_RESTART_COUNT")
        return Launch("slurm", get("SLURM_JOB_ID", ""), get("SLURM_STEP_ID", ""), restarts)
    if "PMI_RANK" in environment:
        return Launch("mpirun", get("MASTER_PORT", ""))
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return Launch("ranks", get("MASTER_PORT", ""))
    return None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "0")
    try:
        return int(text)
    except ValueError as reason:
        raise UsageError(f"{name} must be a number, got {text!r}") from reason
