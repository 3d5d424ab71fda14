"""Gangs of real training processes, some of which meet with an accident."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from penstock.events.points import VARIABLE
from tests.conftest import ROOT
from tests.faults.trainer import begin, content, train

STEPS = 8


def uninterrupted(ranks: int, steps: int = STEPS) -> list[str]:
    """What every rank has in the end when nothing happens."""
    ends = []
    for rank in range(ranks):
        state = begin(rank, ranks)
        for step in range(steps):
            train(state, step)
        ends.append(content(state))
    return ends


def start(
    place: Path | str,
    ranks: int = 1,
    *,
    points: dict[int, str] | None = None,
    steps: int = STEPS,
    command: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
) -> list[subprocess.Popen[str]]:
    """The processes of one incarnation; ``points`` says which rank meets with what."""
    token = uuid.uuid4().hex
    processes = []
    for rank in range(ranks):
        accident = {VARIABLE: points[rank]} if points and rank in points else {}
        processes.append(
            subprocess.Popen(
                [
                    *command,
                    sys.executable,
                    "-m",
                    "tests.faults.trainer",
                    str(place),
                    str(rank),
                    str(ranks),
                    token,
                    str(steps),
                ],
                cwd=ROOT,
                env={**os.environ, **accident, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return processes


def ends(processes: list[subprocess.Popen[str]], timeout_s: float = 60) -> list[dict[str, Any]]:
    """How each process ended: what it printed, or its exit status."""
    outcomes = []
    for process in processes:
        out, err = process.communicate(timeout=timeout_s)
        outcomes.append(
            json.loads(out) if out.strip() else {"status": process.returncode, "stderr": err[-2000:]}
        )
    return outcomes


def stop(processes: list[subprocess.Popen[str]]) -> None:
    """End what is left of an incarnation, as its agent would."""
    for process in processes:
        process.kill()
    for process in processes:
        process.communicate(timeout=60)
