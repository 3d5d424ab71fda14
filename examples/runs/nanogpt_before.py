"""Train a small GPT as nanoGPT does. A crash costs everything since the best checkpoint, and other batches come after it."""

import math
import os
from pathlib import Path

import numpy as np
import torch
from gpt import GPT
from nanogpt_data import WORDS, prepare

out_dir = Path("out")
eval_interval, eval_iters = 5, 4
batch_size, block_size, gradient_accumulation_steps = 4, 32, 2
learning_rate, min_lr, warmup_iters, max_iters, grad_clip = 3e-3, 3e-4, 5, 20, 1.0
device = "cuda" if torch.cuda.is_available() else "cpu"
prepare(Path("data"))
torch.manual_seed(1337)


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
iter_num, best_val_loss = 0, math.inf
if (out_dir / "ckpt.pt").exists():
    checkpoint = torch.load(out_dir / "ckpt.pt", map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]

for step in range(iter_num, max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)
    for _ in range(gradient_accumulation_steps):
        with torch.autocast(device, torch.float16, enabled=device == "cuda"):
            loss = model(get_batch("train")) / gradient_accumulation_steps
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if (step + 1) % eval_interval == 0:
        val_loss = estimate_loss()
        print(f"step {step + 1}: val loss {val_loss:.4f}", flush=True)
        if val_loss < best_val_loss:
            best_val_loss = val_loss
            out_dir.mkdir(exist_ok=True)
            checkpoint = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "iter_num": step + 1,
                "best_val_loss": best_val_loss,
            }
            torch.save(checkpoint, out_dir / "ckpt.pt.new")
            os.replace(out_dir / "ckpt.pt.new", out_dir / "ckpt.pt")
