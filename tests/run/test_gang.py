"""Ranks of a gang decide together, and another number of ranks goes on with the same batches."""

import json
import math
from pathlib import Path

import numpy as np

import penstock as ps
from penstock.observe.steps import read_steps
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from tests.run.comparing import first_difference, program
from tests.torch.stream import Stream


def verdicts(directory: Path) -> list[tuple[int | None, str]]:
    return [(e.step, e.facts["action"]) for e in journal.read(directory) if e.kind == "verdict"]


def test_what_one_rank_meets_with_is_decided_by_all(stream: Stream, tmp_path: Path) -> None:
    """Goal: the same verdict on all ranks. Method: four DDP ranks; rank 2 has a NaN at step 7, rank 1 gets SIGTERM in step 6."""
    program("together", stream, tmp_path)

    assert verdicts(tmp_path / "early") == [(7, "skip")]
    steps = records.read(tmp_path / "early")
    assert list(steps) == list(range(14))
    before, after = steps[6].ranks, steps[7].ranks
    assert {record.parameters for record in after.values()} == {before[0].parameters}

    assert verdicts(tmp_path / "late") == [(7, "rollback")]
    assert ps.SkipJournal(tmp_path / "late/skips.jsonl").read().steps == ((7, 8),)
    assert list(records.read(tmp_path / "late")) == [step for step in range(14) if step != 7]

    story = [
        (e.kind, e.step) for e in journal.read(tmp_path / "left") if e.kind in ("restore", "end", "notice")
    ]
    assert story == [("restore", 0), ("notice", 7), ("end", 7), ("restore", 7), ("end", 14)]

    asked = journal.read(tmp_path / "asked")
    commits = [e.step for e in asked if e.kind == "commit"]
    assert commits == [0, 4, 5, 8, 10, 14]
    (stop,) = (e for e in asked if e.kind == "stop")
    assert (stop.step, stop.facts) == (8, {"reason": "rank 2 has had enough"})
    assert list(records.read(tmp_path / "asked")) == list(range(14))


def test_another_number_of_ranks_goes_on_with_the_same_batches(stream: Stream, tmp_path: Path) -> None:
    """Goal: L1 across layouts, L2 on the same ones. Method: FSDP2 on four ranks, then on two; once with a kill on the two."""
    program("elastic", stream, tmp_path)

    four, changed = (records.read(tmp_path / name) for name in ("four", "changed"))
    assert [each.batch for each in changed.values()] == [each.batch for each in four.values()]
    assert [len(each.ranks) for each in changed.values()] == [4] * 8 + [2] * 6
    assert first_difference(tmp_path / "changed", tmp_path / "killed") == ""
    rows = {(each.life, each.rank): each for each in read_steps(tmp_path / "changed")}
    assert list(rows) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert [each.columns["step"].tolist() for each in rows.values()] == [[*range(8)]] * 4 + [
        [*range(8, 14)]
    ] * 2
    for each in rows.values():
        parts = [
            each.columns[f"host.{part}"]
            for part in ("transfer", "forward", "backward", "optimizer", "exchange")
        ]
        assert all((part[1:] > 0).all() for part in parts[1:])
        assert (parts[0] > 0).any()
    # On one host all clocks are one: nobody leaves an exchange before the last has begun its step.
    left = np.array([rows[0, rank].columns["exchanged"] for rank in range(4)])
    begun = np.array([rows[0, rank].columns["begin"] for rank in range(4)])
    assert (left.min(0) > begun.max(0)).all()
    (told,) = (e for e in journal.read(tmp_path / "changed") if e.kind == "topology")
    assert told.facts == {"before": [4, 4], "now": [2, 2]}


def test_lanes_follow_from_the_mesh_and_ranks_hear_each_other(stream: Stream, tmp_path: Path) -> None:
    program("lanes", stream, tmp_path)

    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert [each["group"] for each in seen] == ["0/4", "1/4", "2/4", "3/4"]
    assert [each["mesh"] for each in seen] == ["0/2", "0/2", "1/2", "1/2"]
    assert all("none of which is known to spread rows" in each["unknown"] for each in seen)
    assert {each["given"] for each in seen} == {"1/3"}
    assert {each["shared"] for each in seen} == {"of 0"}
    assert {each["rows"] for each in seen} == {repr([[float(rank), math.nan, 1e300] for rank in range(4)])}
