"""The part of one host in a check of a job that runs: it connects to whoever asked, who listens on a host of the job."""

import os
from typing import Any

from penstock.errors.health import CheckFailed
from penstock.process.health.participant import ExaminerPlace, Participant, take_part
from penstock.process.job.catalogue import Job


def check_parts(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Nothing is answered on this way: what this host says goes to the examiner."""
    name = str((job.host_file() or {}).get("name", ""))
    number = task["numbers"].get(name)
    if number is None:
        raise CheckFailed(reason=f"this host is called {name}, and nobody of that name was asked")
    place = ExaminerPlace(str(task["address"]), int(task["port"]))
    token = bytes.fromhex(task["token"])
    take_part(
        Participant(int(number), name), place, token, limit_s=float(task["limit_s"]), environment=os.environ
    )
    return []
