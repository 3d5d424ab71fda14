"""Which allocator an allocation belongs to."""

from pathlib import Path

from penstock.errors.engines import EngineMissing
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.allocation import Allocator
from penstock.process.engines.kubernetes.allocator import KubernetesAllocator
from penstock.process.engines.slurm import SlurmAllocator


def allocator_of(directory: Path) -> Allocator:
    """By what its journal says was asked."""
    engine = next(
        (entry.get("engine") for entry in files.story(directory) if entry.get("what") == "asked"), "slurm"
    )
    if engine == "slurm":
        return SlurmAllocator()
    if engine == "kubernetes":
        return KubernetesAllocator.of_directory(directory)
    raise EngineMissing(engine=str(engine), reason="this version knows no engine of that name")
