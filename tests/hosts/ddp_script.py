"""A script for torchrun as its users have it: knows nothing of Penstock, trains with DDP, keeps a snapshot, prints what it did."""

import argparse
import gc
import hashlib
import os
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817 - likewise
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    """The loop of the tutorials: epochs, a sampler that is told of them, a snapshot that rank 0 writes."""

    def __init__(
        self, model: torch.nn.Module, data: "DataLoader[tuple[torch.Tensor, ...]]", snapshot: Path
    ) -> None:
        self.rank = int(os.environ["RANK"])
        self.data, self.snapshot, self.first_epoch = data, snapshot, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        if snapshot.exists():
            kept = torch.load(snapshot)
            model.load_state_dict(kept["model"])
            self.first_epoch = kept["epochs"]
        self.model = DDP(model)

    def train(self, epochs: int) -> None:
        """All epochs that are left."""
        for epoch in range(self.first_epoch, epochs):
            sampler = self.data.sampler
            assert isinstance(sampler, DistributedSampler)
            sampler.set_epoch(epoch)
            for source, target in self.data:
                self.optimizer.zero_grad()
                loss = F.mse_loss(self.model(source), target)
                loss.backward()
                self.optimizer.step()
            print(
                f"[RANK {self.rank}] epoch {epoch} | steps {len(self.data)} | loss {loss.item():.6f}",
                flush=True,
            )
            if self.rank == 0:
                torch.save({"model": self.model.module.state_dict(), "epochs": epoch + 1}, self.snapshot)


def main() -> None:
    """The script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("snapshot", type=Path)
    given = parser.parse_args()
    init_process_group(backend="gloo")
    torch.manual_seed(17)
    rows = torch.randn(256, 20)
    dataset = TensorDataset(rows, rows.sum(dim=1, keepdim=True))
    loader = DataLoader(dataset, batch_size=16, sampler=DistributedSampler(dataset))
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    trainer = Trainer(model, loader, given.snapshot)
    trainer.train(given.epochs)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    place = " ".join(
        f"{name}={os.environ[name]}"
        for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
    )
    print(f"[RANK {trainer.rank}] {place} | parameters {digest}", flush=True)
    destroy_process_group()


if __name__ == "__main__":
    main()
    # Gloo's last work is let go while Python still runs: its threads abort a process that is about to end.
    gc.collect()
