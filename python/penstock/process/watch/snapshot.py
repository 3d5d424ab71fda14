"""Where every process of a job stands now: put together from the job's state, its pulses and /proc.

The agent is not asked, so a job whose agent is busy, stopped or gone can be looked at as well.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.events.redaction import Redaction
from penstock.process.job.catalogue import FINAL, GangState, Job, JobState
from penstock.process.watch.gpus import GpuUse
from penstock.process.watch.lineage import Process, adopted, children_of, everyone, family, uptime_s
from penstock.process.watch.pulse_file import Pulse, pulses_of

SUPERVISORS = ("keeper", "agent", "coordinator", "zygote")
Row = dict[str, Any]


def rows(job: Job, *, supervisors: bool = False, gpus: Mapping[int, GpuUse] | None = None) -> list[Row]:
    """A row for every worker and each of its descendants; of a job that is over, how each worker ended."""
    state = job.state()
    if state is None:
        return []
    look = _Look(Redaction(_environment(job, state)), gpus or {})
    commands = {role["name"]: role["command"] for role in job.description()["roles"]}
    over = job.phase() in FINAL
    all_of_them = {} if over else everyone()
    children = children_of(all_of_them)
    left = adopted(children, state.agent, {worker["pid"] for _, worker in state.workers})
    pulses = pulses_of(job)
    result: list[Row] = []
    if supervisors and not over:
        result += list(_supervisors(job, state, all_of_them, look))
    for gang, worker in state.workers:
        rank = gang.first_rank + worker["rank"]
        base = {
            "job": job.id,
            "role": gang.role,
            "rank": rank,
            "worker": f"{gang.role}-{rank}",
            "incarnation": gang.incarnation,
        }
        pulse = pulses.get((gang.role, worker["rank"]))
        mine = all_of_them.get(worker["pid"])
        if mine is None or mine.start_ticks != worker["start_ticks"] or worker["exit"] is not None:
            result.append({**base, **_ended(worker, look.command(commands[gang.role]))})
            continue
        own = {"how": worker["how"], "held": worker.get("held"), **_said(pulse, gang)}
        result.append({**base, **look.row(mine, 0), **own})
        result += [
            {**base, **look.row(relative, depth)} for depth, relative in family(children, mine.pid, left)
        ]
    return result


class _Look:
    """One look at a machine: what is the same for all of its processes is read once."""

    def __init__(self, redaction: Redaction, gpus: Mapping[int, GpuUse]) -> None:
        self._redaction, self._gpus = redaction, gpus
        self._uptime_s = uptime_s()
        #: Ranks mostly have one command, and hiding secrets in it is what costs most of a row.
        self._commands: dict[tuple[str, ...], str] = {}

    def command(self, words: Iterable[str]) -> str:
        """A command as a person would type it, without secrets."""
        key = tuple(words)
        if key not in self._commands:
            self._commands[key] = shlex.join(self._redaction.command(key))
        return self._commands[key]

    def row(self, process: Process, depth: int) -> Row:
        """A process that is there."""
        used = self._gpus.get(process.pid)
        return {
            "pid": process.pid,
            "parent": process.parent,
            "depth": depth,
            "state": process.state,
            "cpu_s": round(process.cpu_s, 3),
            "rss_bytes": process.rss_bytes,
            "gpu_bytes": None if used is None else used.bytes,
            "gpu_percent": None if used is None else used.percent,
            "age_s": round(process.age_s(self._uptime_s), 3),
            "command": self.command(process.words()),
        }


def _supervisors(job: Job, state: JobState, all_of_them: Mapping[int, Process], look: _Look) -> Iterator[Row]:
    for name in SUPERVISORS:
        supervisor = all_of_them.get(getattr(state, name))
        if supervisor is not None:
            base = {"job": job.id, "role": None, "rank": None, "worker": name, "incarnation": None}
            yield {**base, **look.row(supervisor, 0)}


def _ended(worker: Mapping[str, Any], command: str) -> Row:
    return {
        "pid": worker["pid"],
        "depth": 0,
        "state": "over" if worker["exit"] is not None else "gone",
        "exit": worker["exit"],
        "cpu_s": worker["cpu_s"],
        "rss_bytes": worker["rss_max_bytes"],
        "age_s": None,
        "how": worker["how"],
        "command": command,
    }


def _said(pulse: Pulse | None, gang: GangState) -> Row:
    """Step and phase, if the worker said any in this life."""
    if pulse is None or pulse.incarnation != gang.incarnation:
        return {"step": None, "phase": None}
    return {"step": pulse.step if pulse.steps else None, "phase": pulse.phase or None}


def _environment(job: Job, state: JobState) -> dict[str, str]:
    """What the job was started with, as far as it can be seen; for the secrets in it."""
    from penstock.process.watch.lineage import process

    agent = process(state.agent)
    return agent.environment() if agent is not None else {}
