"""A state moves between layouts and numbers of ranks, bit for bit, through real groups and real checkpoints."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import penstock as ps
from tests.torch.program import run_program

Boxes = list[list[list[int]]]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `sharding` left: every gang compares every tensor of model and optimizer with the reference by itself."""
    out = tmp_path_factory.mktemp("sharding")
    run_program("sharding", out)
    return out


def pieces(moved: Path, step: int) -> dict[str, Boxes]:
    boxes: dict[str, Boxes] = json.loads((moved / f"pieces-{step}.json").read_text())
    return boxes


def test_any_layout_loads_what_any_other_saved(moved: Path) -> None:
    """Goal: S4. Method: FSDP2 on four ranks, on two, one process, HSDP, tensor parallel, FSDP2 over tensor parallel (strided shards),
    tensor parallel inside of replicas, DDP; tensors equal after each, and FSDP2 on four goes on training as if nothing was."""
    steps = [checkpoint.step for checkpoint in ps.Checkpoints(moved / "checkpoints", read_only=True).list()]
    assert steps == list(range(8))


@pytest.mark.parametrize(
    ("step", "name", "boxes"),
    [
        (0, "model/up.weight", [[[0, 0], [2, 6]], [[2, 0], [2, 6]], [[4, 0], [2, 6]], [[6, 0], [2, 6]]]),
        (0, "model/odd.weight", [[[0, 0], [1, 6]], [[1, 0], [1, 6]], [[2, 0], [1, 6]]]),
        (1, "model/odd.weight", [[[0, 0], [2, 6]], [[2, 0], [1, 6]]]),
        (2, "model/odd.weight", [[[0, 0], [3, 6]]]),
        (3, "model/odd.weight", [[[0, 0], [2, 6]], [[2, 0], [1, 6]]]),
        (4, "optimizer/down.weight/exp_avg", [[[0, at], [6, 2]] for at in (0, 2, 4, 6)]),
        (5, "model/up.weight", [[[at, 0], [2, 6]] for at in (0, 2, 4, 6)]),
        (5, "optimizer/down.weight/exp_avg", [[[r, c], [3, 4]] for r in (0, 3) for c in (0, 4)]),
        (6, "model/up.weight", [[[0, 0], [4, 6]], [[4, 0], [4, 6]]]),
        (7, "model/up.weight", [[[0, 0], [8, 6]]]),
        (7, "model/seen", [[[0], [3]]]),
    ],
)
def test_every_rank_writes_its_own_boxes_and_replicas_write_once(
    moved: Path, step: int, name: str, boxes: Boxes
) -> None:
    assert [box for box in pieces(moved, step)[name] if np.prod(box[1])] == boxes


def test_plain_safetensors_opens_what_was_saved(moved: Path) -> None:
    """Goal: the format is nobody's secret. Method: read the data file of the one process with the library of others."""
    checkpoint = ps.Checkpoints(moved / "checkpoints", read_only=True).at(2)
    (own,) = [file.name for file in checkpoint.manifest.files if "/2-0/" in file.name]
    with safe_open(moved / "checkpoints" / own, framework="numpy") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no dict
    assert tensors["model/odd.weight"].shape == (3, 6)
    assert tensors["model/seen"].tolist() == [3.0, 2.0, 3.0]
