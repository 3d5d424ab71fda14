"""What is known of an allocation, on disk: ``$PENSTOCK_HOME/allocations/NAME/``.

    journal.jsonl   asked, submitted, granted, ended, released: a line before each step that rents anything (H10)
    plan.json       what the engine's first process starts on the hosts
    script          what the engine got
    key             the secret of hosts that join, where the home has none
    job             the name of the job, written by its hosts
    output, errors  what the ranks say
    codes/HOST      the exit code of each host's task
    ended.json      the exit code of all, written by the engine's first process

Hosts of an engine share this directory, as they share their home.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors.process import HomeUnwritable
from penstock.process.engines.allocation import Allocation
from penstock.process.job.catalogue import ALLOCATIONS

FOLDER = ALLOCATIONS
JOURNAL, PLAN, SCRIPT, KEY, JOB = "journal.jsonl", "plan.json", "script", "key", "job"
OUTPUT, ERRORS, CODES, ENDED = "output", "errors", "codes", "ended.json"
#: By which processes on a host know the allocation that they belong to.
VARIABLE = "PENSTOCK_ALLOCATION"
#: In the directory of a job: the directory of its allocation.
LINK = "allocation"
#: A job that writes more of it than this is not believed.
NAME_BYTES_MAX = 256
TRIES = 100


def new_directory(home: Path, stem: str) -> Path:
    """A directory whose name no other allocation of this home has."""
    folder = home / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in range(TRIES):
            directory = folder / f"{stem}-{os.urandom(3).hex()}"
            try:
                directory.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return directory.resolve()
    except OSError as problem:
        raise HomeUnwritable(home=home, reason=problem.strerror or str(problem)) from problem
    raise HomeUnwritable(home=home, reason=f"no free name for an allocation called {stem}")


def note(directory: Path, what: str, **about: str | int) -> None:
    """A line of the journal, on disk before anything follows from it."""
    line = json.dumps({"at": time.time(), "what": what, **about}) + "\n"
    number = os.open(directory / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(number, line.encode())
        os.fsync(number)
    finally:
        os.close(number)


def story(directory: Path) -> list[dict[str, Any]]:
    """The lines of the journal; one that a kill tore is left out."""
    try:
        lines = (directory / JOURNAL).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def write(directory: Path, name: str, text: str, *, mode: int = 0o600) -> None:
    """Put a file there, whole or not at all."""
    beside = directory / f".{name}.{os.getpid()}"
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(number, "w") as file:
        file.write(text)
    beside.replace(directory / name)


def end_code(directory: Path) -> int | None:
    """The exit code that the engine's first process wrote; nothing while it runs."""
    try:
        document = json.loads((directory / ENDED).read_text())
        return int(document["code"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def job_name(directory: Path) -> str:
    """The job that its hosts run; empty before they do."""
    try:
        with (directory / JOB).open() as file:
            return file.read(NAME_BYTES_MAX).strip()
    except FileNotFoundError:
        return ""


def tell_job(job_directory: Path, environment: Mapping[str, str]) -> None:
    """A host of a job that an engine started says which job it is; nothing where no engine did."""
    named = environment.get(VARIABLE)
    if not named or not Path(named).is_dir():
        return
    write(Path(named), JOB, f"{job_directory.name}\n")
    write(job_directory, LINK, f"{named}\n")


def allocation_of(job_directory: Path) -> Allocation | None:
    """The allocation that a job runs in, if an engine gave it one."""
    try:
        directory = Path((job_directory / LINK).read_text().strip())
    except OSError:
        return None
    return read_allocation(directory)


def read_allocation(directory: Path) -> Allocation | None:
    """What the journal says was submitted last; nothing where nothing was."""
    for entry in reversed(story(directory)):
        if entry.get("what") == "submitted":
            return Allocation(str(entry.get("engine")), directory.name, str(entry.get("number")), directory)
    return None
