"""Ranks that hold different things, in real groups: batch norms, averages, masks, stages, generators."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.torch.program import run_program

RANKS = 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `unequal_ranks` left. It asserts by itself what is refused, that plain trees find the group, and that a rank which cannot take part in
    a save ends it for all.
    """
    out = tmp_path_factory.mktemp("unequal_ranks")
    run_program("unequal_ranks", out)
    return out


def noted(trained: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((trained / name / "noted.json").read_text())
    return document


@pytest.mark.parametrize(
    "name", ["broadcast", "unsynced", "own_buffers", "synchronised", "averaged", "wide", "staged"]
)
def test_every_rank_of_a_resumed_gang_ends_with_the_bits_of_one_that_was_never_interrupted(
    trained: Path, name: str
) -> None:
    """Goal: L2 where ranks differ. Method: DDP with batch norms whose buffers come from rank 0, or do so only after an accumulation that is
    under way, or belong to each rank, with masks and averages; stages of a pipeline; all tensors and generators of each rank, resumed from step 2 of 5, against a gang that went through."""
    for rank in range(RANKS):
        whole, resumed = (
            json.loads((trained / name / f"{how}-{rank}.json").read_text()) for how in ("whole", "resumed")
        )
        assert whole.keys() == resumed.keys()
        assert [key for key in whole if whole[key] != resumed[key]] == []


def test_buffers_that_ddp_broadcasts_are_saved_once_and_others_per_rank(trained: Path) -> None:
    assert noted(trained, "broadcast") == {"apart": [], "partial": [], "form": 1}
    assert noted(trained, "synchronised") == {"apart": [], "partial": [], "form": 1}
    assert noted(trained, "wide") == {"apart": [], "partial": [], "form": 1}
    running = [
        f"model/{norm}.{name}" for norm in ("norm", "other") for name in ("running_mean", "running_var")
    ]
    assert noted(trained, "own_buffers")["apart"] == ["model/mask", *running]
    assert set(running) < set(noted(trained, "unsynced")["apart"])
    assert set(running) < set(noted(trained, "averaged")["apart"])
    assert any(name.startswith("extra/average") for name in noted(trained, "averaged")["apart"])


def test_stages_keep_their_names_and_share_nothing(trained: Path) -> None:
    partial = noted(trained, "staged")["partial"]
    assert "model/stage0.0.weight" in partial
    assert "model/stage1.0.weight" in partial
    assert "optimizer/stage1.0.weight/exp_avg" in partial
