"""Incidents of a job: one file for each failure, written by the agent, read and told here."""

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import IncidentUnknown
from penstock.events.redaction import Redaction
from penstock.process.job.catalogue import Job


class Incident(NamedTuple):
    """A failure as it was written down, without secrets that only now are known as such."""

    number: int
    path: Path
    document: dict[str, Any]


def numbers(job: Job) -> list[int]:
    """Numbers of all incidents of a job, in order."""
    folder = job.directory / "incidents"
    if not folder.is_dir():
        return []
    return sorted(int(path.stem) for path in folder.iterdir() if re.fullmatch(r"\d+\.json", path.name))


def read(job: Job, number: int | None = None) -> Incident:
    """One incident; the newest without a number."""
    known = numbers(job)
    wanted = known[-1] if number is None and known else number
    if wanted is None or wanted not in known:
        raise IncidentUnknown(job=job.id, wanted=number, known=list(map(str, known)))
    path = job.directory / "incidents" / f"{wanted}.json"
    try:
        document: Any = json.loads(path.read_bytes())
    except (OSError, ValueError) as problem:
        raise IncidentUnknown(job=job.id, wanted=wanted, known=list(map(str, known))) from problem
    return Incident(wanted, path, Redaction().document(document))  # type: ignore[arg-type]


def ranges(ranks: list[int]) -> str:
    """Numbers as people say them: ``0-6,8``."""
    # In a run of consecutive numbers the distance to the place in the list stays the same.
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(sorted(ranks)), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def last_words(document: dict[str, Any]) -> list[tuple[list[int], dict[str, list[str]]]]:
    """Last lines by stream, equal ones once with all ranks that said them; in causal order."""
    groups: list[tuple[list[int], dict[str, list[str]]]] = []
    for rank in document.get("ranks", []):
        lines = {stream: rank.get(stream) or [] for stream in ("stdout", "stderr")}
        for ranks, known in groups:
            if known == lines:
                ranks.append(rank["rank"])
                break
        else:
            groups.append(([rank["rank"]], lines))
    return groups
