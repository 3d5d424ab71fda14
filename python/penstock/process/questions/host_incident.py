"""A failure as one host has written it down, for a question: what its ranks said last that failed or lost a connection."""

from typing import Any

from penstock.process.job.catalogue import Job
from penstock.process.job.incidents import numbers, read
from penstock.process.questions.task_parts import part

#: Ranks of one host that are told of; more failed for the same reason.
RANKS_MAX = 64
#: Lines of each; an incident file has as many.
LINES_MAX = 20


def incident_parts(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    """One part for each rank; equal ones of all hosts become one. A host that has nothing to tell says that."""
    document = _document(job, str(task["role"]), int(task["incarnation"]))
    ranks = [rank for rank in document.get("ranks", []) if rank.get("part", "cause") != "bystander"]
    parts = [_part(rank) for rank in ranks[:RANKS_MAX]]
    kernel = document.get("kernel") or []
    if kernel:
        parts.append(part(["kernel", kernel], ranks=[], head={"kernel": True}, body="\n".join(kernel)))
    return parts or [part("nothing", ranks=[], head={})]


def _document(job: Job, role: str, incarnation: int) -> dict[str, Any]:
    for number in reversed(numbers(job)):
        document = read(job, number).document
        if (document.get("role"), document.get("incarnation")) == (role, incarnation):
            return document
    return {}


def _part(rank: dict[str, Any]) -> dict[str, Any]:
    head = {"ended": rank.get("ended"), "error": rank.get("error"), "part": rank.get("part")}
    lines = (rank.get("stderr") or rank.get("stdout") or [])[-LINES_MAX:]
    return part([head, lines], ranks=[rank["rank"]], head=head, body="\n".join(map(str, lines)))
