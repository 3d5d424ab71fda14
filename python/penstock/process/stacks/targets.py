"""Which process of each worker is looked at."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.process.job.catalogue import Job, JobState
from penstock.process.stacks.kernel import children, family, runs_python
from penstock.process.watch.pulse_file import Pulse, pulses_of


class Target(NamedTuple):
    """A worker that runs, and the process that speaks for it."""

    role: str
    rank: int
    pid: int
    process: int
    is_python: bool


def targets_of(job: Job, ranks: frozenset[int] | None = None, known: Path | None = None) -> list[Target]:
    """Every worker that runs, or those of some ranks."""
    state = job.state() if known is None else msgspec.json.decode(known.read_bytes(), type=JobState)
    pulses = pulses_of(job)
    below = children()
    return [
        _target(gang.role, worker, pulses.get((gang.role, worker["rank"])), below)
        for gang, worker in (state.workers if state else [])
        if worker["exit"] is None and (ranks is None or worker["rank"] in ranks)
    ]


def _target(role: str, worker: dict[str, Any], pulse: Pulse | None, below: dict[int, list[int]]) -> Target:
    """The process that pulses; else the worker if it is a Python; else the nearest Python below it."""
    rank, pid = worker["rank"], worker["pid"]
    if runs_python(pid) and (pulse is None or pulse.pid == pid):
        return Target(role, rank, pid, pid, True)
    relatives = family(pid, below)
    if pulse is not None and pulse.pid in relatives:
        relatives = [pulse.pid, *relatives]
    process = next((relative for relative in relatives if runs_python(relative)), None)
    return Target(role, rank, pid, process or pid, process is not None)
