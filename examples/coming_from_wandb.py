"""Where `wandb.log` stood: values are recorded on the disk, exported as a table, and two runs are compared."""

import subprocess

import pyarrow.dataset as ds
import torch

import penstock.torch


def train(name: str, rate: float) -> None:
    """A loop with two logged values; before, wandb.init(name=name) and wandb.log({"loss": loss, "rate": rate})."""
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    with penstock.torch.observed(model, optimizer, into=f"runs/{name}") as seen:
        for _ in range(40):
            batch = torch.randn(8, 16)
            loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.step(loss=loss, rate=rate)


train("slow", rate=0.001)
train("fast", rate=0.02)

# Before: wandb.Api().run("me/project/fast").history()
subprocess.run(["penstock", "runs", "export", "fast", "--to", "parquet:tables/fast"], check=True)
history = ds.dataset("tables/fast/steps").to_table(columns=["step", "scalar.loss", "scalar.rate", "begin_at"])
assert history["step"].to_pylist() == list(range(40))
assert set(history["scalar.rate"].to_pylist()) == {0.02}

# Before: two curves in a browser, and an eye.
words = ["penstock", "compare", "slow", "fast"]
answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
print(answer)
assert "losses part at step 1" in answer
