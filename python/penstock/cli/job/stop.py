"""``penstock stop``: end a job."""

import time
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.job.choice import job_called
from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, print_json, say
from penstock.errors import JobSilent, JobUnknown, UsageError
from penstock.process.hosts.host_table import host_table
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.job.control import is_saving
from penstock.process.job.control import stop as ask_to_stop
from penstock.process.job.without_directory import removed
from penstock.process.sweep import sweep as ending

#: Beyond the grace: killing, reading logs to the end, writing the state.
SLACK_S = 15.0
#: For hosts to agree on an end that was asked for at once.
AGREEMENT_S = 6.0
LOOK_S = 0.01
#: A job whose hosts hear each other begins to end long before.
UNHEARD_S = 2.0

app = command_app(
    "stop",
    "End a job: a notice or SIGTERM to its ranks, SIGKILL to all of its tree when the grace is over.",
    examples="  penstock stop train-3f2a\n  penstock stop train-3f2a --force",
)


@app.default
def stop(
    job: str,
    *,
    grace: Annotated[float | None, Parameter(help="Seconds until SIGKILL (default: the job's own).")] = None,
    force: Annotated[
        bool, Parameter(negative=(), help="Send SIGKILL at once, even if no process of the job answers.")
    ] = False,
    json: Json = False,
) -> int:
    """Return when the job is over. A job that is over already stays as it is.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    if grace is not None and not 0 <= grace <= 86400:
        raise UsageError(f"--grace must be seconds from 0 to a day, got {grace}")
    try:
        handle = job_called(job)
    except JobUnknown as problem:
        return _stop_removed(problem, grace, force=force, json=json)
    sweep = ask_to_stop(handle, grace_s=grace, force=force)
    if sweep is None and force and handle.host_file() is not None and not _ends(handle):
        # A host that hears no leader decides nothing, not even its end; here somebody decided.
        sweep = ending(handle.directory, end=True)
    phase = handle.phase() if sweep is not None else _wait(handle, grace)
    state = handle.state()
    words = state.reason if state and phase in FINAL else "it is lost"
    if sweep is not None:
        words = sweep.words() if phase == "lost" or sweep.left else f"{words}; {sweep.words()}"
    return _tell(handle.id, phase, words, json=json, failed=sweep is not None and bool(sweep.left))


def _ends(job: Job) -> bool:
    """Whether a job of many hosts ends by itself, within what its hosts need to agree."""
    until = time.monotonic() + AGREEMENT_S
    while job.phase() not in (*FINAL, "lost"):
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True


def _wait(job: Job, grace: float | None) -> str:
    """How the job ended. A save may put that off, and the job's own limits end it in any case."""
    policies = [role["policy"] for role in job.description()["roles"]]
    own_s = max(policy["stop_grace_ms"] for policy in policies) / 1000
    save_s = max(policy.get("save_grace_ms", 0) for policy in policies) / 1000
    begun, alone_s = time.monotonic(), None
    while (phase := job.phase()) not in (*FINAL, "lost"):
        if alone_s is None and time.monotonic() > begun + UNHEARD_S:
            alone_s = _note_alone(job)
        waited_s = time.monotonic() - begun - SLACK_S - (alone_s or 0.0)
        if waited_s > max(own_s if grace is None else grace, save_s if is_saving(job) else 0.0):
            raise JobSilent(
                job=job.id,
                reason="it was asked to stop and is still there",
                hint=f"`penstock stop --force {job.id}` ends it without its help",
            )
        time.sleep(LOOK_S)
    return phase


def _note_alone(job: Job) -> float:
    """Tell whoever waits that a host which hears no leader ends with its lease; how much longer that may take."""
    host = job.host_file()
    if host is None:
        return 0.0
    try:
        table = host_table(job)
    except JobSilent:
        return 0.0
    if table.hosts is not None and not table.frozen:
        return 0.0
    lease_s = float(host.get("lease_ms", 0)) / 1000
    say(
        f"note: {host.get('name')} hears no leader and decides nothing alone: it ends with its lease, within {lease_s:g} s"
        " (--force: at once)"
    )
    return lease_s


def _stop_removed(problem: JobUnknown, grace: float | None, *, force: bool, json: bool) -> int:
    """End a job whose directory somebody removed: its processes are still there."""
    gone = [
        candidate
        for candidate in removed(home())
        if problem.wanted and candidate.id.startswith(problem.wanted)
    ]
    if len(gone) != 1:
        raise problem
    (job,) = gone
    if force:
        sweep = ending(job.directory)
        return _tell(
            job.id, "stopped", f"its directory is gone; {sweep.words()}", json=json, failed=bool(sweep.left)
        )
    job.ask_to_stop()
    until = time.monotonic() + (SLACK_S if grace is None else grace + SLACK_S)
    while job.is_there():
        if time.monotonic() > until:
            raise JobSilent(
                job=job.id,
                reason="it was asked to stop and is still there; its directory is gone",
                hint=f"`penstock stop --force {job.id}` ends it without its help",
            )
        time.sleep(LOOK_S)
    return _tell(job.id, "stopped", "its directory is gone, and now it is stopped", json=json, failed=False)


def _tell(job: str, phase: str, reason: str, *, json: bool, failed: bool) -> int:
    if json:
        print_json({"job": job, "phase": phase, "reason": reason})
    else:
        say(f"{job}: {reason}")
    return int(failed)
