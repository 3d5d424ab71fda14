"""Where every process of a job stands now: put together from the job's state, its pulses and /proc.

The agent is not asked, so a job whose agent is busy, stopped or gone can be looked at as well.
"""

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.process.jobs import FINAL, GangState, Job, JobState
from penstock.process.lineage import Process, descendants, everyone
from penstock.process.pulsefile import Pulse, pulses_of
from penstock.process.redacting import Redaction

SUPERVISORS = ("keeper", "agent", "coordinator", "zygote")
GPU_PATIENCE_S = 5.0
Row = dict[str, Any]


def rows(job: Job, *, supervisors: bool = False, gpu_bytes: Mapping[int, int] | None = None) -> list[Row]:
    """A row for every worker and each of its descendants; of a job that is over, how each worker ended."""
    state = job.state()
    if state is None:
        return []
    redaction = Redaction(_environment(job, state))
    commands = {role["name"]: role["command"] for role in job.description()["roles"]}
    over = job.phase() in FINAL
    all_of_them = {} if over else everyone()
    places = _places(job)
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
        place = places[gang.role] + worker["rank"]
        pulse = pulses[place] if place < len(pulses) else None
        mine = all_of_them.get(worker["pid"])
        if mine is None or mine.start_ticks != worker["start_ticks"] or worker["exit"] is not None:
            found.append({**base, **_ended(worker, commands[gang.role], redaction)})
            continue
        own = {"how": worker["how"], **_said(pulse, gang)}
        found.append({**base, **_alive(mine, 0, redaction, gpu_bytes), **own})
        found += [
            {**base, **_alive(each, depth, redaction, gpu_bytes)}
            for depth, each in descendants(all_of_them, mine.pid)
        ]
    return found


def _supervisors(
    job: Job, state: JobState, all_of_them: Mapping[int, Process], redaction: Redaction
) -> Iterator[Row]:
    for name in SUPERVISORS:
        found = all_of_them.get(getattr(state, name))
        if found is not None:
            base = {"job": job.id, "role": None, "rank": None, "worker": name, "incarnation": None}
            yield {**base, **_alive(found, 0, redaction, None)}


def _alive(found: Process, depth: int, redaction: Redaction, gpu_bytes: Mapping[int, int] | None) -> Row:
    return {
        "pid": found.pid,
        "parent": found.parent,
        "depth": depth,
        "state": found.state,
        "cpu_s": round(found.cpu_s, 3),
        "rss_bytes": found.rss_bytes,
        "gpu_bytes": None if gpu_bytes is None else gpu_bytes.get(found.pid, 0),
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


def _places(job: Job) -> dict[str, int]:
    """Where the workers of each role begin among all of the job."""
    found: dict[str, int] = {}
    begin = 0
    for role in job.description()["roles"]:
        found[role["name"]] = begin
        begin += role["ranks"]
    return found


def _environment(job: Job, state: JobState) -> dict[str, str]:
    """What the job was started with, as far as it can be seen; for the secrets in it."""
    from penstock.process.lineage import process

    agent = process(state.agent)
    return agent.environment() if agent is not None else {}


def gpu_memory() -> dict[int, int] | None:
    """Bytes on GPUs by process; nothing on a machine where that cannot be asked."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=GPU_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found: dict[int, int] = {}
    for line in done.stdout.splitlines():
        pid, _, mebibytes = line.partition(",")
        if pid.strip().isdigit() and mebibytes.strip().isdigit():
            found[int(pid)] = found.get(int(pid), 0) + (int(mebibytes) << 20)
    return found
