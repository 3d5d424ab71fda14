"""Who keeps a job of many hosts alive that was started by ssh, besides the launcher: somebody who has attached to it.

A host that hears nothing of its launcher ends its part after ``--detach-after``. Whoever attaches has the job in front of them again, so it
goes on for as long as they look, and for good once they detach on purpose. Two files in the host directory say so: ``attached`` until when,
``unattended`` that the launcher is not heard.
"""

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.process.job.catalogue import Job
from penstock.process.questions.task_parts import part

#: How long an attachment counts that is not renewed, and how often it is.
KEPT_S = 120.0
RENEWAL_S = 40.0
ATTACHED = "attached"
UNATTENDED = "unattended"


def keep_attached(directory: Path, *, for_good: bool, now_s: float | None = None) -> bool:
    """Let this host go on without its launcher, for a while or for good; whether that changes anything.

    For good only where the launcher is not heard: as long as it is, the job is its own.
    """
    if for_good and not (directory / UNATTENDED).exists():
        return False
    until_s = math.inf if for_good else (time.time() if now_s is None else now_s) + KEPT_S
    if _until_s(directory) == math.inf:
        return for_good
    beside = directory / f"{ATTACHED}.new"
    beside.write_text(repr(until_s))
    beside.replace(directory / ATTACHED)
    return True


def is_kept(directory: Path, now_s: float) -> bool:
    """Whether somebody else than the launcher wants this host to go on."""
    return now_s < _until_s(directory)


def note_launcher(directory: Path, *, is_heard: bool) -> None:
    """Say whether the launcher is heard, for who attaches."""
    with suppress(OSError):
        if is_heard:
            (directory / UNATTENDED).unlink(missing_ok=True)
        else:
            (directory / UNATTENDED).touch()


def attachment_parts(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    """What one host does for a question of who attaches."""
    kept = keep_attached(job.directory, for_good=bool(task.get("for_good")))
    return [part(kept, ranks=[], head={"kept": kept})]


def _until_s(directory: Path) -> float:
    try:
        return float((directory / ATTACHED).read_text())
    except (OSError, ValueError):
        return 0.0
