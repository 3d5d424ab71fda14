"""A training run small enough to be killed often: numbers that follow from the step alone, saved and resumed like any other.

``python -m tests.faults.trainer PLACE RANK RANKS TOKEN STEPS`` resumes, trains, saves every second step, and prints a digest of its
final state and of how it began as one line of JSON.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import penstock as ps
from penstock._rust import digest
from penstock.errors import PenstockError
from tests.state.layouts import Divided

ROWS, COLUMNS = 64, 4096
EVERY = 2


def begin(rank: int, ranks: int) -> Divided:
    """The state before the first step."""
    whole = {
        "model/w": np.ones((ROWS, COLUMNS)),
        "optimizer/m": np.zeros((ROWS, COLUMNS)),
        "base": np.full(1000, 3.0),
    }
    return Divided(whole, {"model/w": 0, "optimizer/m": 0, "base": None}, rank, ranks)


def train(state: Divided, step: int) -> None:
    """One step: every element depends on all earlier steps."""
    arrays = state.arrays()
    arrays["optimizer/m"] *= 0.9
    arrays["optimizer/m"] += np.sin(arrays["model/w"] + step)
    arrays["model/w"] -= 0.01 * arrays["optimizer/m"]


def content(state: Divided) -> str:
    """What this rank holds, as one digest."""
    return digest(b"".join(array.tobytes() for array in state.arrays().values()))


def main(
    place: str, rank: int, ranks: int, token: str, steps: int, mark: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Resume and train on; ``mark`` is called at every one of the moments that ``marks`` counts."""
    mark()
    state = begin(rank, ranks)
    options: dict[str, Any] = {"token": token, "rank": rank, "ranks": ranks, "deadline_s": 20.0}
    with ps.Checkpoints(place, keep=ps.Keep(last=3), **options) as ck:
        checkpoint = ck.resume(state)
        mark()
        first = 0 if checkpoint is None else checkpoint.step
        for step in range(first, steps):
            train(state, step)
            mark()
            if (step + 1) % EVERY == 0:
                ck.save(step + 1, state, entries={"step": step + 1})
                mark()
        ck.wait()
        mark()
    return {"from": first, "content": content(state)}


def marks(first: int, steps: int) -> int:
    """How often a life that resumes at ``first`` marks its progress: begun, resumed, every step, every save, all saves written."""
    saves = sum((step + 1) % EVERY == 0 for step in range(first, steps))
    return 3 + (steps - first) + saves


if __name__ == "__main__":
    try:
        answer = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    except PenstockError as problem:
        answer = {"error": type(problem).__name__, "reason": str(problem)}
    print(json.dumps(answer))
