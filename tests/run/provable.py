"""A user's program that is executed again by a proof, with a difference planted in the repetition where a test wants one.

``provable.py KIND STREAM OUT KILLS``: KIND is ``numpy`` (one process) or ``ddp``; KILLS are ``RANK:STEP`` by life. $PLANT says what is different
the second time, and at which step: ``tensor@7``.
"""

import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.run import Policy, Run
from tests.run.small import start, update
from tests.torch.stream import Stream

STEPS = 16


def planted(name: str, step: int | None = None) -> bool:
    """Whether this is the second time, and something is to be different now."""
    if "PENSTOCK_REPEAT" not in os.environ:
        return False
    what, _, when = os.environ.get("PLANT", "").partition("@")
    return what == name and (step is None or step == int(when))


def other_weights(recipe: ps.Recipe) -> ps.Recipe:
    """The same up to step 4."""
    return replace(recipe, weights=((0, {"web": 0.7, "code": 0.3}), (4, {"web": 0.3, "code": 0.7})))


def make(stream: Stream, out: Path) -> Run:
    """A run over the stream."""
    if planted("variable"):
        os.environ["OPENBLAS_NUM_THREADS"] = "2"
    if planted("crash"):
        raise RuntimeError("the file of weights is gone")
    return ps.Run(
        out if not planted("elsewhere") else out / "elsewhere",
        recipe=other_weights(stream.recipe()) if planted("weights") else stream.recipe(),
        registry=stream.registry,
        policy=Policy(save_every=4, stop_at=STEPS, digest_every=1, keep=ps.Keep(every=1)),
        seed=4 if planted("seed") else 3,
        deterministic="LOOSE" not in os.environ,
    )


def kill(run: Run, kills: str, life: int, step: int) -> None:
    """An accident of this life; never the second time."""
    plan = [tuple(map(int, part.split(":"))) for part in kills.split(",") if part]
    if life < len(plan) and plan[life] == (run.rank, step) and not run.is_repeating:
        os.kill(os.getpid(), signal.SIGKILL)


def meddle(run: Run, step: int) -> None:
    """Draw once more from a generator."""
    if planted("dropout", step):
        run.generator("dropout").random()
    if planted("python", step):
        random.random()


def alone(stream: Stream, out: Path, kills: str) -> None:
    """In numpy."""
    run, state = make(stream, out), start()
    for step, batch in run.steps(state):
        kill(run, kills, run.incarnation, step)
        loss, change = update(run, state, batch)
        meddle(run, step)
        if planted("outside", step):
            loss += 2**-40
        if run.accept(loss):
            state["weights"] += change
            state["taken"] += 1
        if planted("tensor", step):
            state["weights"].view(np.uint64)[5] ^= 1
    (out / "after").write_text("written after the loop")


def ddp(stream: Stream, out: Path, kills: str) -> None:
    """In torch, on as many ranks as there are."""
    import torch
    from torch import nn

    import penstock.torch
    from tests.run.programs import Model, loss_of

    penstock.torch.join("gloo")
    torch.set_num_threads(1)
    run = make(stream, out)
    model: Any = Model()
    model = penstock.torch.ddp(model) if run.settings.gang.ranks > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, batch in run.steps(penstock.torch.state(model, optimizer)):
        kill(run, kills, int(os.environ.get("PENSTOCK_INCARNATION", run.incarnation)), step)
        if planted("threads", step):
            torch.set_num_threads(2)
        if planted("torch", step):
            torch.rand(1)
        optimizer.zero_grad()
        loss = loss_of(model, batch["tokens"])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if run.accept(loss.detach(), norm, tokens=batch["tokens"].numel()):
            optimizer.step()
        if planted("tensor", step) and run.rank == 0:
            with torch.no_grad():
                next(iter(model.parameters()))[3, 3] += 1.0


def main(kind: str, stream: str, out: str, kills: str = "") -> None:
    programs: dict[str, Any] = {"numpy": alone, "ddp": ddp}
    programs[kind](Stream(Path(stream)), Path(out), kills)


if __name__ == "__main__":
    main(*sys.argv[1:])
