"""The same GPT with FSDP2: parameters, gradients and moments are spread over the ranks.

penstock run --ranks 2 -- train_fsdp.py
"""

import argparse
from pathlib import Path

import torch
from corpus import LENGTH, WORDS, corpus
from gpt import GPT
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import penstock as ps
import penstock.torch


def main() -> None:
    """Train to a step, or go on to it, on any number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="runs/fsdp")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    device = penstock.torch.join()
    torch.set_num_threads(1)
    recipe, registry = corpus(Path("corpus"))
    policy = ps.RunPolicy(save_every=5, stop_at=options.steps, digest_every=1)
    run = ps.Run(options.run, recipe=recipe, registry=registry, policy=policy, seed=17, deterministic=True)
    model = GPT(WORDS, LENGTH).to(device)
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),), mesh_dim_names=("dp",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, batch in run.steps(penstock.torch.state(model, optimizer)):  # the lane comes from the mesh
        optimizer.zero_grad()
        loss = model(batch["tokens"])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if run.accept(loss, norm, tokens=batch["tokens"].numel()):
            optimizer.step()
        if step % 5 == 0 and run.rank == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
