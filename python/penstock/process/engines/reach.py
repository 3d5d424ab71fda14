"""How a command gets to a job whose hosts an engine gave."""

from pathlib import Path

from penstock.errors.process import JobElsewhere
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.allocation import Allocation
from penstock.process.engines.allocators import allocator_of


def reach_of(job_directory: Path) -> list[str]:
    """What stands before the words of a command of ours that is to run on one of the job's hosts; empty where no engine gave them."""
    allocation = files.allocation_of(job_directory)
    return [] if allocation is None else _reach(allocation)


def far_job(home: Path, wanted: str) -> JobElsewhere | None:
    """A job whose hosts have homes of their own, so that this one knows it by its allocation only."""
    for directory in sorted((home / files.FOLDER).glob(f"{_literal(wanted)}*"), reverse=True):
        allocation = files.read_allocation(directory)
        if allocation is not None and allocation.engine == "kubernetes" and not _is_over(directory):
            reach = _reach(allocation)
            return JobElsewhere(
                job=allocation.name,
                reason="it runs on hosts of Kubernetes",
                hint=f"`{' '.join(reach)} ps`",
                reach=reach,
            )
    return None


def _reach(allocation: Allocation) -> list[str]:
    engine = allocator_of(allocation.directory)
    return [*engine.reach(allocation, (), ()), *engine.own_command()]


def _is_over(directory: Path) -> bool:
    return any(entry.get("what") in ("released", "ended") for entry in files.story(directory))


def _literal(text: str) -> str:
    """A name without letters that mean something in a pattern."""
    return "".join(letter for letter in text if letter.isalnum() or letter in "._-")
