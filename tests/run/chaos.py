"""A training program to which something happens in nearly every life, as a plan says.

``chaos.py STREAM OUT PLAN CHECKPOINTS``: PLAN is a document with an accident per life of the job. Real torch ranks with DDP and gloo; what is killed is killed
with SIGKILL, and what is full is full.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import penstock as ps
import penstock.torch
from penstock.events import points
from penstock.run import Policy, Run
from tests.run.programs import Model, loss_of

STEPS = 100
SAVE_EVERY = 3
BALLAST = "ballast"


def arm(accident: dict[str, str], rank: int, place: Path) -> None:
    """Be ready for what is to happen in this life."""
    # Somebody has made room since the disk was full.
    (place / BALLAST).unlink(missing_ok=True)
    if accident.get("rank") == str(rank) and "points" in accident:
        # Read from the variable when Penstock is imported, which was before this process was forked.
        points._plans.update(points._parse(accident["points"]))


def happen(accident: dict[str, str], run: Run, step: int, place: Path) -> None:
    """What a rank does at a step, besides training."""
    if accident.get("rank") != str(run.rank) or accident.get("step") != str(step % 7):
        return
    if "victim" in accident:
        job = Path(os.environ["PENSTOCK_JOB_DIRECTORY"])
        pid = json.loads((job / "state.json").read_text())[accident["victim"]]
        if pid:
            os.kill(pid, signal.SIGKILL)
    if "full" in accident:
        fill(place)


def fill(place: Path) -> None:
    """Leave no room: fill a disk that is small, else forbid files of any size."""
    if os.path.ismount(place):
        with (place / BALLAST).open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


def main(recipe: str, registry: str, out: str, plan: str, checkpoints: str) -> None:
    life, rank = int(os.environ["PENSTOCK_INCARNATION"]), int(os.environ["RANK"])
    planned = json.loads(Path(plan).read_text())
    accident = planned[life] if life < len(planned) else {}
    place, ranks = Path(checkpoints), int(os.environ["WORLD_SIZE"])
    penstock.torch.join("gloo")
    torch.set_num_threads(1)
    run = ps.Run(
        out,
        recipe=ps.Recipe.load(recipe),
        registry=ps.Registry(registry),
        checkpoints=ps.Checkpoints(place / "state", keep=ps.Keep(last=2), rank=rank, ranks=ranks),
        policy=Policy(save_every=SAVE_EVERY, stop_at=STEPS, digest_every=1),
        seed=3,
        deterministic=True,
    )
    if rank == 0:
        arm(accident, rank, place)
    else:
        arm(accident, rank, Path(out))
    model = penstock.torch.ddp(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, batch in run.steps(penstock.torch.state(model, optimizer)):
        happen(accident, run, step, place)
        optimizer.zero_grad()
        loss = loss_of(model, batch["tokens"])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if run.accept(loss.detach(), norm, tokens=batch["tokens"].numel()):
            optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
