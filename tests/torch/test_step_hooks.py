"""Forward, backward and optimizer are parts of a step without a word of the program, and nothing of training changes (O8)."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import penstock.torch
from penstock.observe.steps import HOST, UNMEASURED, StepRecorder, read_steps

STEPS, PARTS = 4, 3


class Small(nn.Module):
    """Two layers and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(rows)


Wrap = Callable[[nn.Module], nn.Module]


def same(model: nn.Module) -> nn.Module:
    return model


def compiled(model: nn.Module) -> nn.Module:
    wrapper: nn.Module = torch.compile(model, backend="eager", fullgraph=True)
    return wrapper


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager", fullgraph=True)
    return model


def trained(wrap: Wrap, folder: Path | None, *, of_wrapper: bool = False) -> list[bytes]:
    """Bits of losses and parameters after a few steps of several backward passes each."""
    torch.manual_seed(5)
    model = Small()
    called = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters())
    recorder = None if folder is None else StepRecorder(folder, 0, 0)
    state = penstock.torch.state(called if of_wrapper else model, optimizer)
    hooks = None if recorder is None else state.observe(recorder)
    bits = []
    for step in range(STEPS):
        if recorder is not None:
            recorder.begin(step)
            recorder.enter("user")
        optimizer.zero_grad()
        for _ in range(PARTS):
            loss = called(torch.randn(16, 32)).square().mean() / PARTS
            loss.backward()
            bits.append(loss.detach().numpy().tobytes())
        optimizer.step()
        if recorder is not None:
            assert hooks is not None
            hooks.turn(recorder.end(step))
    if recorder is not None:
        assert hooks is not None
        hooks.close()
        recorder.close()
    return [*bits, *(each.detach().numpy().tobytes() for each in model.parameters())]


@pytest.mark.parametrize("of_wrapper", [False, True])
@pytest.mark.parametrize("wrap", [same, compiled, compiled_in_place])
def test_parts_are_seen_with_accumulation_and_compiled_modules(
    tmp_path: Path, wrap: Wrap, of_wrapper: bool
) -> None:
    """Goal: parts by hooks, O8. Method: the same training observed and not; the state has the model, or what is called."""
    before = torch.autograd.backward
    plain = trained(wrap, None)
    assert trained(wrap, tmp_path, of_wrapper=of_wrapper) == plain
    assert torch.autograd.backward is before

    (rows,) = read_steps(tmp_path)
    for part in ("forward", "backward", "optimizer", "user"):
        values = rows.columns[f"host.{part}"]
        assert (values > 0).all(), part
    parts = np.array([rows.columns[name] for name in HOST])
    assert (
        np.where(parts == UNMEASURED, 0, parts).sum(0) == rows.columns["end"] - rows.columns["begin"]
    ).all()
    assert (rows.columns["device.forward"] == UNMEASURED).all()


def test_an_evaluation_is_no_forward_and_an_error_leaves_no_part_open(tmp_path: Path) -> None:
    model = Small()
    recorder = StepRecorder(tmp_path, 0, 0)
    hooks = penstock.torch.state(model, torch.optim.SGD(model.parameters())).observe(recorder)
    for step in range(2):
        recorder.begin(step)
        with recorder.part("eval"):
            model(torch.ones(4, 32))
        if step == 0:
            with pytest.raises(RuntimeError):
                model(torch.ones(4, 31))
        hooks.turn(recorder.end(step))
    hooks.close()
    recorder.close()

    (rows,) = read_steps(tmp_path)
    assert (rows.columns["host.eval"] > 0).all()
    assert rows.columns["host.forward"][0] > 0
    assert rows.columns["host.forward"][1] == UNMEASURED


def test_what_follows_an_error_that_was_caught_is_no_forward(tmp_path: Path) -> None:
    """Goal: a step goes on after memory was short. Method: a call that fails, and one that does not; both are over when the program is at work."""
    model = Small()
    recorder = StepRecorder(tmp_path, 0, 0)
    hooks = penstock.torch.state(model, torch.optim.SGD(model.parameters())).observe(recorder)
    recorder.begin(0)
    recorder.enter("user")
    parts = []
    for width in (31, 32):
        with suppress(RuntimeError):
            model(torch.ones(4, width))
        parts.append(recorder.current_part())
    hooks.turn(recorder.end(0))
    hooks.close()
    # Whoever has kept our wrapper calls it after the end: it does nothing.
    hooks.enter("forward")
    assert recorder.current_part() != "forward"
    recorder.close()
    assert parts == ["user", "user"]


def test_a_model_that_only_looks_is_evaluated(tmp_path: Path) -> None:
    """Goal: an evaluation needs no word of the program. Method: calls with and without gradients, in both modes, and one inside of another."""

    class Twice(Small):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            again = self(rows[1:]) if len(rows) > 1 else rows.new_zeros(1, 8)
            inside.append(recorder.is_evaluating())
            return super().forward(rows) + again.sum()

    model = Twice()
    inside: list[bool] = []
    recorder = StepRecorder(tmp_path, 0, 0)
    hooks = penstock.torch.state(model).observe(recorder)
    for step, (training, gradients) in enumerate(
        [(True, True), (False, True), (True, False), (False, False)]
    ):
        model.train(training)
        recorder.begin(step)
        with torch.set_grad_enabled(gradients):
            model(torch.randn(4, 32))
        hooks.turn(recorder.end(step))
    hooks.close()
    recorder.close()
    (rows,) = read_steps(tmp_path)
    assert [ns > 0 for ns in rows.columns["host.eval"]] == [False, False, False, True]
    assert [ns > 0 for ns in rows.columns["host.forward"]] == [True, True, True, False]
    assert inside == [False] * 12 + [True] * 4
