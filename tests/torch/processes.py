"""What real processes do in tests: ranks of a gloo group, and a training run that is killed.

Run as ``python -m tests.torch.processes JOB STREAM OUT``. It imports torch once and forks its processes, so that a test with
four ranks costs one import. Each process writes what it saw into a file of its own.
"""

import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch._dynamo  # optimizers and groups import it when first used: once here rather than once per process
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from penstock import errors
from penstock.torch import current_lane, lane_of, loader
from tests.torch.stream import Stream

STEPS = 24
SAVE_EVERY = 5


def forked(work: Callable[[], None]) -> int:
    """Run something in a child; the child's process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:  # noqa: BLE001 - whatever it is, the child ends here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def statuses(children: list[int]) -> list[int]:
    """How each ended: an exit code, or a signal's number below zero."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def rank(number: int, world: int, stream: Stream, out: Path) -> None:
    """One rank: its lane in the group and, with four ranks, in a mesh of two by two; and the rows it gets there."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{out}/rendezvous-{world}", rank=number, world_size=world
    )
    lanes = {"group": current_lane()}
    if world == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        lanes |= {"dp": lane_of(mesh), "tp": lane_of(mesh, "tp"), "both": lane_of(mesh, ("tp", "dp"))}
        lanes["part"] = lane_of(mesh["dp"])
        with pytest.raises(errors.UsageError, match="no dimension pp") as caught:
            lane_of(mesh, "pp")
        assert caught.value.hint == "its dimensions are dp, tp"
    seen = {}
    for name, lane in lanes.items():
        wanted = None if name == "group" else lane
        with loader(stream.recipe(), lane=wanted, registry=stream.registry, threads=1) as batches:
            assert batches.lane == lane
            taken = list(itertools.islice(batches, 8))
        seen[name] = {
            "lane": [lane.number, lane.of],
            "digests": [batch.digest for batch in taken],
            "tokens": [batch["tokens"].tolist() for batch in taken],
        }
    (out / f"rank-{number}-of-{world}.json").write_text(json.dumps(seen))
    distributed.destroy_process_group()


def train(stream: Stream, out: Path, die_at: str = "") -> None:
    """A small language model; writes every loss, saves its state now and then, and may kill itself at a named point."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(1002, 16), torch.nn.GELU(), torch.nn.Linear(16, 1002))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    saved = out / "state.pt"
    with (
        loader(stream.recipe(), registry=stream.registry, prefetch=3, threads=2) as batches,
        (out / "losses.jsonl").open("a") as losses,
    ):
        if saved.exists():
            state = torch.load(saved, weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            batches.load_state_dict(state["loader"])
        for batch in batches:
            tokens = batch["tokens"]
            loss = torch.nn.functional.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.write(json.dumps([batch.step, loss.item().hex(), batch.digest]) + "\n")
            losses.flush()
            _maybe_die(die_at, f"trained:{batch.step}")
            if batch.step % SAVE_EVERY == SAVE_EVERY - 1:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "loader": batches.state_dict()}, out / "staged.pt")
                _maybe_die(die_at, f"staged:{batch.step}")
                (out / "staged.pt").replace(saved)
                _maybe_die(die_at, f"saved:{batch.step}")
            if batch.step == STEPS - 1:
                return


def _maybe_die(die_at: str, point: str) -> None:
    if die_at == point:
        os.kill(os.getpid(), signal.SIGKILL)


def ranks(stream: Stream, out: Path) -> None:
    """A group of two and a group of four."""
    for world in (2, 4):
        children = [forked(partial(rank, number, world, stream, out)) for number in range(world)]
        assert statuses(children) == [0] * world


def killings(stream: Stream, out: Path) -> None:
    """One run without a kill, and one that is killed three times, at different points."""
    for name, deaths in {"whole": [], "killed": ["trained:7", "staged:14", "saved:19"]}.items():
        (out / name).mkdir()
        for die_at in [*deaths, ""]:
            status = statuses([forked(partial(train, stream, out / name, die_at))])
            assert status == [-signal.SIGKILL if die_at else 0], (name, die_at, status)


if __name__ == "__main__":
    job, stream_folder, out_folder = sys.argv[1:]
    {"ranks": ranks, "killings": killings}[job](Stream(Path(stream_folder)), Path(out_folder))
