"""Rows of a version by tensors, as indexes and masks of numpy."""

import json
from pathlib import Path

import torch

import penstock as ps


def test_tensors_choose_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(11)))
    version = ps.Registry(tmp_path / "registry").register("web", [tmp_path / "rows.jsonl"])
    assert version[torch.tensor(3)] == {"n": 3}
    assert version[torch.tensor([3])] == [{"n": 3}]
    assert [row["n"] for row in version[torch.tensor([3, -1])]] == [3, 10]
    assert [row["n"] for row in version[torch.arange(11) % 2 == 0]] == list(range(0, 11, 2))
