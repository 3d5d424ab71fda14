"""What training changes and no state dict has is named, wherever a program keeps it; what cannot be told apart is refused."""

import copy
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import penstock as ps
from penstock.errors import TreeInvalid
from penstock.torch import state

STEPS = 4


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.BatchNorm1d(8), nn.Linear(8, 4))


class Model(nn.Module):
    """Something around a small net that keeps more than a state dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small()
        self.prepare()

    def prepare(self) -> None:
        """Before training."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(rows)
        return result


class Flagged(Model):
    """Sets a scale from its first batch, and remembers in a flag that it has."""

    def prepare(self) -> None:
        self.done = False

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.done = True
        return super().forward(rows)


class Taught(Model):
    """A teacher in a list, so that its parameters are not the model's."""

    def prepare(self) -> None:
        self.teacher = [copy.deepcopy(self.net).requires_grad_(False)]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.teacher[0][0].weight.lerp_(self.net[0].weight, 0.1)
        return super().forward(rows)


class Nested(Model):
    """Numbers in dicts of dicts, and in an object with slots."""

    class Memory:
        """Has no dict."""

        __slots__ = ("total",)

    def prepare(self) -> None:
        self.counts = {"rows": {"seen": 0}}
        self.sizes = {"rows": (3, 6), "draw": {"first": 1}}
        self.draw = np.random.RandomState(1)
        self.memory = self.Memory()
        self.memory.total = 0.0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.counts["rows"]["seen"] += len(rows)
        self.memory.total += 1.0
        return super().forward(rows)


class Behind(Model):
    """Writes to a buffer behind the back of its version."""

    def prepare(self) -> None:
        self.register_buffer("mean", torch.zeros(6), persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.mean.data.lerp_(rows.mean(0), 0.1)
        return super().forward(rows)


def unfreeze(model: Any, step: int) -> None:
    model.net[0].requires_grad_(step >= 2)


def freeze_norm(model: Any, step: int) -> None:
    model.net[2].train(step < 2)


def drop_more(model: Any, step: int) -> None:
    model.net[1].p = 0.1 * (1 + step // 2)


def accumulate_elsewhere(model: Any, step: int) -> None:
    weight = model.net[0].weight
    weight.main_grad = getattr(weight, "main_grad", 0) + weight.detach()


def nothing(model: Any, step: int) -> None:
    """Of its own."""


@pytest.mark.parametrize(
    ("make", "habit", "named"),
    [
        (Flagged, nothing, ["model/done"]),
        (Taught, nothing, ["model/teacher.0.0.weight"]),
        (Nested, nothing, ["model/counts", "model/memory.total"]),
        (Behind, nothing, ["model/mean"]),
        (Model, unfreeze, ["model/net.0.weight"]),
        (Model, freeze_norm, ["model/net.2"]),
        (Model, drop_more, ["model/net.1.p"]),
        (Model, accumulate_elsewhere, ["model/net.0.weight.main_grad"]),
        (Model, nothing, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_training_changes_is_named(
    make: Callable[[], Model], habit: Callable[[Any, int], None], named: list[str]
) -> None:
    """Goal: never silently other bits. Method: programs that change something which a resumed one would have as it was at the beginning."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tree = state(model, optimizer)
    # What a program sets in every life before it trains is no change.
    model.train()
    habit(model, 0)
    for step in range(STEPS):
        habit(model, step)
        optimizer.zero_grad()
        model(torch.ones(3, 6) * step).square().sum().backward()
        optimizer.step()
    assert [text.split(" ")[0] for text in tree.unpinned()] == named
    # An evaluation changes modes, and nothing of what a resumed program begins with.
    model.eval()
    later = [text.split(" ")[0] for text in tree.unpinned()]
    assert later == (named if habit is not freeze_norm else [])


def test_a_module_of_extra_is_looked_at_like_the_model() -> None:
    net, beside = small(), Flagged()
    tree = state(net, torch.optim.SGD(net.parameters(), lr=0.1), extra={"beside": beside})
    beside(torch.ones(3, 6))
    assert [text.split(" ")[0] for text in tree.unpinned()] == ["extra/beside/done"]


def test_a_schedule_that_the_state_does_not_have_is_named() -> None:
    """Goal: a scheduler that was forgotten begins anew. Method: one beside the state, one that it has, several in one, and one that an object of the program holds."""

    class Holder:
        def __init__(self, scheduler: Any) -> None:
            self.scheduler = scheduler

        def state_dict(self) -> dict[str, Any]:
            held: dict[str, Any] = self.scheduler.state_dict()
            return held

        def load_state_dict(self, loaded: dict[str, Any]) -> None:
            self.scheduler.load_state_dict(loaded)

    model = small()

    def scheduled() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

    optimizer, scheduler = scheduled()
    assert "a scheduler sets the learning rate of SGD" in state(model, optimizer).unpinned()[0]
    chained = torch.optim.lr_scheduler.ChainedScheduler([scheduler])
    for known in (scheduler, [scheduler], chained):
        assert state(model, optimizer, scheduler=known).unpinned() == ()
    assert state(model, optimizer, extra={"schedule": Holder(scheduler)}).unpinned() == ()
    assert state(model, optimizer, skip=("optimizer",)).unpinned() == ()
    other, _ = scheduled()
    assert len(state(model, [optimizer, other], scheduler=scheduler).unpinned()) == 1


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_what_a_communication_hook_keeps_is_named() -> None:
    """Goal: PowerSGD feeds the errors of its compression back, and no state dict has them."""
    model = DistributedDataParallel(nn.Linear(64, 64))
    model.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tree = state(model, optimizer)
    assert tree.unpinned() == ()
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(2, 64)).square().sum().backward()
        optimizer.step()
    assert "model/comm_hook.0.error_dict" in {text.split(" ")[0] for text in tree.unpinned()}


@pytest.mark.usefixtures("group")
def test_a_sharded_optimizer_is_refused_with_what_to_give() -> None:
    model = small()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    with pytest.raises(TreeInvalid, match="moments of other parameters") as caught:
        state(model, optimizer)
    assert "state(model, optimizer.optim)" in str(caught.value.hint)
    tree = state(model, optimizer.optim)
    model(torch.ones(3, 6)).square().sum().backward()
    optimizer.step()
    assert tree.unpinned() == ()
    assert any(held.name.startswith("optimizer/0.weight/exp_avg") for held in tree.held())


def test_dicts_that_make_their_members_stay_so(tmp_path: Path) -> None:
    """Goal: what the program's own dict of dicts would make is what is filled."""

    def made() -> dict[str, Any]:
        return {"counts": defaultdict(lambda: defaultdict(int)), "draw": random.Random(1)}

    saved, loaded = made(), made()
    saved["counts"]["a"][3] += 2
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, state(nn.Linear(2, 2), extra=saved)).wait()
        checkpoints.load(checkpoint, state(nn.Linear(2, 2), extra=loaded))
    loaded["counts"]["a"][4] += 1
    assert loaded["counts"] == {"a": {3: 2, 4: 1}}


def test_texts_that_are_no_unicode_are_refused_by_name() -> None:
    tree = state(nn.Linear(2, 2), extra={"file": "name-\udc80", "numbers": np.ones(2)})
    with pytest.raises(TreeInvalid, match="valid in UTF-8"):
        tree.values()
