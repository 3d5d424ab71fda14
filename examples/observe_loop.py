"""A loop of your own, observed: what is slow in it, two versions of it compared, and its curves in TensorBoard."""

import subprocess
import time

import torch

import penstock.torch


def train(into: str, pause_s: float) -> None:
    """Twenty-four steps, with a pause where batches are made."""

    def batches():
        for _ in range(24):
            time.sleep(pause_s)
            yield {"input_ids": torch.randint(0, 64, (8, 32))}

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    with penstock.torch.observed(model, optimizer, into=into) as seen:
        for batch in seen.data(batches()):
            tokens = batch["input_ids"]
            loss = torch.nn.functional.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.step(loss=loss, batch=batch)


def penstock_says(*words: str) -> str:
    """What a command prints."""
    return subprocess.run(["penstock", *words], capture_output=True, text=True, check=True).stdout


train("runs/before", pause_s=0.05)
train("runs/after", pause_s=0.005)
first_line = penstock_says("report", "runs/before").splitlines()[0]
assert "waiting for data" in first_line, first_line
speed = penstock_says("compare", "before", "after").splitlines()[0]
assert "faster" in speed, speed
penstock_says("runs", "export", "after", "--to", "tensorboard:logs/after")
print(first_line, speed, sep="\n")
