"""A load takes what was asked for, in the form the tree has, and says so; what finds nothing is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ps
from penstock import errors
from penstock.torch import state


class Net(nn.Module):
    def __init__(self, words: int = 5, width: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.encoder = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        sum(parameter.square().sum() for parameter in model.parameters()).backward()
        optimizer.step()


def made(seed: int, **sizes: int) -> tuple[Net, torch.optim.Optimizer, Any]:
    torch.manual_seed(seed)
    model = Net(**sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, state(model, optimizer)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Net, torch.optim.Optimizer, ps.Checkpoints, ps.Checkpoint]:
    model, optimizer, tree = made(1)
    trained(model, optimizer)
    checkpoints = ps.Checkpoints(tmp_path)
    return model, optimizer, checkpoints, checkpoints.save(1, tree).wait()


@pytest.mark.parametrize(
    ("wish", "near"),
    [
        ({"only": "modle"}, "model"),
        ({"only": ("model", "optimzer")}, "optimizer"),
        ({"only": "model/encoder.2"}, "model/encoder.0"),
        ({"only": "model/enc"}, "model/encoder"),
        ({"rename": {"modle": "model"}}, "model"),
        ({"rename": {"model": "ema"}}, "model"),
        ({"rename": {"model/encoder": "model/encodr"}}, "model/encoder"),
        ({"resize": {"model/embd.weight": "pad"}}, "model/embed.weight"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_what_finds_nothing_is_refused_with_the_nearest_names(
    saved: Any, wish: dict[str, Any], near: str, strict: bool
) -> None:
    checkpoints, checkpoint = saved[2:]
    tree = made(2)[2]
    before = tree.digest()
    with pytest.raises(errors.SelectionEmpty) as refused:
        checkpoints.load(checkpoint, tree, strict=strict, **wish)
    assert near in refused.value.nearest
    assert refused.value.hint is not None
    assert tree.digest() == before


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"only": b"model"}, "only takes names"),
        ({"only": ("model", None)}, "only takes names, got None"),
        ({"resize": "pad"}, "resize takes a dict"),
        ({"rename": "model"}, "rename takes a dict or a function"),
    ],
)
def test_a_wish_that_makes_no_sense_is_a_mistake_in_use(
    saved: Any, wish: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.UsageError, match=message) as refused:
        saved[2].load(saved[3], made(2)[2], **wish)
    assert refused.value.hint


def test_a_rename_function_that_finds_nothing_is_refused(saved: Any) -> None:
    checkpoints, checkpoint = saved[2:]
    with pytest.raises(errors.TreeMismatch):
        checkpoints.load(
            checkpoint, made(2)[2], strict=False, only="model", rename=lambda name: name + ".old"
        )


def test_dots_and_slashes_are_boundaries(saved: Any) -> None:
    model, _, checkpoints, checkpoint = saved
    fresh, _, tree = made(2)
    untouched = fresh.encoder[1].weight.clone(), fresh.embed.weight.clone()
    checkpoints.load(checkpoint, tree, only="model/encoder.0")
    assert torch.equal(fresh.encoder[0].weight, model.encoder[0].weight)
    assert torch.equal(fresh.encoder[1].weight, untouched[0])
    assert torch.equal(fresh.embed.weight, untouched[1])
    checkpoints.load(checkpoint, tree, only="model/encoder.1", rename={"model/encoder.1": "model/encoder.0"})
    assert torch.equal(fresh.encoder[1].weight, model.encoder[0].weight)


def test_weights_only_leaves_the_generators_alone(saved: Any) -> None:
    checkpoints, checkpoint = saved[2:]
    for only, moved in (("model", False), (("model", "rng"), True), ((), True)):
        torch.manual_seed(77)
        np.random.seed(77)
        expected = torch.get_rng_state(), np.random.get_state()[1].copy()
        tree = made(2)[2]
        torch.set_rng_state(expected[0])
        checkpoints.load(checkpoint, tree, only=only)
        same = torch.equal(torch.get_rng_state(), expected[0])
        assert same is not moved, only
        assert np.array_equal(np.random.get_state()[1], expected[1]) is not moved, only


def test_other_floating_point_types_are_converted_when_asked_for(saved: Any) -> None:
    model, _, checkpoints, checkpoint = saved
    fresh, _, tree = made(2)
    fresh.to(torch.bfloat16)
    with pytest.raises(errors.TreeMismatch, match=r"cast=True"):
        checkpoints.load(checkpoint, tree, only="model")
    checkpoints.load(checkpoint, tree, only="model", cast=True)
    assert len(checkpoints.report.cast) == 5
    for ours, theirs in zip(fresh.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs.to(torch.bfloat16))
    # Moments that had the type of their parameter have that of the new one: AdamW refuses a mixture.
    checkpoints.load(checkpoint, tree, cast=True)
    moment = tree.optimizers[0].state[fresh.embed.weight]["exp_avg"]
    assert moment.dtype == torch.bfloat16
    whole = {"count": torch.zeros(3, dtype=torch.int64)}
    pending = checkpoints.save(2, {"count": torch.zeros(3)}).wait()
    with pytest.raises(errors.TreeMismatch):
        checkpoints.load(pending, whole, cast=True)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adafactor, torch.optim.RMSprop])
@pytest.mark.parametrize(
    ("dtype", "other"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_a_fresh_optimizer_steps_in_the_type_that_its_model_is_loaded_in(
    tmp_path: Path, kind: Any, dtype: torch.dtype, other: torch.dtype
) -> None:
    """Goal: what was cast can be trained. Method: save a model and its moments in one type, load them into another one whose optimizer has
    not stepped yet, and step: moments have the type that an optimizer would have given them, and their values."""
    first, second = Net().to(dtype), Net().to(other)
    optimizer, fresh = (kind(model.parameters(), lr=1e-2) for model in (first, second))
    trained(first, optimizer)
    checkpoints = ps.Checkpoints(tmp_path)
    checkpoints.load(checkpoints.save(1, state(first, optimizer)).wait(), state(second, fresh), cast=True)
    for mine, theirs in zip(second.parameters(), first.parameters(), strict=True):
        for key, moment in optimizer.state[theirs].items():
            assert fresh.state[mine][key].dtype == (other if moment.ndim else moment.dtype), key
            assert torch.equal(fresh.state[mine][key], moment.to(fresh.state[mine][key].dtype)), key
    trained(second, fresh)


def test_types_that_are_not_converted_are_told_with_what_helps(tmp_path: Path) -> None:
    checkpoints = ps.Checkpoints(tmp_path)
    checkpoint = checkpoints.save(1, {"count": np.array([3]), "w": np.zeros(3)}).wait()
    with pytest.raises(errors.TreeMismatch) as refused:
        checkpoints.load(checkpoint, {"count": np.array([0.0]), "w": np.zeros(3)}, cast=True)
    assert refused.value.hint == "make 'count' I64, which is not converted, or leave it out with only="


@pytest.mark.parametrize(("words", "width", "how"), [(8, 4, "pad"), (8, 6, "pad"), (3, 4, "crop")])
def test_another_vocabulary_fills_what_both_have(saved: Any, words: int, width: int, how: str) -> None:
    """Goal: rows that both have are the checkpoint's, in moments too; new rows keep what they were made with."""
    model, optimizer, checkpoints, checkpoint = saved
    fresh, others, tree = made(2, words=words)
    if width != 4:
        fresh.embed = nn.Embedding(words, width)
        others = torch.optim.AdamW(fresh.parameters(), lr=1e-2)
        tree = state(fresh, others)
    before = fresh.embed.weight.detach().clone()
    with pytest.raises(errors.TreeMismatch, match=f"resize={{'model/embed.weight': '{how}'}}"):
        checkpoints.load(checkpoint, tree)
    checkpoints.load(checkpoint, tree, resize={"model/embed.weight": how})
    rows = min(words, 5)
    expected = before.clone()
    expected[:rows, :4] = model.embed.weight[:rows]
    assert torch.equal(fresh.embed.weight, expected)
    moment = torch.zeros(words, width)
    moment[:rows, :4] = optimizer.state[model.embed.weight]["exp_avg"][:rows]
    assert torch.equal(others.state[fresh.embed.weight]["exp_avg"], moment)
    assert any("[5, 4]" in line for line in checkpoints.report.resized)
    trained(fresh, others)
    with pytest.raises(errors.UsageError, match="stretch"):
        checkpoints.load(checkpoint, tree, resize={"model/embed.weight": "stretch"})


def test_what_was_and_was_not_loaded_is_listed(saved: Any) -> None:
    checkpoints, checkpoint = saved[2:]
    model = Net()
    model.head = nn.Linear(4, 2)
    del model.encoder[1]
    checkpoints.load(checkpoint, state(model), strict=False)
    said = str(checkpoints.report)
    assert said.startswith("3 tensors loaded")
    assert "not in the checkpoint, left as it was: model/head.weight" in said
    assert "not in the tree, left out: model/encoder.1.bias" in said
    assert checkpoints.report.loaded == [
        "model/embed.weight",
        "model/encoder.0.bias",
        "model/encoder.0.weight",
    ]


def test_a_submodule_loads_by_the_rename_that_the_error_proposes(saved: Any) -> None:
    model, _, checkpoints, checkpoint = saved
    part = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises(errors.TreeMismatch, match=r"rename=\{'model/': 'model/encoder.'\}"):
        checkpoints.load(checkpoint, state(part))
    checkpoints.load(checkpoint, state(part), only="model", rename={"model": "model/encoder."})
    assert torch.equal(part[1].weight, model.encoder[1].weight)
    # And the other way round: a whole model from the checkpoint of a part.
    smaller = checkpoints.save(2, state(part)).wait()
    fresh = made(3)[0]
    checkpoints.load(smaller, state(fresh), only="model/encoder", rename={"model/encoder.": "model/"})
    assert torch.equal(fresh.encoder[0].weight, model.encoder[0].weight)


def test_plain_trees_are_cast_and_resized_too(tmp_path: Path) -> None:
    checkpoints = ps.Checkpoints(tmp_path)
    checkpoint = checkpoints.save(1, {"a": np.arange(6, dtype=np.float64).reshape(2, 3), "n": 1}).wait()
    tree = {"a": np.full((3, 3), 9, dtype=np.float16)[:, ::1], "n": 0}
    checkpoints.load(checkpoint, tree, cast=True, resize={"a": "pad"})
    assert tree["a"].tolist() == [[0, 1, 2], [3, 4, 5], [9, 9, 9]]
    assert tree["n"] == 1
