"""``penstock stop``: end a job."""

import time
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.process.choice import job_called
from penstock.errors import JobSilent, UsageError
from penstock.process.asking import stop as ask_to_stop
from penstock.process.jobs import FINAL

#: Beyond the grace: killing, reading logs to the end, writing the state.
SLACK_S = 15.0
LOOK_S = 0.01

app = command_app(
    "stop",
    "End a job: SIGTERM to its ranks, SIGKILL to all of its tree when the grace is over.",
    examples="  penstock stop train-3f2a\n  penstock stop train-3f2a --force",
)


@app.default
def stop(
    job: str,
    *,
    grace: Annotated[float | None, Parameter(help="Seconds until SIGKILL (default: the job's own).")] = None,
    force: Annotated[bool, Parameter(negative=(), help="SIGKILL at once.")] = False,
    json: Json = False,
) -> int:
    """Return when the job is over. A job that is over already stays as it is.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    if grace is not None and not 0 <= grace <= 86400:
        raise UsageError(f"--grace {grace}: seconds from 0 to a day")
    found = job_called(job)
    ask_to_stop(found, grace_s=grace, force=force)
    own_s = max(role["policy"]["stop_grace_ms"] for role in found.description()["roles"]) / 1000
    until = time.monotonic() + (own_s if grace is None else grace) + SLACK_S
    while (phase := found.phase()) not in (*FINAL, "lost"):
        if time.monotonic() > until:
            raise JobSilent(job=found.id, reason="it was asked to stop and is still there")
        time.sleep(LOOK_S)
    state = found.state()
    if json:
        print_json({"job": found.id, "phase": phase, "reason": state.reason if state else ""})
    else:
        say(f"{found.id}: {state.reason if state and phase != 'lost' else 'what was left is swept'}")
    return 0
