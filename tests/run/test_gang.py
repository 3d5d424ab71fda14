"""Ranks of a gang decide together, and another number of ranks goes on with the same batches."""

import json
import math
from pathlib import Path

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
    assert [record.batch for record in changed.values()] == [record.batch for record in four.values()]
    assert [len(record.ranks) for record in changed.values()] == [4] * 8 + [2] * 6
    assert first_difference(tmp_path / "changed", tmp_path / "killed") == ""
    rows = {(row.life, row.rank): row for row in read_steps(tmp_path / "changed")}
    assert list(rows) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert [row.columns["step"].tolist() for row in rows.values()] == [[*range(8)]] * 4 + [
        [*range(8, 14)]
    ] * 2
    for row in rows.values():
        parts = [row.columns[f"host.{part}"] for part in ("forward", "backward", "optimizer", "exchange")]
        assert all((part > 0).all() for part in parts)
    (entry,) = (e for e in journal.read(tmp_path / "changed") if e.kind == "topology")
    assert entry.facts == {"before": [4, 4], "now": [2, 2]}


def test_lanes_follow_from_the_mesh_and_ranks_hear_each_other(stream: Stream, tmp_path: Path) -> None:
    program("lanes", stream, tmp_path)

    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert [view["group"] for view in seen] == ["0/4", "1/4", "2/4", "3/4"]
    assert [view["mesh"] for view in seen] == ["0/2", "0/2", "1/2", "1/2"]
    assert all("none of which is known to spread rows" in view["unknown"] for view in seen)
    assert {view["given"] for view in seen} == {"1/3"}
    assert {view["shared"] for view in seen} == {"of 0"}
    assert {view["rows"] for view in seen} == {repr([[float(rank), math.nan, 1e300] for rank in range(4)])}
