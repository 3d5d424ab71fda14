"""Saves of a data-parallel job: how long is training held up when every rank holds the same tensors and nothing has changed?

Ranks of one host, over gloo, each with a replica of a transformer and its moments: a thousand tensors, most of the bytes in the large ones. Every rank
saves at the same time, again and again; what counts is how long ``save`` holds the caller up, and when the state is safe. On a device all
ranks share it. With ``--replicas first`` nothing is compared.
Run: `python -m benchmarks.gpu.replicas OUT.json --device cpu --ranks 2 --width 512 --layers 24`.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing, nn

import penstock as ps
from penstock.torch import state

SAVES, WARM = 24, 4


class Block(nn.Module):
    """Weights of one layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)


def rank(number: int, wanted: argparse.Namespace, folder: str) -> None:
    """One rank: make a state, save it again and again, write down how long that took."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=number, world_size=wanted.ranks
    )
    torch.manual_seed(1)
    device = torch.device(wanted.device)
    model = nn.Sequential(*(Block(wanted.width) for _ in range(wanted.layers))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    tree = state(model, optimizer)
    blocked, durable, written = [], [], 0
    options: dict[str, Any] = {
        "rank": number,
        "ranks": wanted.ranks,
        "token": "bench",
        "keep": ps.Keep(last=1),
        "replicas": wanted.replicas,
    }
    with ps.Checkpoints(Path(folder) / "checkpoints", **options) as checkpoints:
        checkpoints.prepare(tree)
        for step in range(SAVES):
            distributed.barrier()
            begun = time.perf_counter()
            pending = checkpoints.save(step, tree)
            blocked.append(time.perf_counter() - begun)
            pending.wait()
            durable.append(pending.durable_s)
            written = max(written, pending.bytes_written)
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
    distributed.barrier()
    held = tree.held()
    report = {
        "tensors": len(held),
        "bytes": sum(tensor.bytes for tensor in held),
        "bytes written": written,
        "blocked ms": round(1e3 * statistics.median(blocked[WARM:]), 3),
        "blocked ms, least": round(1e3 * min(blocked[WARM:]), 3),
        "durable ms": round(1e3 * statistics.median(durable[WARM:]), 1),
    }
    Path(folder, f"{number}.json").write_text(json.dumps(report))
    distributed.destroy_process_group()


def main() -> None:
    """Measure as the command line says, and write the figures."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("out")
    reader.add_argument("--device", default="cpu")
    reader.add_argument("--ranks", type=int, default=2)
    reader.add_argument("--replicas", choices=("sample", "check", "first"), default="sample")
    reader.add_argument("--width", type=int, default=512)
    reader.add_argument("--layers", type=int, default=24)
    wanted = reader.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(rank, (wanted, folder), nprocs=wanted.ranks)
        ranks = [json.loads(Path(folder, f"{number}.json").read_text()) for number in range(wanted.ranks)]
    text = json.dumps(
        {"about": {name: value for name, value in vars(wanted).items() if name != "out"}, "ranks": ranks},
        indent=1,
    )
    Path(wanted.out).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
