"""Which process of each worker is looked at."""

from typing import NamedTuple

import msgspec

from penstock.process.jobs import Job
from penstock.process.pulsefile import Pulse, pulses_of
from penstock.process.stacks.kernel import children, family, runs_python


class Target(NamedTuple):
    """A worker that runs, and the process that speaks for it."""

    role: str
    rank: int
    pid: int
    process: int
    is_python: bool


class _Worker(msgspec.Struct):
    rank: int
    pid: int
    slot: int = -1
    exit: object = None


class _Gang(msgspec.Struct):
    role: str
    workers: list[_Worker]


class _State(msgspec.Struct):
    gangs: list[_Gang] = []


def targets_of(job: Job, ranks: frozenset[int] | None = None) -> list[Target]:
    """Every worker that runs, or those of some ranks."""
    state = msgspec.json.decode((job.directory / "state.json").read_bytes(), type=_State)
    pulses = pulses_of(job)
    below = children()
    return [
        _target(gang.role, worker, pulses[worker.slot] if 0 <= worker.slot < len(pulses) else None, below)
        for gang in state.gangs
        for worker in gang.workers
        if worker.exit is None and worker.pid > 0 and (ranks is None or worker.rank in ranks)
    ]


def _target(role: str, worker: _Worker, pulse: Pulse | None, below: dict[int, list[int]]) -> Target:
    """The process that pulses; else the worker if it is a Python; else the nearest Python below it."""
    if runs_python(worker.pid) and (pulse is None or pulse.pid == worker.pid):
        return Target(role, worker.rank, worker.pid, worker.pid, True)
    relatives = family(worker.pid, below)
    if pulse is not None and pulse.pid in relatives:
        relatives = [pulse.pid, *relatives]
    process = next((pid for pid in relatives if runs_python(pid)), None)
    return Target(role, worker.rank, worker.pid, process or worker.pid, process is not None)
