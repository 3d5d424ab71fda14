"""Coming from torchrun: the same script, the same options, another launcher, the same weights."""

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

OPTIONS = ["--standalone", "--nproc_per_node=2", "--max-restarts=1"]


def train(weights: Path) -> None:
    """What a script for torchrun looks like; nothing in it is changed."""
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = torch.Generator().manual_seed(rank)
    for step in range(5):
        loss = model(torch.randn(4, 8, generator=samples)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), weights)
    distributed.destroy_process_group()


def main(folder: Path) -> None:
    """Start this very file under both launchers and compare what they trained."""
    launchers = {"torchrun": [sys.executable, "-m", "torch.distributed.run"], "penstock": ["penstock", "run"]}
    for name, launcher in launchers.items():
        subprocess.run([*launcher, *OPTIONS, __file__, str(folder / f"{name}.pt")], check=True)
    theirs, ours = (torch.load(folder / f"{name}.pt") for name in launchers)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(Path(sys.argv[1]))
        # Gloo's last work is let go while Python still runs: its threads abort a process that is about to end.
        gc.collect()
    else:
        with tempfile.TemporaryDirectory() as place:
            main(Path(place))
