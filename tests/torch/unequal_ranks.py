"""What real gangs do in tests of ranks that differ: train, save, be replaced, and end with the same bits on every rank.

Run as ``python -m tests.torch.unequal_ranks OUT``. It imports torch once and forks its gangs of two gloo ranks. No launcher's variables are
there and nobody gives a rank or a token: ``Checkpoints(place)`` has to find out by itself.
"""

import json
import logging
import os
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers and groups import it when first used: once here rather than once per process
from torch import distributed, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import penstock as ps
from penstock.errors import LayoutChanged, RanksDiffer, SaveFailed, TreeInvalid, UsageError
from penstock.torch import ddp, state
from penstock.torch import gang as torch_gang
from tests.process.jobs import wait_until
from tests.torch.processes import forked, statuses

RANKS, STEPS, SAVED = 2, 5, 2


class Residual(nn.Module):
    """A small convolutional net with batch norms, as ResNets have them, dropout, and a mask that is drawn once."""

    def __init__(self, masked: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.other = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 4)
        if masked:
            self.register_buffer("mask", (torch.rand(8) > 0.5).float())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(images)))
        hidden = torch.relu(hidden + self.other(self.second(hidden)))
        if hasattr(self, "mask"):
            hidden = hidden * self.mask[:, None, None]
        return self.head(self.drop(hidden.mean((2, 3))))


class Synchronised(nn.SyncBatchNorm):
    """PyTorch's own computes on devices only; this one says the same on the CPU."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sums = torch.stack([images.mean((0, 2, 3)), images.square().mean((0, 2, 3))])
        mean, square = all_reduce(sums) / RANKS
        variance = square - mean.square()
        with torch.no_grad():
            for kept, seen in ((self.running_mean, mean), (self.running_var, variance)):
                assert kept is not None
                kept.lerp_(seen, 0.1)
        scaled = (images - mean[:, None, None]) * (variance[:, None, None] + self.eps).rsqrt()
        return scaled * self.weight[:, None, None] + self.bias[:, None, None]


class Program:
    """One of the programs below on one rank: what it trains, and how a step goes."""

    def __init__(self, name: str, rank: int) -> None:
        torch.manual_seed(3)
        self.name, self.rank = name, rank
        self.extra: dict[str, Any] = {}
        self.average: AveragedModel | None = None
        self.model = getattr(self, f"_{name}")()
        chosen = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(chosen, lr=1e-2)
        self.state = state(self.model, self.optimizer, extra=self.extra)
        # From here on every rank draws numbers of its own.
        torch.manual_seed(100 + rank)
        random.seed(rank)

    def _broadcast(self) -> nn.Module:
        """Buffers that DDP takes from its first rank before every step."""
        return ddp(Residual())

    def _unsynced(self) -> nn.Module:
        """An accumulation under way: until its end DDP leaves each rank the buffers that it has."""
        return ddp(Residual())

    def _own_buffers(self) -> nn.Module:
        """Buffers of each rank's own, and a mask that each rank has drawn."""
        net = Residual(masked=True)
        net.mask.copy_(torch.arange(8) % 2 == self.rank)
        return ddp(net, broadcast_buffers=False)

    def _synchronised(self) -> nn.Module:
        """Statistics over all ranks, which each of them keeps: the same on all, without being broadcast."""
        net = nn.SyncBatchNorm.convert_sync_batchnorm(Residual())
        for module in net.modules():
            if isinstance(module, nn.SyncBatchNorm):
                module.__class__ = Synchronised
        # DDP refuses the class on the CPU.
        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(lambda tensor: distributed.all_reduce(tensor.grad))
        return net

    def _averaged(self) -> nn.Module:
        """An average of a model whose buffers differ: it has taken them over."""
        net = Residual()
        self.average = AveragedModel(net)
        self.extra["average"] = self.average
        return ddp(net, broadcast_buffers=False)

    def _wide(self) -> nn.Module:
        """Batch norm over channels of the last dimension: convolutions whose memory is in another order, large enough for samples."""
        net = Residual()
        net.second = nn.Conv2d(8, 8, (1, 401), padding=(0, 200), bias=False)
        return ddp(net.to(memory_format=torch.channels_last))

    def _staged(self) -> nn.Module:
        """A stage of a pipeline: other names on every rank. The last one gets its moments late."""
        stage = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        late = nn.Linear(6, 6)
        return nn.ModuleDict({f"stage{self.rank}": stage, **({"late": late} if self.rank else {})})

    def step(self, number: int) -> None:
        draw = torch.Generator().manual_seed(1000 * number + self.rank)
        if self.name == "unsynced" and number >= SAVED - 1:
            with self.model.no_sync():
                self.model(torch.randn(4, 3, 6, 6, generator=draw)).square().mean().backward()
            return
        self.optimizer.zero_grad()
        if isinstance(self.model, nn.ModuleDict):
            rows = torch.randn(5, 6, generator=draw)
            out = self.model[f"stage{self.rank}"](rows)
            if "late" in self.model and number >= STEPS - 2:
                out = self.model["late"](out)
            loss = (out + torch.rand(5, 6)).square().mean()
        else:
            loss = self.model(torch.randn(4, 3, 6, 6, generator=draw)).square().mean() * random.random()
        loss.backward()
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model.module)

    def bits(self) -> dict[str, str]:
        """Everything that this rank has, its generators too."""
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        for at, kept in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{at}/{key}": value for key, value in kept.items()}
        if self.average is not None:
            tensors |= {f"average/{name}": tensor for name, tensor in self.average.state_dict().items()}
        tensors["torch"] = torch.get_rng_state()
        texts = {name: tensor.contiguous().numpy().tobytes().hex() for name, tensor in tensors.items()}
        return {**texts, "python": str(random.getstate())}


PROGRAMS = ("broadcast", "unsynced", "own_buffers", "synchronised", "averaged", "wide", "staged")


def train(out: Path, rank: int, *, resumed: bool) -> None:
    """Every program, without an interruption or from its checkpoint on. Saves on the way, the last one after lists have changed."""
    for name in PROGRAMS:
        program = Program(name, rank)
        place = out / name / "checkpoints"
        with ps.Checkpoints(place, **({"replicas": "check"} if name == "wide" else {})) as checkpoints:
            checkpoint = checkpoints.resume(program.state)
            assert (None if checkpoint is None else checkpoint.step) == (SAVED if resumed else None)
            for step in range(SAVED if resumed else 0, STEPS):
                if step == SAVED and not resumed:
                    saved = checkpoints.save(step, program.state).wait()
                    _note(out / name, saved, rank)
                    # The state that is gone back to is this one: nothing of what follows is committed.
                    break_off = program.bits()
                program.step(step)
            if not resumed:
                assert program.bits() != break_off
        text = json.dumps(program.bits())
        (out / name / f"{'resumed' if resumed else 'whole'}-{rank}.json").write_text(text)
        if resumed:
            # Lists have changed on one rank alone, where moments came late.
            with ps.Checkpoints(place) as checkpoints:
                last = checkpoints.save(STEPS, program.state).wait()
            again = Program(name, rank)
            ps.Checkpoints(place).load(last, again.state)
            bits = again.bits()
            differing = {key for key, value in json.loads(text).items() if bits[key] != value}
            # Those that come from rank 0 are not rank 1's own.
            from_first = {key for key in bits if "running" in key} if name in ("broadcast", "wide") else set()
            assert differing <= (from_first if rank else set()), (name, differing)


def _note(out: Path, saved: ps.Checkpoint, rank: int) -> None:
    if rank == 0:
        manifest = saved.manifest
        partial_names = sorted(name for entry in manifest.partial for name in entry.names)
        noted = {"apart": manifest.kept_apart, "partial": partial_names, "form": manifest.form}
        (out / "noted.json").write_text(json.dumps(noted))


def refuse(out: Path, rank: int) -> None:
    """What cannot be saved, and what comes of it: both ranks learn of it, and the group is as good as before."""
    different = nn.Linear(200, 200)
    torch.manual_seed(rank)
    nn.init.normal_(different.weight)
    with ps.Checkpoints(out / "different") as checkpoints:
        with pytest.raises(
            SaveFailed, match="'model/weight' is not the same on all ranks: its contents on rank 1"
        ):
            checkpoints.save(1, state(different)).wait()
        with pytest.raises(RanksDiffer, match=r"F32 \[4, 3\] on rank 0 and F32 \[4, 4\] on rank 1"):
            checkpoints.save(2, state(nn.Linear(3 + rank, 4)))
        # A rank that cannot say what it holds does not let the other one wait.
        extra = {"sparse": torch.ones(3).to_sparse()} if rank else {}
        with pytest.raises(TreeInvalid if rank else SaveFailed):
            checkpoints.save(3, state(nn.Linear(3, 4), extra=extra))
        checkpoints.save(4, state(nn.Linear(3, 4).requires_grad_(False), skip=("model",))).wait()
        assert checkpoints.latest() is not None
    total = torch.ones(1)
    distributed.all_reduce(total)
    assert total.item() == RANKS


def plain(out: Path, rank: int) -> None:
    """Plain trees know the program's group as well."""
    with ps.Checkpoints(out / "plain") as checkpoints:
        saved = checkpoints.save(
            1, {"w": torch.arange(6.0), "own": torch.tensor([rank]), "rank": rank}
        ).wait()
        assert saved.manifest.ranks == RANKS
    tree = {"w": torch.zeros(6), "own": torch.zeros(1, dtype=torch.int64), "rank": None}
    loaded = ps.Checkpoints(out / "plain").load(saved, tree)
    assert (loaded["w"].tolist(), loaded["own"].item(), loaded["rank"]) == ([0, 1, 2, 3, 4, 5], rank, rank)


class Moody:
    """Something of the program's own that cannot always say what it holds."""

    fails = False

    def state_dict(self) -> dict[str, int]:
        if self.fails:
            raise KeyError("mood")
        return {"seen": 1}

    def load_state_dict(self, loaded: dict[str, int]) -> None:
        assert loaded == {"seen": 1}


def _fail() -> dict[str, Any]:
    raise KeyError("late")


def unable(out: Path, rank: int) -> None:
    """One rank cannot take part in a save: the others hear at once why, and the next save of the same step works."""
    distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=20))
    net, moody = nn.Linear(3, 4), Moody()
    distributed.broadcast(net.weight.detach(), 0)
    tree, broken = state(net, extra={"moody": moody}), {"w": torch.ones(3), "bad": object()}
    odd = rank == 1
    for moment in ("tree", "metrics", "held", "late entries", "late metrics"):
        with ps.Checkpoints(out / "unable" / moment, deadline_s=20) as checkpoints:
            for fails in (True, False, True):
                moody.fails = fails and odd and moment == "held"
                late = {"entries": _fail} if moment == "late entries" else {"metrics": _fail}
                options: dict[str, Any] = late if fails and odd and moment.startswith("late") else {}
                if fails and odd and moment == "metrics":
                    options = {"metrics": {"loss": torch.ones(2)}}
                wanted = broken if fails and odd and moment == "tree" else tree
                caught: Exception | None = None
                try:
                    checkpoints.save(7, wanted, **options).wait()
                except (KeyError, TreeInvalid, UsageError, SaveFailed) as problem:
                    caught = problem
                assert (caught is not None) is fails, (moment, caught)
                if fails:
                    assert isinstance(caught, SaveFailed) is not odd, moment
                    assert ("rank 1: " in str(caught)) is not odd, moment
                distributed.barrier()
            assert [checkpoint.step for checkpoint in checkpoints.list()] == [7]


def lonely(out: Path, rank: int) -> None:
    """A rank that saves alone is told after a while, and gets an error of ours when the group's patience is over."""
    messages: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("penstock.torch").addHandler(listener)
    torch_gang.PATIENCE_S = 0.5
    checkpoints = ps.Checkpoints(out / "lonely")
    tree = state(nn.Linear(3, 4))
    assert checkpoints.resume(tree) is None
    if rank == 0:
        distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
        with pytest.raises(SaveFailed, match="other ranks did not say what they hold") as caught:
            checkpoints.save(1, tree)
        assert caught.value.hint.startswith("every rank calls save, in the same order")
        assert messages == [
            "rank 0 has waited 0 s for the other ranks: all of them call resume, prepare and save, in the same order"
        ]
        (out / "over").touch()
    wait_until((out / "over").exists, "the lonely rank has given up")
    os._exit(0)  # the group is of no use any more


def rank(number: int, work: Callable[[Path, int], None], out: Path, name: str) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    distributed.init_process_group(
        "gloo", init_method=f"file://{out}/rendezvous-{name}", rank=number, world_size=RANKS
    )
    work(out, number)
    distributed.destroy_process_group()


def gang(work: Callable[[Path, int], None], out: Path, name: str) -> None:
    children = [forked(partial(rank, number, work, out, name)) for number in range(RANKS)]
    assert statuses(children) == [0] * RANKS, name


def alone(out: Path) -> None:
    """One process, which is another layout."""
    program = Program.__new__(Program)
    program.rank = 0
    net = Residual(masked=True)
    checkpoint = ps.Checkpoints(out / "own_buffers/checkpoints").at(SAVED)
    tree = state(net, torch.optim.AdamW(net.parameters(), lr=1e-2))
    with pytest.raises(LayoutChanged, match=r"model/mask, model/norm\.running_mean"):
        ps.Checkpoints(out / "own_buffers/checkpoints").load(checkpoint, tree)
    ps.Checkpoints(out / "own_buffers/checkpoints", replicas="first").load(checkpoint, tree)
    assert net.mask.tolist() == [1.0, 0.0] * 4
    wrapped = Residual()
    broadcast = ps.Checkpoints(out / "broadcast/checkpoints")
    broadcast.load(broadcast.at(SAVED), state(wrapped, torch.optim.AdamW(wrapped.parameters(), lr=1e-2)))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for variable in ("RANK", "WORLD_SIZE", "PENSTOCK_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        os.environ.pop(variable, None)
    for program_name in PROGRAMS:
        (folder / program_name).mkdir()
    assert DistributedDataParallel is not None
    gang(partial(train, resumed=False), folder, "whole")
    gang(partial(train, resumed=True), folder, "resumed")
    gang(refuse, folder, "refuse")
    gang(plain, folder, "plain")
    gang(unable, folder, "unable")
    gang(lonely, folder, "lonely")
    assert statuses([forked(partial(alone, folder))]) == [0]
