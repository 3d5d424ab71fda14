"""Where `traceml.trace_step` stood: a loop with a slow dataset, and the line that says so."""

import json
import subprocess
import time

import torch

import penstock.torch


class Slow(torch.utils.data.Dataset):
    """Something in it takes long."""

    def __len__(self):
        return 160

    def __getitem__(self, number):
        time.sleep(0.004)
        return torch.randn(16), torch.ones(1)


torch.set_num_threads(1)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Slow(), batch_size=8)

# Before: traceml.init(), and `with traceml.trace_step(model):` around the body.
with penstock.torch.observed(model, optimizer, into="runs/slow-input") as seen:
    for inputs, targets in seen.data(loader):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.step(loss=loss, batch=inputs)

# Before: logs/SESSION/final_summary.json, when the program had ended.
words = ["penstock", "report", "slow-input", "--json"]
report = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
print(report["diagnosis"]["line"])
assert report["diagnosis"]["causes"][0]["kind"] == "data"
