"""What the journal says when a life begins: enough to start it again elsewhere, and what is different from the life before."""

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from penstock._rust import digest_file
from penstock.data import Lane
from penstock.errors import RunStopped
from penstock.run.contract import Trainable
from penstock.run.directory import About
from penstock.run.journal.journal import Journal
from penstock.run.settings import Settings
from penstock.run.start.decisions import Decisions
from penstock.run.start.upkeep import say_once
from penstock.run.step.notices import Leave
from penstock.state import Checkpoints


def about(settings: Settings, checkpoints: Checkpoints) -> About:
    """What the run is."""
    return About(
        form=1,
        made=time.time(),
        seed=settings.seed,
        deterministic=settings.deterministic,
        recipe=settings.recipe.document(),
        recipe_digest=settings.recipe.digest,
        registry=settings.origin,
        checkpoints=checkpoints.store.url,
        keeps_few=True,
    )


def ending(problem: BaseException | None) -> tuple[str, dict[str, object]]:
    """How a life ended, in words, and what is known about it."""
    if problem is None:
        return "done", {}
    if isinstance(problem, Leave):
        return "left", {}
    if isinstance(problem, RunStopped):
        return "stopped", {}
    if isinstance(problem, GeneratorExit):
        return "broken off", {}
    return "failed", {"error": type(problem).__name__, "reason": str(problem)[:2000]}


def begin(journal: Journal, settings: Settings, state: Trainable, lane: Lane, before: Decisions) -> None:
    """The first lines of a life."""
    facts: dict[str, Any] = {
        "ranks": state.ranks,
        "lanes": lane.of,
        **settings.gang.to_json(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "run": str(settings.directory.path.resolve()),
        "command": list(sys.orig_argv),
        "interpreter": sys.executable,
        "program": program_digest(),
        "directory": os.getcwd(),
        "path": os.environ.get("PYTHONPATH", ""),
        "seed": settings.seed,
        "deterministic": settings.deterministic,
        "recipe": settings.recipe.digest,
        "origin": settings.origin,
        "policy": settings.policy.to_json(),
        "threads": settings.pins.threads,
        "pinned": settings.pins.facts,
        "unpinned": list(settings.pins.unpinned),
    }
    journal.write("start", sync=True, **facts)
    say_once(journal, settings)
    earlier = before.start
    if not earlier:
        return
    if before.ended in ("", "failed"):
        journal.write(
            "incident", life=before.incarnation, ended=before.ended or "killed", cause=_cause(settings)
        )
    if earlier.get("ranks") != state.ranks or earlier.get("lanes") != lane.of:
        journal.write(
            "topology", before=[earlier.get("ranks"), earlier.get("lanes")], now=[state.ranks, lane.of]
        )
    if earlier.get("recipe") != settings.recipe.digest:
        journal.write("recipe", before=earlier.get("recipe"), now=settings.recipe.digest)


def program_digest() -> str:
    """Of the file that was started, as it is now; empty when there is none."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return "" if path is None else digest_file(Path(path))
    except OSError:
        return ""


def _cause(settings: Settings) -> str:
    """What the supervisor wrote about the end of the life before; nothing where there is none."""
    folder, life = os.environ.get("PENSTOCK_JOB_DIRECTORY"), settings.gang.life
    if not folder or not life:
        return ""
    for path in sorted(Path(folder, "incidents").glob("*.json")):
        try:
            found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            continue
        if found.get("incarnation") == life - 1:
            return str(found.get("first_cause", ""))
    return ""


class Weights:
    """Tells when the mixture changes."""

    def __init__(self, settings: Settings, step: int) -> None:
        schedule = settings.recipe.weight_schedule
        #: Those that are still to come, next one last.
        self._coming = [each for each in reversed(schedule) if each[0] > step]

    def tell(self, journal: Journal, step: int) -> None:
        """Say it, if it is so from this step on."""
        while self._coming and self._coming[-1][0] <= step:
            at, weights = self._coming.pop()
            journal.write("weights", at, weights=weights)
