"""What real processes do in tests of runs. Imports torch once and forks its processes, so that a gang costs one import.

Run as ``python -m tests.run.programs NAME STREAM OUT``; each program writes what it saw into files below OUT.
"""

import json
import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers and groups import it when first used: once here rather than once per process
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import penstock as ps
import penstock.torch
from penstock.events import points
from penstock.run import EXIT_LEFT, Leave, Policy
from tests.torch.processes import forked, statuses
from tests.torch.stream import Stream

STEPS = 18
SAVE_EVERY = 5


class Model(nn.Module):
    """Small, with dropout (so that generators matter) and several layers (so that buckets do)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(1002, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width)
        )
        self.outer = nn.Linear(width, 1002)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.words(tokens)
        return self.outer(hidden + self.inner(hidden))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Of the next token."""
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


@dataclass(frozen=True)
class Faults:
    """What happens on which rank at a step: a loss that is no number, a signal to leave, and what the program itself asks for."""

    nan: tuple[int, int] | None = None
    term: tuple[int, int] | None = None
    save: tuple[int, int] | None = None
    stop: tuple[int, int] | None = None

    def act(self, run: ps.Run, step: int, loss: torch.Tensor) -> torch.Tensor:
        if self.term == (run.rank, step):
            os.kill(os.getpid(), signal.SIGTERM)
        if self.save == (run.rank, step):
            run.save()
        if self.stop == (run.rank, step):
            run.stop(f"rank {run.rank} has had enough")
        return loss * math.nan if self.nan == (run.rank, step) else loss


def train(
    stream: Stream,
    out: Path,
    policy: Policy,
    *,
    wrap: Any = None,
    early: bool = True,
    faults: Faults | None = None,
) -> None:
    """A run as a user would write it."""
    penstock.torch.join("gloo")
    torch.set_num_threads(1)
    run = ps.Run(
        out, recipe=stream.recipe(), registry=stream.registry, policy=policy, seed=3, deterministic=True
    )
    model = Model()
    wrapped = model if wrap is None else wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    for step, batch in run.steps(penstock.torch.state(wrapped, optimizer)):
        optimizer.zero_grad()
        loss = loss_of(wrapped, batch["tokens"])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        loss = (faults or Faults()).act(run, step, loss.detach())
        if early:
            if run.accept(loss, norm, tokens=batch["tokens"].numel()):
                optimizer.step()
        else:
            optimizer.step()
            run.report(loss=loss, grad_norm=norm, tokens=batch["tokens"].numel())


def sharded(model: nn.Module) -> nn.Module:
    """FSDP2."""
    from torch.distributed.fsdp import fully_shard

    fully_shard(model.inner)
    return fully_shard(model)


WRAPS: dict[str, Any] = {
    "alone": None,
    "ddp": penstock.torch.ddp,
    "fsdp": sharded,
    "plain": nn.parallel.DistributedDataParallel,
}


def life(
    work: Callable[[], None], ranks: int, number: int, out: Path, accident: dict[int, str] | None = None
) -> list[int]:
    """One life of a gang, ended as a supervisor would when a rank is killed: how each rank ended."""

    def rank(place: int) -> None:
        variables = {"RANK": place, "WORLD_SIZE": ranks, "LOCAL_RANK": place, "PENSTOCK_INCARNATION": number}
        os.environ |= {name: str(value) for name, value in variables.items()}
        os.environ |= {"PENSTOCK_JOB": out.name, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        if ranks > 1:
            store = distributed.FileStore(str(out.with_suffix(f".rendezvous-{number}")), ranks)
            distributed.init_process_group("gloo", store=store, rank=place, world_size=ranks)
        # Read from the variable when a process starts, which a fork does not.
        points._plans.update(points._parse((accident or {}).get(place, "")))
        try:
            work()
        except Leave as left:
            os._exit(left.code)

    children = [forked(partial(rank, place)) for place in range(ranks)]
    if not accident:
        return statuses(children)
    ended, status = os.waitpid(children[next(iter(accident))], 0)
    for child in children:
        if child != ended:
            os.kill(child, signal.SIGKILL)
    return [os.waitstatus_to_exitcode(status), *statuses([pid for pid in children if pid != ended])]


def resumes(stream: Stream, out: Path, kind: str, ranks: int, places: str) -> None:
    """One run without an accident, and one with a kill at each of several places."""
    policy = Policy(save_every=SAVE_EVERY, stop_at=STEPS, digest_every=1)
    work = partial(train, stream, out / "whole", policy, wrap=WRAPS[kind])
    assert life(work, ranks, 0, out / "whole") == [0] * ranks
    work = partial(train, stream, out / "killed", policy, wrap=WRAPS[kind])
    for number, place in enumerate(places.split(",")):
        accident = {number % ranks: place}
        assert life(work, ranks, number, out / "killed", accident)[0] == -signal.SIGKILL, place
    assert life(work, ranks, number + 1, out / "killed") == [0] * ranks


def elastic(stream: Stream, out: Path) -> None:
    """FSDP2 on four ranks all the way; on four and then on two, once as it should and once with a kill."""

    def go(
        name: str, number: int, ranks: int, stop: int, accident: dict[int, str] | None = None
    ) -> list[int]:
        policy = Policy(save_every=SAVE_EVERY, stop_at=stop, digest_every=1)
        return life(
            partial(train, stream, out / name, policy, wrap=sharded), ranks, number, out / name, accident
        )

    assert go("four", 0, 4, 14) == [0] * 4
    for name in ("changed", "killed"):
        assert go(name, 0, 4, 8) == [0] * 4
    assert go("killed", 1, 2, 14, {1: "run.step=kill@3"})[0] == -signal.SIGKILL
    for number, name in ((1, "changed"), (2, "killed")):
        assert go(name, number, 2, 14) == [0] * 2


def together(stream: Stream, out: Path) -> None:
    """What one rank meets with is decided by all: a loss that is no number, late and early, and a request to leave."""

    def go(name: str, number: int, expected: int, **more: Any) -> None:
        policy = Policy(save_every=SAVE_EVERY, stop_at=14, digest_every=1, non_finite="skip")
        work = partial(train, stream, out / name, policy, wrap=penstock.torch.ddp, **more)
        assert life(work, 4, number, out / name) == [expected] * 4, name

    go("early", 0, 0, faults=Faults(nan=(2, 7)))
    go("late", 0, 0, faults=Faults(nan=(2, 7)), early=False)
    go("left", 0, EXIT_LEFT, faults=Faults(term=(1, 6)))
    go("left", 1, 0)
    go("asked", 0, 0, faults=Faults(save=(1, 3), stop=(2, 7)))
    go("asked", 1, 0)


def lanes(stream: Stream, out: Path) -> None:
    """Ranks that differ in tensor parallelism alone share a lane: a mesh of two by two says so by its names."""

    def look() -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        unknown = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        model = nn.Linear(4, 4)
        seen = {"group": penstock.torch.state(model).lane_of()}
        for name, candidate in (("mesh", mesh), ("unknown", unknown)):
            spread = distribute_tensor(torch.ones(4, 4), candidate, [Replicate(), Shard(0)])
            model.weight = nn.Parameter(spread)
            try:
                seen[name] = penstock.torch.state(model).lane_of()
            except ps.errors.UsageError as problem:
                seen[name] = str(problem)
        seen["given"] = penstock.torch.state(model, lane=ps.Lane(1, of=3)).lane_of()
        shared = penstock.torch.state(model).share(f"of {distributed.get_rank()}".encode()).decode()
        rows = penstock.torch.state(model).agree([distributed.get_rank(), math.nan, 1e300])
        document = {**{name: str(lane) for name, lane in seen.items()}, "shared": shared, "rows": repr(rows)}
        (out / f"{distributed.get_rank()}.json").write_text(json.dumps(document))

    assert life(look, 4, 0, out / "lanes") == [0] * 4


if __name__ == "__main__":
    name, stream_folder, out_folder, *more = sys.argv[1:]
    programs: dict[str, Any] = {"resumes": resumes, "elastic": elastic, "together": together, "lanes": lanes}
    words = [int(word) if word.isdecimal() else word for word in more]
    programs[name](Stream(Path(stream_folder)), Path(out_folder), *words)
    print(json.dumps({"done": name}))
