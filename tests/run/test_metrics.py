"""What a program reports and logs is a number, and what is asked of logged numbers is there."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
from penstock import errors
from penstock.run import Policy
from penstock.run.journal import metrics
from tests.run.small import make, start, train
from tests.torch.stream import Stream


def policy(**more: Any) -> Policy:
    return Policy(**{"save_every": None, "stop_at": 6, **more})


@pytest.mark.parametrize(
    "value",
    [None, "2.5", b"2", [1.0], np.arange(3), torch.ones(2), 1 + 2j, np.array("2"), torch.ones(1) * 1j],
)
def test_what_is_no_number_is_refused_where_it_is_given(stream: Stream, tmp_path: Path, value: Any) -> None:
    """Goal: the traceback shows the line that is wrong, not the loop. Method: log, report and accept it, and go on training."""
    run = make(stream, tmp_path, policy(stop_at=2))
    refused = 0
    for _ in run.steps(start()):
        calls = [lambda: run.log(val=value), lambda: run.report(loss=value), lambda: run.accept(1.0, value)]
        for call in calls[: 1 if value is None else 3]:
            with pytest.raises(errors.UsageError, match="not a number"):
                call()
            refused += 1
        assert run.accept(1.0)
    assert refused == (2 if value is None else 6)


def test_numbers_of_all_kinds_are_logged(stream: Stream, tmp_path: Path) -> None:
    numbers = [True, np.True_, np.float16(1), np.int64(1), np.array(1.0), np.array([1]), torch.ones(1, 1)]
    run = make(stream, tmp_path, policy(stop_at=1))
    for _ in run.steps(start()):
        for value in (*numbers, torch.tensor(True), torch.tensor(1, dtype=torch.bfloat16)):
            run.log(value=value)
            run.report(loss=value)
    logged = metrics.read(tmp_path)
    assert [entry.values for entry in logged] == [{"value": 1.0}] * 9


def test_a_best_checkpoint_that_nothing_was_logged_for_is_told(
    stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    best = policy(keep=ps.Keep(last=2, best=ps.Best("val_loss")))
    train(make(stream, tmp_path / "never", best))
    assert [message for message in caplog.messages if "run.log(val_loss=…)" in message]
    caplog.clear()
    run = make(stream, tmp_path / "once", best)
    train(run, at=lambda step: run.log(val_loss=step) if step == 4 else None)
    train(make(stream, tmp_path / "once", dataclasses.replace(best, stop_at=9)))
    assert not caplog.messages
