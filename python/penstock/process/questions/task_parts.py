"""Parts of an answer, made on one host so that equal ones of all hosts can be put together. Pure."""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.process.job.catalogue import JobState
from penstock.process.questions.number_ranges import ranges

DIGEST_LETTERS = 24


def part(
    same: object, *, ranks: Iterable[int], head: Any, body: str = "", about: Any = None, cut: int = 0
) -> dict[str, Any]:
    """One part. Parts with equal ``same`` become one, of all their hosts and ranks."""
    digest = hashlib.sha256(msgspec.json.encode(same)).hexdigest()[:DIGEST_LETTERS]
    return {
        "digest": digest,
        "ranks": ranges(ranks),
        "head": head,
        "body": body,
        "about": about,
        "cut": cut,
    }


def first_ranks(state: JobState | None) -> dict[str, int]:
    """The number among the ranks of all hosts that rank 0 of this host has, by role."""
    return {gang.role: gang.first_rank for gang in state.gangs} if state else {}
