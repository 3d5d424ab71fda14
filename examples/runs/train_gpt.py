"""Train a small GPT: alone, or on several ranks with DDP. The same file, whoever starts it.

python train_gpt.py --run runs/gpt                          one process
penstock run --ranks 4 --restarts 3 -- train_gpt.py …       four ranks, restarted when one dies
torchrun --nproc-per-node 4 train_gpt.py …, srun …          as well
"""

import argparse
from pathlib import Path

import torch
from corpus import LENGTH, WORDS, corpus
from gpt import GPT

import penstock as ps
import penstock.torch


def main() -> None:
    """Train to a step, or go on to it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="runs/gpt")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save-every", type=int, default=10)
    options = parser.parse_args()

    device = penstock.torch.join()
    torch.set_num_threads(1)
    recipe, registry = corpus(Path("corpus"))
    run = ps.Run(
        options.run,
        recipe=recipe,
        registry=registry,
        policy=ps.RunPolicy(save_every=options.save_every, stop_at=options.steps, digest_every=1),
        seed=17,
        deterministic=True,
    )
    model = GPT(WORDS, LENGTH).to(device)  # after the run: its first weights follow from the seed
    if torch.distributed.is_initialized():
        model = penstock.torch.ddp(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)
    state = penstock.torch.state(model, optimizer, scheduler=schedule)
    for step, batch in run.steps(state):
        optimizer.zero_grad()
        with run.span("forward"):
            loss = model(batch["tokens"])
        with run.span("backward"):
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if run.accept(loss, norm, tokens=batch["tokens"].numel()):
            with run.span("optimizer"):
                optimizer.step()
        schedule.step()
        if step % 10 == 0 and run.rank == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}  batch {batch.digest[:12]}", flush=True)


if __name__ == "__main__":
    main()
