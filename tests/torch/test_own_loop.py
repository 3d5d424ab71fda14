"""A loop without a run is observed like one: the same rows, also on several ranks, and the same bits."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import penstock.torch
from penstock import errors
from penstock.observe.steps import UNMEASURED, read_steps
from tests.conftest import ROOT


def looped(into: Path | None, *, fail_at: int = -1) -> list[bytes]:
    """Bits of a model after six steps of a plain loop."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [{"input_ids": torch.randint(0, 50, (4, 9))} for _ in range(6)]

    def step(tokens: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    if into is None:
        for batch in batches:
            step(batch["input_ids"])
    else:
        with penstock.torch.observed(model, optimizer, into=into) as seen:
            for batch in seen.data(batches):
                loss = step(batch["input_ids"])
                if seen.number == fail_at:
                    raise RuntimeError("planted")
                seen.step(loss=loss, batch=batch, rate=0.1)
    return [each.detach().numpy().tobytes() for each in model.parameters()]


def test_an_observed_loop_writes_rows_and_changes_no_bit(tmp_path: Path) -> None:
    """Goal: item by item what a run records, O8. Method: the same loop twice observed and once not; a third one fails."""
    assert looped(tmp_path) == looped(None) == looped(tmp_path)
    with pytest.raises(RuntimeError, match="planted"):
        looped(tmp_path, fail_at=2)

    first, second, third = read_steps(tmp_path)
    for rows in (first, second):
        columns = rows.columns
        assert columns["step"].tolist() == list(range(6))
        assert (columns["begin"][1:] == columns["end"][:-1]).all()
        for part in ("data", "forward", "backward", "optimizer", "user"):
            assert (columns[f"host.{part}"] > 0).all(), part
        assert columns["tokens"].tolist() == [36] * 6
        assert (columns["padding"] == UNMEASURED).all()
        assert (columns["scalar.loss"] > 0).all()
        assert columns["scalar.rate"].tolist() == [0.1] * 6
    assert [rows.life for rows in (first, second, third)] == [0, 1, 2]
    assert third.columns["step"].tolist() == [0, 1, 2]
    assert third.columns["end"][-1] == UNMEASURED


def test_models_against_each_other_and_gradients_by_hand_are_no_code_of_ones_own(tmp_path: Path) -> None:
    """Goal: parts of loops that call two models, or ``torch.autograd.grad``. Method: a GAN with a penalty, and a loop without an optimizer."""
    maker, judge = nn.Linear(64, 64), nn.Linear(64, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (maker, judge)]
    before = torch.autograd.grad
    with penstock.torch.observed([maker, judge], optimizers, into=tmp_path / "gan") as seen:
        for _ in range(4):
            real = torch.randn(8, 64, requires_grad=True)
            (slope,) = torch.autograd.grad(judge(real).sum(), real, create_graph=True)
            (judge(maker(torch.randn(8, 64))).mean() + slope.norm()).backward()
            for optimizer in optimizers:
                optimizer.step()
            seen.step(loss=1.0)
    with penstock.torch.observed(maker, into=tmp_path / "bare") as seen:
        for _ in range(4):
            slopes = torch.autograd.grad(maker(torch.randn(8, 64)).square().mean(), list(maker.parameters()))
            seen.step(loss=slopes[1].sum())
    assert torch.autograd.grad is before
    (gan,), (bare,) = read_steps(tmp_path / "gan"), read_steps(tmp_path / "bare")
    for rows, parts in ((gan, ("forward", "backward", "optimizer")), (bare, ("forward", "backward"))):
        for part in parts:
            assert (rows.columns[f"host.{part}"] > 0).all(), part
    assert (bare.columns["host.optimizer"] == UNMEASURED).all()


def test_a_loop_says_which_step_it_is_at(tmp_path: Path) -> None:
    """Goal: training that goes on from a later step, or an earlier one, loses no row."""
    with penstock.torch.observed(nn.Linear(2, 2), into=tmp_path) as seen:
        for first in (100, 102):
            seen.number = first
            for _ in range(4):
                seen.step(loss=float(seen.number))
    (rows,) = read_steps(tmp_path)
    assert rows.columns["step"].tolist() == [100, 101, 102, 103, 102, 103, 104, 105]
    assert rows.columns["scalar.loss"].tolist() == rows.columns["step"].tolist()


def test_tokens_that_a_mask_calls_padding_are_padding(tmp_path: Path) -> None:
    """Goal: real tokens and padding apart where the host has the mask; other batches are counted by their shape, or not at all."""
    tokens = torch.ones(2, 5, dtype=torch.long)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    batches = [
        {"input_ids": tokens, "attention_mask": mask},
        {"input_ids": tokens},
        tokens,
        [tokens],
        "words",
        5,
    ]
    with penstock.torch.observed(nn.Linear(2, 2), into=tmp_path) as seen:
        for batch in batches:
            seen.step(batch=batch)
    (rows,) = read_steps(tmp_path)
    assert rows.columns["tokens"].tolist() == [8, 10, 10, UNMEASURED, UNMEASURED, UNMEASURED]
    assert rows.columns["padding"].tolist() == [2, *[UNMEASURED] * 5]


@pytest.mark.parametrize("value", ["abc", [1], torch.ones(3)])
def test_what_is_no_number_is_refused_by_its_name(tmp_path: Path, value: object) -> None:
    with (
        penstock.torch.observed(nn.Linear(2, 2), into=tmp_path) as seen,
        pytest.raises(errors.UsageError, match="one element"),
    ):
        seen.step(loss=value)


def test_a_name_that_cannot_be_kept_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with penstock.torch.observed(nn.Linear(2, 2), into=tmp_path) as seen:
        for _ in range(3):
            seen.step(loss=1.0, **{"x" * 400: 2.0})
    assert [record.message[:4] for record in caplog.records] == ["'xxx"]
    (rows,) = read_steps(tmp_path)
    assert rows.columns["scalar.loss"].tolist() == [1.0] * 3


def test_a_loop_is_observed_once(tmp_path: Path) -> None:
    loop = penstock.torch.observed(nn.Linear(2, 2), into=tmp_path)
    with loop, pytest.raises(errors.UsageError, match="observed already"):
        loop.__enter__()


#: Ranks as torchrun starts them, forked so that torch is imported once.
PROGRAM = """
import os, sys
import torch
import torch._dynamo
from torch import distributed
import penstock.torch
from tests.torch.processes import forked, statuses

def rank(number):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number)}
    place = f"file://{sys.argv[1]}/rendezvous"
    distributed.init_process_group("gloo", init_method=place, rank=number, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with penstock.torch.observed(model, optimizer, into=sys.argv[1]) as seen:
        for _ in range(3):
            loss = model(torch.ones(2, 4)).sum()
            loss.backward()
            optimizer.step()
            seen.step(loss=loss)

assert statuses([forked(lambda: rank(0)), forked(lambda: rank(1))]) == [0, 0]
"""


def test_ranks_of_a_group_have_rows_of_one_life(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    subprocess.run(program, cwd=ROOT, check=True, timeout=300)
    tables = read_steps(tmp_path)
    assert [(rows.life, rows.rank, len(rows)) for rows in tables] == [(0, 0, 3), (0, 1, 3)]
    assert all((rows.columns["host.forward"] > 0).all() for rows in tables)
