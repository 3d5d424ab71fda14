"""How a command gets to a job whose hosts an engine gave."""

from collections.abc import Sequence
from pathlib import Path

from penstock.process.engines.allocation_directory import allocation_of
from penstock.process.engines.slurm import SlurmAllocator


def reach_of(job_directory: Path, hosts: Sequence[str]) -> list[str]:
    """What stands before a command that is to run on one of the job's hosts; empty where no engine gave them."""
    allocation = allocation_of(job_directory)
    return [] if allocation is None else SlurmAllocator().reach(allocation, (), ())
