"""``python -m penstock.process.questions.task DIRECTORY``: what a question needs done on one host, as its coordinator has it done.

It gets a task as JSON on standard input and answers with parts, as JSON too: ``{"parts": [...]}`` or ``{"refused": "why"}``. A part is what
``crates/penstock-process/src/host/questions/answer.rs`` says; parts of all hosts with one digest become one. It stops by itself within
``limit_s``; shortly after that, or when nobody waits any more, it is killed with all that it started.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.process.job.catalogue import Job


def _exec(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.questions.rank_commands import run_beside

    return run_beside(job, task)


def _stacks(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.questions.host_stacks import stack_parts

    return stack_parts(job, task)


def _logs(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.questions.host_logs import log_parts

    return log_parts(job, task)


def _incident(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.questions.host_incident import incident_parts

    return incident_parts(job, task)


def _attach(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.hosts.launcher.attachment import attachment_parts

    return attachment_parts(job, task)


def _usage(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.questions.host_usage import usage_parts

    return usage_parts(job, task)


def _check(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.health.check_task import check_parts

    return check_parts(job, task)


def _failures(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    from penstock.process.exclusion.told_failures import write_told_failures

    write_told_failures(job, task["failures"])
    return []


#: What a task may do. Modules are loaded when they are needed: most of a short question is the start of this Python.
WORK: dict[str, Callable[[Job, dict[str, Any]], list[dict[str, Any]]]] = {
    "exec": _exec,
    "stacks": _stacks,
    "logs": _logs,
    "incident": _incident,
    "attach": _attach,
    "usage": _usage,
    "check": _check,
    "failures": _failures,
}


def main() -> int:
    """Do one task."""
    task = msgspec.json.decode(sys.stdin.buffer.read())
    kind = task.get("do")
    work = WORK.get(kind) if isinstance(kind, str) else None
    try:
        if work is None:
            answer: dict[str, Any] = {"refused": f"this host has another version and cannot do {kind!r}"}
        else:
            answer = {"parts": work(Job(Path(sys.argv[1])), task)}
    except PenstockError as problem:
        answer = {"refused": str(problem)}
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
