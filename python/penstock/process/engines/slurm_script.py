"""The batch script that Slurm gets: options as ``#SBATCH`` lines, and one process that starts a task on every host. Pure.

``--no-kill`` keeps the allocation when a host is lost. What supervises ranks is the job itself; Slurm is asked for hosts only.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.errors.root import UsageError
from penstock.process.engines.allocation import EngineOption, HostRequest, HostStart
from penstock.process.engines.allocation_directory import ERRORS, OUTPUT, PLAN
from penstock.process.questions.host_sets import fold

#: How long before the end of the time ranks are asked to save; Slurm may say it a minute earlier.
NOTICE_S = 120
#: Options that would contradict what a script is made for.
REFUSED = {
    "array": "start several jobs instead",
    "wrap": "the command stands after the options",
    "parsable": "--json with --detach has the number",
    "test-only": "--dry-run prints the script",
    "ntasks": "`penstock run` starts the ranks itself: --ranks N",
    "ntasks-per-node": "`penstock run` starts the ranks itself: --ranks N",
    "wait": "without --detach the command stays until the job has ended",
}
#: Short and other names of options that we set as well.
ALIASES = {
    "N": "nodes",
    "J": "job-name",
    "p": "partition",
    "t": "time",
    "o": "output",
    "e": "error",
    "n": "ntasks",
    "a": "array",
    "D": "chdir",
    "W": "wait",
    "k": "no-kill",
    "A": "account",
    "q": "qos",
    "w": "nodelist",
    "x": "exclude",
    "C": "constraint",
    "G": "gpus",
}


class BatchScript(NamedTuple):
    """The script, and what of the wishes was overruled."""

    text: str
    notes: Sequence[str]


def batch_script(request: HostRequest, start: HostStart, directory: Path) -> BatchScript:
    """What ``sbatch`` gets."""
    ours: dict[str, str | None] = {
        "job-name": directory.name,
        "nodes": str(request.all_hosts),
        "ntasks-per-node": "1",
        "no-kill": None,
        "open-mode": "append",
        "output": str(directory / OUTPUT),
        "error": str(directory / ERRORS),
        "chdir": str(start.directory),
    }
    if request.time_s is not None:
        ours["time"] = slurm_time(request.time_s)
    if request.queue:
        ours["partition"] = request.queue
    if request.gpus_per_host:
        ours["gpus-per-node"] = str(request.gpus_per_host)
    theirs, notes = _own_options(request.own_options, ours)
    if request.excluded:
        wished = theirs.pop("exclude", None)
        ours["exclude"] = ",".join([*([wished] if wished else []), fold(request.excluded)])
    ours.setdefault("signal", theirs.pop("signal", None) or f"USR1@{NOTICE_S}")
    lines = [_line(name, value) for name, value in {**ours, **theirs}.items()]
    variables = [f"export {name}={shlex.quote(value)}" for name, value in start.variables.items()]
    call = shlex.join([sys.executable, "-m", "penstock.process.engines.batch_task", str(directory)])
    return BatchScript("\n".join(["#!/bin/bash", *lines, *variables, f"exec {call}", ""]), notes)


def step_command(hosts: int, start: HostStart) -> list[str]:
    """The step that starts one task on every host: they outlive the loss of one of them, and of this very command."""
    options = [
        f"--nodes={hosts}",
        f"--ntasks={hosts}",
        "--ntasks-per-node=1",
        "--overlap",
        "--no-kill",
        "--kill-on-bad-exit=0",
    ]
    task = [sys.executable, "-m", "penstock.process.engines.host_task", *start.command]
    return ["srun", *options, *task]


def plan(request: HostRequest, start: HostStart) -> dict[str, object]:
    """What the script's process reads (``PLAN``)."""
    return {"step": step_command(request.all_hosts, start), "hosts": request.all_hosts}


def slurm_time(seconds: float) -> str:
    """``HH:MM:SS``, rounded up to a minute, which is Slurm's own unit."""
    minutes = max(1, -(-int(-(-seconds // 1)) // 60))
    return f"{minutes // 60}:{minutes % 60:02}:00"


def _own_options(
    wishes: Sequence[EngineOption], ours: dict[str, str | None]
) -> tuple[dict[str, str | None], list[str]]:
    theirs: dict[str, str | None] = {}
    notes = []
    for wish in wishes:
        name = ALIASES.get(wish.name, wish.name)
        if name in REFUSED:
            raise UsageError(f"--with {wish.name} cannot be used here", hint=REFUSED[name])
        if name in ours:
            value = ours[name]
            kept = f"{name}={value}" if value is not None else name
            notes.append(f"--with {wish.name}={wish.value or ''} is overruled by {kept}")
            continue
        theirs[name] = wish.value
    return theirs, notes


def _line(name: str, value: str | None) -> str:
    option = name if value is None else f"{name}={shlex.quote(value)}"
    if "\n" in option:
        raise UsageError(f"an option of Slurm must be one line, got {option!r}")
    return f"#SBATCH --{option}"


__all__ = ["PLAN", "BatchScript", "batch_script", "plan", "slurm_time", "step_command"]
