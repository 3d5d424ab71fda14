"""``penstock save``: a checkpoint now, and training goes on."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.job.choice import job_called
from penstock.cli.output import Json, command_app, print_json, say
from penstock.errors import SaveUnheard, UsageError
from penstock.process.job.control import save as ask_to_save

app = command_app(
    "save",
    "Ask the ranks of a job for a checkpoint now; they save after the step that they are in, and go on.",
    examples="  penstock save train-3f2a\n  penstock save train-3f2a --timeout 600",
)


@app.default
def save(
    job: str,
    *,
    timeout: Annotated[
        float, Parameter(help="Seconds to wait until every rank has received the request.")
    ] = 60.0,
    json: Json = False,
) -> int:
    """Return when every rank that listens for notices has heard it; its save is over a little later.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    if not 0 <= timeout <= 86400:
        raise UsageError(f"--timeout must be seconds from 0 to a day, got {timeout}")
    handle = job_called(job)
    heard, listening = ask_to_save(handle, timeout_s=timeout)
    if json:
        print_json({"job": handle.id, "heard": heard, "listening": listening})
    if heard < listening:
        raise SaveUnheard(
            job=handle.id,
            reason=f"{heard} of {listening} ranks have heard it after {timeout:g} s; the others will after their step",
            hint=f"`penstock top {handle.id}` shows what they do",
        )
    if not json:
        say(f"{handle.id}: {heard} rank{'s' if heard > 1 else ''} will save after the step that they are in")
    return 0
