"""The same as a run: killed anywhere and started again, it ends with the same bits, and its best checkpoint is kept beside the last."""

import math
from pathlib import Path

import numpy as np
import torch
from gpt import GPT
from nanogpt_data import WORDS, prepare

import penstock as ps
import penstock.torch

eval_interval, eval_iters = 5, 4
batch_size, block_size, gradient_accumulation_steps = 4, 32, 2
learning_rate, min_lr, warmup_iters, max_iters, grad_clip = 3e-3, 3e-4, 5, 20, 1.0
device = "cuda" if torch.cuda.is_available() else "cpu"
prepare(Path("data"))
registry = ps.Registry("data/registry")
registry.register("train", "data/train.bin", policy=ps.Policy(dtype="uint16"))
recipe = ps.Recipe(
    sources=[ps.Source("train@1")],
    seed=1337,
    batch=batch_size * gradient_accumulation_steps,
    stages=[ps.Pack(block_size + 1, policy="crop")],
)
run = ps.Run(
    "runs/nanogpt",
    recipe=recipe,
    registry=registry,
    policy=ps.RunPolicy(stop_at=max_iters, keep=ps.Keep(last=1, best=ps.Best("val_loss")), digest_every=1),
    seed=1337,
    deterministic=True,
)


def get_batch(split: str) -> torch.Tensor:
    """Rows from random places of a file."""
    data = np.memmap(f"data/{split}.bin", dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - block_size, (batch_size,)).tolist()
    rows = [torch.from_numpy(data[at : at + block_size + 1].astype(np.int64)) for at in starts]
    return torch.stack(rows).to(device)


@torch.no_grad()
def estimate_loss() -> float:
    """The mean over a few batches of the validation split."""
    model.eval()
    losses = [model(get_batch("val")).item() for _ in range(eval_iters)]
    model.train()
    return sum(losses) / len(losses)


def get_lr(step: int) -> float:
    """Linear warmup, then a cosine down to the least."""
    if step < warmup_iters:
        return learning_rate * (step + 1) / (warmup_iters + 1)
    ratio = (step - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


model = GPT(WORDS, block_size).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
state = penstock.torch.state(model, optimizer, extra={"scaler": scaler})

for step, batch in run.steps(state):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)
    for rows in batch["tokens"].chunk(gradient_accumulation_steps):
        with torch.autocast(device, torch.float16, enabled=device == "cuda"):
            loss = model(rows) / gradient_accumulation_steps
        scaler.scale(loss).backward()
    run.report(loss=loss * gradient_accumulation_steps)
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if (step + 1) % eval_interval == 0:
        with run.phase("eval"):
            val_loss = estimate_loss()
        print(f"step {step + 1}: val loss {val_loss:.4f}", flush=True)
        run.log(val_loss=val_loss)
        run.save()
