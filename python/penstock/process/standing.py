"""Where every process of a job stands now: put together from the job's state, its pulses and /proc.

The agent is not asked, so a job whose agent is busy, stopped or gone can be looked at as well.
"""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.process.gpus import GpuUse
from penstock.process.jobs import FINAL, GangState, Job, JobState
from penstock.process.lineage import Process, adopted, everyone, family
from penstock.process.pulsefile import Pulse, pulses_of
from penstock.process.redacting import Redaction

SUPERVISORS = ("keeper", "agent", "coordinator", "zygote")
Row = dict[str, Any]


def rows(job: Job, *, supervisors: bool = False, gpus: Mapping[int, GpuUse] | None = None) -> list[Row]:
    """A row for every worker and each of its descendants; of a job that is over, how each worker ended."""
    state = job.state()
    if state is None:
        return []
    gpus = gpus or {}
    redaction = Redaction(_environment(job, state))
    commands = {role["name"]: role["command"] for role in job.description()["roles"]}
    over = job.phase() in FINAL
    all_of_them = {} if over else everyone()
    left = adopted(all_of_them, state.agent, {worker["pid"] for _, worker in state.workers})
    pulses = pulses_of(job)
    found: list[Row] = []
    if supervisors and not over:
        found += list(_supervisors(job, state, all_of_them, redaction))
    for gang, worker in state.workers:
        base = {
            "job": job.id,
            "role": gang.role,
            "rank": worker["rank"],
            "worker": f"{gang.role}-{worker['rank']}",
            "incarnation": gang.incarnation,
        }
        pulse = pulses.get((gang.role, worker["rank"]))
        mine = all_of_them.get(worker["pid"])
        if mine is None or mine.start_ticks != worker["start_ticks"] or worker["exit"] is not None:
            found.append({**base, **_ended(worker, commands[gang.role], redaction)})
            continue
        own = {"how": worker["how"], "held": worker.get("held"), **_said(pulse, gang)}
        found.append({**base, **_alive(mine, 0, redaction, gpus), **own})
        found += [
            {**base, **_alive(each, depth, redaction, gpus)}
            for depth, each in family(all_of_them, mine.pid, left)
        ]
    return found


def _supervisors(
    job: Job, state: JobState, all_of_them: Mapping[int, Process], redaction: Redaction
) -> Iterator[Row]:
    for name in SUPERVISORS:
        found = all_of_them.get(getattr(state, name))
        if found is not None:
            base = {"job": job.id, "role": None, "rank": None, "worker": name, "incarnation": None}
            yield {**base, **_alive(found, 0, redaction, {})}


def _alive(found: Process, depth: int, redaction: Redaction, gpus: Mapping[int, GpuUse]) -> Row:
    used = gpus.get(found.pid)
    return {
        "pid": found.pid,
        "parent": found.parent,
        "depth": depth,
        "state": found.state,
        "cpu_s": round(found.cpu_s, 3),
        "rss_bytes": found.rss_bytes,
        "gpu_bytes": None if used is None else used.bytes,
        "gpu_percent": None if used is None else used.percent,
        "age_s": round(found.age_s(), 3),
        "command": shlex.join(redaction.command(found.words())),
    }


def _ended(worker: Mapping[str, Any], command: list[str], redaction: Redaction) -> Row:
    return {
        "pid": worker["pid"],
        "depth": 0,
        "state": "over" if worker["exit"] is not None else "gone",
        "exit": worker["exit"],
        "cpu_s": worker["cpu_s"],
        "rss_bytes": worker["rss_max_bytes"],
        "age_s": None,
        "how": worker["how"],
        "command": shlex.join(redaction.command(command)),
    }


def _said(pulse: Pulse | None, gang: GangState) -> Row:
    """Step and phase, if the worker said any in this life."""
    if pulse is None or pulse.incarnation != gang.incarnation:
        return {"step": None, "phase": None}
    return {"step": pulse.step if pulse.steps else None, "phase": pulse.phase or None}


def _environment(job: Job, state: JobState) -> dict[str, str]:
    """What the job was started with, as far as it can be seen; for the secrets in it."""
    from penstock.process.lineage import process

    agent = process(state.agent)
    return agent.environment() if agent is not None else {}
