"""A script as people have it, which knows nothing of Penstock: it reads WORLD_SIZE once, at import, does not heed SIGTERM, and loads with workers.

``python ordinary_training.py FOLDER``: each rank adds a line for each epoch to ``epochs-RANK``; ``finish`` in the folder ends it after an epoch.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817 - as everybody writes it
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORLD_SIZE = int(os.environ["WORLD_SIZE"])
RANK = int(os.environ["RANK"])
EPOCHS = 10_000
signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(folder: Path) -> None:
    """The script."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    snapshot, first = folder / "snapshot.pt", 0
    if snapshot.exists():
        kept = torch.load(snapshot)
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["epoch"] + 1
    rows = torch.randn(96, 4)
    data = TensorDataset(rows, rows.sum(dim=1, keepdim=True))
    sampler: DistributedSampler[object] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=2, persistent_workers=True)
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        for source, target in loader:
            optimizer.zero_grad()
            (model(source) - target).square().mean().backward()
            optimizer.step()
        if RANK == 0:
            new = snapshot.with_suffix(".new")
            torch.save(
                {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, new
            )
            new.rename(snapshot)
        with (folder / f"epochs-{RANK}").open("a") as file:
            file.write(json.dumps({"epoch": epoch, "world": WORLD_SIZE, "host": os.uname().nodename}) + "\n")
        ends = torch.tensor([float((folder / "finish").exists())])
        dist.all_reduce(ends)
        if ends.item():
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
