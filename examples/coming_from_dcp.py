"""Coming from torch.distributed.checkpoint: its directories are read as they are, and written for those who stay with it."""

import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import penstock as ps
import penstock.torch


def program(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model and its optimizer after one step."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def main(folder: Path) -> None:
    """Take over what DCP saved, train on with Penstock, and give DCP the result."""
    old, old_optimizer = program(seed=1)
    weights, moments = get_state_dict(old, old_optimizer)
    dcp.save({"model": weights, "optim": moments}, checkpoint_id=folder / "dcp", no_dist=True)

    place = folder / "checkpoints"
    subprocess.run(
        ["penstock", "checkpoint", "import", str(place), str(folder / "dcp"), "--step", "100"], check=True
    )
    model, optimizer = program(seed=2)
    state = penstock.torch.state(model, optimizer)
    with ps.Checkpoints(place) as checkpoints:
        # Settings of the optimizer stay as the program has them; moments and weights are those of DCP.
        checkpoints.load(
            100, state, only=("model", "optimizer"), rename={"optimizer": "optim/state"}, strict=False
        )
        print(checkpoints.report)
        checkpoints.save(101, state).wait()
    for mine, theirs in zip(model.parameters(), old.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert torch.equal(optimizer.state[mine]["exp_avg"], old_optimizer.state[theirs]["exp_avg"])

    back = ["penstock", "checkpoint", "export", str(place), "101", str(folder / "back"), "--to", "dcp"]
    subprocess.run(back, check=True)
    taken = {"model": {name: torch.zeros_like(value) for name, value in weights.items()}}
    dcp.load(taken, checkpoint_id=folder / "back", no_dist=True)
    assert all(torch.equal(taken["model"][name], value) for name, value in weights.items())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
