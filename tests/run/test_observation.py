"""A run records a row per step: what each was, where its time went, and nothing that training would notice."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import penstock.torch
from penstock.observe.steps import HOST, UNMEASURED, read_anchors, read_steps
from penstock.report.accounts.account_names import UNKNOWN
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from penstock.run import Leave, Policy
from penstock.run.journal import step_records as records
from tests.run.small import Fault, make, start, train, update
from tests.torch.stream import Stream

POLICY = Policy(save_every=4, stop_at=12)


def test_a_run_writes_a_row_per_step_and_its_parts_sum_to_it(stream: Stream, tmp_path: Path) -> None:
    """Goal: O1 within steps, O7. Method: 12 steps that log, evaluate and save; every ns of a row is in one part, and rows tile the loop."""
    run = make(stream, tmp_path, POLICY)
    state = start()
    for step, batch in run.steps(state):
        loss, change = update(run, state, batch)
        with run.span("forward"):
            state["weights"] += change
        if step % 3 == 0:
            with run.phase("eval"):
                run.log(val_loss=step / 2)
        run.report(loss=loss)

    (rows,) = read_steps(tmp_path)
    columns = rows.columns
    assert (rows.life, rows.rank, rows.lost_rows, rows.faults, rows.is_closed) == (0, 0, 0, [], True)
    assert columns["step"].tolist() == list(range(12))
    assert (columns["begin"][1:] == columns["end"][:-1]).all()
    parts = np.array([columns[name] for name in HOST])
    measured = np.where(parts == UNMEASURED, 0, parts)
    assert (measured >= 0).all()
    assert (measured.sum(0) == columns["end"] - columns["begin"]).all()
    told = [name for name in HOST if (columns[name] == UNMEASURED).any()]
    assert told == ["host.transfer", "host.backward", "host.optimizer"]
    assert (columns["host.forward"] > 0).all()
    assert (columns["host.eval"] > 0).tolist() == [step % 3 == 0 for step in range(12)]
    assert (columns["host.checkpoint"] > 0).tolist() == [step % 4 == 3 for step in range(12)]
    losses = [record.ranks[0].loss for record in records.read(tmp_path).values()]
    assert columns["scalar.loss"].tolist() == losses
    logged = columns["scalar.val_loss"]
    assert logged[logged != UNMEASURED].tolist() == [0.0, 1.5, 3.0, 4.5]
    assert (columns["tokens"] + columns["padding"] > 0).all()
    assert (columns["bytes_read"] > 0).all()
    assert (columns["device.forward"] == UNMEASURED).all()
    assert set(rows.commits) >= {0, 4}
    anchors = read_anchors(tmp_path)
    assert {len(anchor.boot_id) for anchor in anchors} == {36}
    assert anchors[0].boottime <= columns["begin"][1] <= columns["end"][-1] <= anchors[-1].boottime


def test_recording_is_switched_off_by_an_option(stream: Stream, tmp_path: Path) -> None:
    """Goal: O8. Method: the same run with and without; records of all steps and the state are equal, and one has no rows."""
    ends = {}
    for record in (True, False):
        run = make(stream, tmp_path / str(record), Policy(save_every=4, stop_at=12, digest_every=1))
        state = start()
        for _, batch in run.steps(state, record=record):
            loss, change = update(run, state, batch)
            state["weights"] += change
            run.report(loss=loss)
        ends[record] = state["weights"].tobytes()
    assert ends[True] == ends[False]
    facts = [
        [
            (record.batch, record.loss, record.parameters)
            for step in table.values()
            for record in step.ranks.values()
        ]
        for table in (records.read(tmp_path / "True"), records.read(tmp_path / "False"))
    ]
    assert facts[0] == facts[1]
    assert len(read_steps(tmp_path / "True")) == 1
    assert read_steps(tmp_path / "False") == []


def test_a_step_that_fails_is_torn(stream: Stream, tmp_path: Path) -> None:
    """Goal: the step that an error interrupts has a beginning and no end."""
    run = make(stream, tmp_path, POLICY)

    def loop() -> None:
        with run.steps(start()) as steps:
            for step, _ in steps:
                run.accept(1.0)
                if step == 7:
                    raise Fault

    with pytest.raises(Fault):
        loop()
    (rows,) = read_steps(tmp_path)
    assert rows.columns["step"].tolist() == list(range(8))
    assert rows.columns["end"][-1] == UNMEASURED
    assert rows.columns["begin"][-1] == rows.columns["end"][-2]


@pytest.mark.parametrize(
    ("how", "ends", "torn"), [("stop", 6, 0), ("notice", 6, 0), ("whole", 6, 0), ("middle", 5, 1)]
)
def test_a_loop_that_is_left_keeps_the_row_of_its_last_step(
    stream: Stream, tmp_path: Path, how: str, ends: int, torn: int
) -> None:
    """Goal: whoever leaves after a whole step has a row for it, and who breaks off in the middle a torn one."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())

    def loop() -> None:
        run = make(stream, tmp_path, POLICY)
        for step, _ in run.steps(penstock.torch.state(model, optimizer)):
            if step == 5 and how == "middle":
                break
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            run.report(loss=1.0)
            if step == 5 and how == "stop":
                run.stop()
            if step == 5 and how == "notice":
                os.kill(os.getpid(), signal.SIGTERM)
            if step == 5 and how == "whole":
                break

    if how == "notice":
        with pytest.raises(Leave):
            loop()
    else:
        loop()
    (rows,) = read_steps(tmp_path)
    assert rows.columns["step"].tolist() == list(range(6))
    assert int((rows.columns["end"] == UNMEASURED).sum()) == torn
    assert int((rows.columns["end"] != UNMEASURED).sum()) == ends


def test_steps_that_are_undone_keep_their_rows(stream: Stream, tmp_path: Path) -> None:
    """Goal: what is executed twice is in the table twice. Method: a NaN at step 6 goes back to step 4."""
    policy = Policy(save_every=4, stop_at=10, non_finite="rollback")
    train(make(stream, tmp_path, policy), bad={6: float("nan")}, early=False)
    (rows,) = read_steps(tmp_path)
    assert rows.columns["step"].tolist() == [0, 1, 2, 3, 4, 5, 6, 4, 5, 7, 8, 9]
    assert (rows.columns["end"] > rows.columns["begin"]).all()


def test_a_second_loop_and_a_second_life_have_files_of_their_own(stream: Stream, tmp_path: Path) -> None:
    for stop in (4, 8):
        train(make(stream, tmp_path, Policy(save_every=4, stop_at=stop)))
    rows = read_steps(tmp_path)
    assert [table.life for table in rows] == [0, 1]
    assert [table.columns["step"].tolist() for table in rows] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_run_counts_its_steps_and_says_why_a_processor_has_no_mfu(stream: Stream, tmp_path: Path) -> None:
    """Method: a real run on the processor; its rows have the integers of `flops.step`, and its report the reason."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(1000, 8), nn.Linear(8, 1000))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    example = torch.zeros(4, 32, dtype=torch.int64)
    flops = penstock.torch.flops(model, example, forward=lambda model, batch: model(batch).sum())
    run = make(stream, tmp_path, Policy(save_every=None, stop_at=8))
    expected = []
    for _, batch in run.steps(penstock.torch.state(model, optimizer), flops=flops):
        expected.append(flops.step(batch).useful_total)
        loss = model(batch["tokens"].long() % 1000).logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        if run.accept(loss):
            optimizer.step()

    (rows,) = read_steps(tmp_path)
    assert rows.columns["flops_useful"].tolist() == expected
    assert rows.columns["flops.useful.float32"].tolist() == expected
    assert len(set(expected)) > 1
    report = report_of(evidence_of(tmp_path)).to_json()
    assert report["mfu"]["value"] == UNKNOWN
    assert "no peak is known for 'processor'" in report["mfu"]["reason"]
