"""One loop with a SummaryWriter and with Penstock: TensorBoard's own reader finds the same curve in both."""

import subprocess

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

import penstock.torch

torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
writer = SummaryWriter("logs/before")

with penstock.torch.observed(model, optimizer, into="runs/after") as seen:
    for step in range(30):
        batch = torch.randn(8, 16)
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        writer.add_scalar("loss", loss.item(), step)  # waits for the device
        seen.step(loss=loss)  # does not
writer.close()

export = ["penstock", "runs", "export", "after", "--to", "tensorboard:logs/after"]
subprocess.run(export, check=True)


def curve(folder: str, tag: str) -> list[tuple[int, float]]:
    """What TensorBoard shows."""
    reader = EventAccumulator(folder)
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


assert curve("logs/after", "loss") == curve("logs/before", "loss")
times = curve("logs/after", "penstock/step_s")
print(f"the same {len(times)} losses, and a step took {min(time for _, time in times) * 1e3:.2f} ms at best")
