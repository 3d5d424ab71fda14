"""S4 and S10 of earlier forms: places that were written before records and manifests had second copies, and before optimizers were named: they load, go on and are repaired.

``tests/golden/checkpoint-1`` is such a place, with what its newest checkpoint holds. It is never edited.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import penstock as ps
from penstock import errors
from penstock.cli.main import main
from penstock.state.log.history import record_name
from penstock.state.log.record_copies import copy_name
from penstock.state.log.repair import repair
from penstock.store import open_store
from penstock.torch import state
from tests.conftest import ROOT

GOLDEN = ROOT / "tests/golden/checkpoint-1"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


class Program:
    """What saved the place, as it begins."""

    def __init__(self, kind: type[torch.optim.Optimizer] = torch.optim.AdamW) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        self.model[0].weight.requires_grad_(False)
        self.optimizer = kind(self.model.parameters(), lr=0.5)  # type: ignore[call-arg]
        scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.extra: dict[str, Any] = {"epoch": 0, "total": torch.zeros(2)}
        self.tree = state(self.model, self.optimizer, scheduler=scheduler, extra=self.extra)

    def require_loaded(self) -> None:
        """Every bit is that of the golden checkpoint."""
        held = dict(self.model.named_parameters())
        tensors = {f"model/{name}": tensor for name, tensor in held.items()}
        for name, parameter in held.items():
            moments = self.optimizer.state.get(parameter, {})
            tensors |= {f"optimizer/{name}/{key}": value for key, value in moments.items()}
        assert {
            name: tensor.detach().numpy().tobytes().hex() for name, tensor in tensors.items()
        } == EXPECTED["tensors"]
        assert self.optimizer.param_groups[0]["lr"] == EXPECTED["lr"]
        assert self.extra["epoch"] == EXPECTED["epoch"]
        assert self.extra["total"].tolist() == [1.0, 1.0]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN / "place", tmp_path / "place")


def test_an_earlier_place_loads_and_goes_on(place: Path) -> None:
    first, second = Program(), Program()
    with ps.Checkpoints(place) as checkpoints:
        resumed = checkpoints.resume(first.tree)
        assert resumed is not None
        assert resumed.step == 3
        first.require_loaded()
        assert checkpoints.entries(resumed)["cursor"] == {"step": 3}
        checkpoints.save(4, first.tree).wait()
    with ps.Checkpoints(place) as checkpoints:
        assert [checkpoint.step for checkpoint in checkpoints.list()] == [2, 3, 4]
        checkpoints.load(checkpoints.at(3), second.tree)
        second.require_loaded()
        assert checkpoints.resume(second.tree) is not None
    second.require_loaded()
    assert main(["checkpoint", "verify", str(place), "--all"]) == 0


def test_what_an_earlier_place_says_of_its_optimizer_still_counts(place: Path) -> None:
    """No class was saved then; the settings of groups tell other kinds."""
    with (
        ps.Checkpoints(place) as checkpoints,
        pytest.raises(errors.TreeInvalid, match="another kind of optimizer"),
    ):
        checkpoints.resume(Program(torch.optim.SGD).tree)


@pytest.mark.parametrize("lost", [None, 0, 2, 3, 4])
def test_an_earlier_place_is_repaired(place: Path, lost: int | None) -> None:
    """Goal: places without second copies can be repaired too. Method: repair it whole, and with each kind of record lost: a fence, commits, a retirement."""
    if lost is not None:
        (place / record_name(lost)).unlink()
    repair(open_store(place), patience_s=0)
    assert repair(open_store(place), dry_run=True, patience_s=0).nothing
    # A last record that nobody has a copy of is as if it had never been.
    assert all((place / copy_name(number)).exists() for number in range(4 if lost == 4 else 5))
    program = Program()
    with ps.Checkpoints(place) as checkpoints:
        resumed = checkpoints.resume(program.tree)
        assert resumed is not None
        assert resumed.step == 3
        program.require_loaded()
        checkpoints.save(4, program.tree).wait()
    # From here on one flipped file costs nothing.
    (place / record_name(3)).write_bytes(b"{}")
    again = Program()
    with ps.Checkpoints(place) as checkpoints:
        assert [checkpoint.step for checkpoint in checkpoints.list()][-2:] == [3, 4]
        checkpoints.load(checkpoints.at(3), again.tree)
    again.require_loaded()
