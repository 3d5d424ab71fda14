"""A user's program, started by any launcher: loops of three kinds, in each of which the state counts the steps that were executed.

``program.py OUT STREAM LOOPS crash|end``: the first start crashes in step 7, with steps up to 5 saved, or ends after step 7, which is saved. Later
ones train to step 12. LOOPS are ``run`` (a run, over a process group), ``group`` (by hand, over one) and ``bare`` (by hand, without one and
without torch); no optimizer, because the first one costs more than all else. Every rank writes what it resumed from and came to, or the error, to ``OUT/said/START-RANK.json``.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.errors import PenstockError

SAVE_EVERY, FIRST, LAST = 5, 7, 12
DEADLINE_S = 60.0
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


class Program:
    """One rank of one start."""

    def __init__(self, out: Path, stream: Path, how: str) -> None:
        self.out, self.stream = out, stream
        variables = next((names for names in _RANKS if names[0] in os.environ), None)
        self.rank, self.ranks = (0, 1) if variables is None else (int(os.environ[name]) for name in variables)
        said = out / "said"
        said.mkdir(parents=True, exist_ok=True)
        self.start = len(list(said.glob(f"*-{self.rank}.json")))
        self.said = said / f"{self.start}-{self.rank}.json"
        self.crashes = self.start == 0 and how == "crash"
        self.last = FIRST if self.start == 0 else LAST
        #: What a crash leaves as it is.
        self.suspended: list[Any] = []

    def bare(self) -> dict[str, Any]:
        """Ranks that cannot talk to each other."""
        tree = {"count": np.zeros(64)}

        def step() -> float:
            tree["count"] += 1
            return float(tree["count"].min())

        return self._by_hand("bare", tree, step, rank=self.rank, ranks=self.ranks)

    def group(self) -> dict[str, Any]:
        """Ranks of a process group."""
        import torch

        import penstock.torch

        penstock.torch.join("gloo", timeout_s=DEADLINE_S)
        model = torch.nn.Linear(8, 8, bias=False)
        torch.nn.init.zeros_(model.weight)

        def step() -> float:
            model.weight.data += 1
            return float(model.weight.min())

        return self._by_hand("group", penstock.torch.state(model), step)

    def run(self) -> dict[str, Any]:
        """The loop of a run."""
        import torch

        import penstock.torch
        from penstock.run import Policy
        from tests.torch.stream import Stream

        penstock.torch.join("gloo", timeout_s=DEADLINE_S)
        stream = Stream(self.stream)
        policy = Policy(save_every=SAVE_EVERY, stop_at=100 if self.crashes else self.last)
        run = ps.Run(self.out / "run", recipe=stream.recipe(), registry=stream.registry, policy=policy)
        model = torch.nn.Linear(8, 8, bias=False)
        torch.nn.init.zeros_(model.weight)
        steps = run.steps(penstock.torch.state(model))
        first: int | None = None
        for step, _ in steps:
            first = step if first is None else first
            if self.crashes and step == FIRST - 1:
                self.suspended.append(steps)
                break
            if run.accept(loss=1.0):
                model.weight.data += 1
        return {"resumed": first or None, "incarnation": run.incarnation, "count": float(model.weight.min())}

    def _by_hand(self, name: str, tree: Any, step: Callable[[], float], **ranks: int) -> dict[str, Any]:
        checkpoints = ps.Checkpoints(
            self.out / name, rank=ranks.get("rank"), ranks=ranks.get("ranks"), deadline_s=DEADLINE_S
        )
        checkpoint = checkpoints.resume(tree)
        count = 0.0
        first = 0 if checkpoint is None else checkpoint.step
        for done in range(first + 1, self.last + 1):
            count = step()
            if done % SAVE_EVERY == 0 or (done == self.last and not self.crashes):
                checkpoints.save(done, tree).wait()
        incarnation = checkpoints.begin(tree)
        if self.crashes:
            self.suspended.append(checkpoints)
        else:
            checkpoints.close()
        return {"resumed": first or None, "incarnation": incarnation, "count": count}


def main(out: str, stream: str, loops: str, how: str) -> None:
    """All loops, one after another; a crash comes at the end and spares none of them."""
    program = Program(Path(out), Path(stream), how)
    said: dict[str, Any] = {}
    for loop in loops.split(","):
        try:
            said[loop] = getattr(program, loop)()
        except PenstockError as problem:
            said[loop] = {"error": type(problem).__name__, "reason": str(problem)}
    program.said.write_text(json.dumps(said))
    if program.crashes:
        if program.rank == program.ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
