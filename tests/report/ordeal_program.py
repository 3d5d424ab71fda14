"""A program that trains until it is told that it is enough, to be killed from outside: ``ordeal_program.py STREAM OUT MARKS KIND``.

KIND is ``gang`` (DDP on gloo) or ``alone`` (numpy). Every rank keeps a file in MARKS, ``LIFE.RANK``: its process and how many steps it has made.
"""

import os
import struct
import sys
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.run import Policy
from penstock.state.ranks.clock import Clock
from tests.torch.stream import Stream

STEP_S, SAVE_EVERY = 0.01, 5
#: In MARKS: end in order.
ENOUGH = "enough"
MARK = struct.Struct("<QQ")


def run_of(stream: Stream, out: Path, marks: Path) -> ps.Run:
    """Checkpoints lie beside the marks: the disk of the run may be full."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return ps.Run(
        out,
        recipe=stream.recipe(),
        registry=stream.registry,
        checkpoints=ps.Checkpoints(marks / "state", keep=ps.Keep(last=2), rank=rank, ranks=ranks),
        policy=Policy(save_every=SAVE_EVERY),
        seed=3,
    )


def gang_state() -> tuple[Any, Any]:
    """A model of DDP, and what a step does with a batch."""
    import torch

    import penstock.torch
    from tests.run.programs import Model, loss_of

    penstock.torch.join("gloo")
    torch.set_num_threads(1)
    model = penstock.torch.ddp(Model(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def work(batch: Any) -> Any:
        loss = loss_of(model, batch["tokens"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return penstock.torch.state(model, optimizer), work


def small_state() -> tuple[Any, Any]:
    """The same in numpy, alone."""
    from tests.run.small import start

    return start(), lambda batch: 1.0


def main(stream: str, out: str, marks: str, kind: str) -> None:
    place = Path(marks)
    state, work = gang_state() if kind == "gang" else small_state()
    run = run_of(Stream(Path(stream)), Path(out), place)
    mark = place / f"{os.environ['PENSTOCK_INCARNATION']}.{os.environ['RANK']}"
    with mark.open("wb", buffering=0) as file:
        for made, (_, batch) in enumerate(run.steps(state)):
            Clock().pause(STEP_S)
            run.report(loss=work(batch))
            os.pwrite(file.fileno(), MARK.pack(os.getpid(), made), 0)
            if (place / ENOUGH).exists():
                run.stop("enough")


if __name__ == "__main__":
    main(*sys.argv[1:])
