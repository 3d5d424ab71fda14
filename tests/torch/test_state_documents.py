"""State that is not a tensor survives as JSON, and bytes of strided tensors are found in C order."""

import json
import random
from collections import Counter, deque
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import penstock as ps
from penstock import errors
from penstock.torch import state
from penstock.torch.device.mover import windows
from penstock.torch.tree.documents import decode, encode, tensor_names
from tests.torch.boxes import load, save

KEYS = st.text(max_size=4) | st.integers() | st.sampled_from(["$tensor", "$dict", "a/b", "~"])
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(st.integers(), st.integers(0, 9), max_size=2).map(Counter)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


def types(value: Any) -> Any:
    """A value with the types of everything inside; 1, 1.0 and True are equal but not the same."""
    if isinstance(value, dict):
        return type(value), [(types(key), types(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [types(item) for item in value]
    return type(value)


@given(VALUES)
def test_values_come_back_through_json(value: Any) -> None:
    document = json.loads(json.dumps(encode("v", value, lambda *_: None), allow_nan=False))
    decoded = decode(document, lambda name: pytest.fail(name))
    assert decoded == value
    assert types(decoded) == types(value)


def test_tensors_inside_are_named_by_their_path() -> None:
    tensors: dict[str, torch.Tensor] = {}
    document = encode(
        "x", {"a": [torch.ones(1), {"b/c": torch.zeros(2)}], 3: torch.ones(3)}, tensors.__setitem__
    )
    assert sorted(tensors) == ["x/3", "x/a/0", "x/a/1/b~1c"]
    assert sorted(tensor_names(document)) == sorted(tensors)
    again = decode(document, tensors.__getitem__)
    assert again["a"][1]["b/c"] is tensors["x/a/1/b~1c"]
    assert again[3] is tensors["x/3"]


def test_what_json_cannot_hold_is_named() -> None:
    with pytest.raises(errors.TreeInvalid, match="'x/f/0' in the tree: function cannot be stored"):
        encode("x", {"f": [test_what_json_cannot_hold_is_named]}, lambda *_: None)
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(errors.TreeInvalid, match="nested deeper than 64"):
        encode("x", cycle, lambda *_: None)
    with pytest.raises(errors.TreeInvalid, match="nothing is known of that kind"):
        decode({"$new": 1}, lambda name: torch.zeros(0))


class Sampler:
    """An object whose state grows, so that a fresh one has less of it than was saved."""

    def __init__(self) -> None:
        self.weights: dict[int, torch.Tensor] = {}
        self.best = float("inf")

    def state_dict(self) -> dict[str, Any]:
        return {"weights": {key: tensor.clone() for key, tensor in self.weights.items()}, "best": self.best}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.weights, self.best = dict(saved["weights"]), saved["best"]


def test_objects_with_a_state_of_their_own_are_part_of_it(tmp_path: Path) -> None:
    sampler = Sampler()
    sampler.weights = {2: torch.arange(3.0), 7: torch.ones(2, 2, dtype=torch.bfloat16)}
    extra = {"sampler": sampler, "note": ("a", 1 << 60), "mask": torch.ones(2)}
    model = nn.Linear(1, 1)
    save(state(model, extra=extra), tmp_path)
    other = Sampler()
    other.weights = {9: torch.zeros(1), 2: torch.zeros(5)}
    mask = torch.zeros(2)
    empty = {"sampler": other, "note": None, "mask": mask}
    load(state(nn.Linear(1, 1), extra=empty), tmp_path)
    assert other.weights.keys() == {2, 7}
    assert torch.equal(other.weights[2], sampler.weights[2])
    assert torch.equal(other.weights[7], sampler.weights[7])
    assert (other.best, empty["note"], mask.tolist()) == (float("inf"), ("a", 1 << 60), [1.0, 1.0])


def draw(extra: dict[str, Any]) -> list[float]:
    numbers = torch.rand(2, generator=extra["torch"]).tolist()
    return [*numbers, extra["numpy"].random(), extra["python"].random()]


def test_what_the_program_holds_is_filled_in_place(tmp_path: Path) -> None:
    """Goal: containers of ``extra`` are restored in the objects that the program knows, and later saves have what it puts there."""

    def made() -> dict[str, Any]:
        return {
            "history": {"loss": [], "best": {"step": 0}, "when": ()},
            "seen": {0},
            "window": deque(maxlen=3),
            "raw": bytearray(b"-"),
            "array": np.zeros(3),
            "nested": ([torch.zeros(2)], {"gone": 1}),
            "count": Counter(),
            "generators": 0,
            "torch": torch.Generator(),
            "numpy": np.random.default_rng(0),
            "python": random.Random(0),
            "small": np.float32(0),
        }

    extra = made()
    extra["history"]["loss"] += [1.5, float("inf")]
    extra["history"]["best"]["step"] = 7
    extra["history"]["when"] = (1, [2])
    extra["seen"].update({4, 2})
    extra["window"].extend(range(5))
    extra["raw"][:] = b"abc"
    extra["array"] += 2
    extra["nested"][0][0] += 3
    extra["nested"][1].clear()
    extra["count"].update("aab")
    extra["small"] = np.float32(0.1)
    draw(extra)
    model = nn.Linear(1, 1)
    tree = state(model, extra=extra)
    with ps.Checkpoints(tmp_path) as checkpoints:
        first = checkpoints.save(1, tree).wait()
        drawn = draw(extra)
        fresh = made()
        held = dict(fresh)
        inner = fresh["history"]["loss"], fresh["history"]["best"], fresh["nested"][0][0]
        other = state(model, extra=fresh)
        checkpoints.load(first, other)
        for key in ("history", "seen", "window", "raw", "array", "count"):
            assert fresh[key] is held[key], key
            assert np.all(held[key] == extra[key]), key
        assert inner[0] == [1.5, float("inf")]
        assert inner[1] == {"step": 7}
        assert inner[2].tolist() == [3, 3]
        assert fresh["window"].maxlen == 3
        assert fresh["nested"][0][0] is inner[2]
        assert type(fresh["small"]) is np.float32
        assert fresh["small"] == np.float32(0.1)
        assert draw(fresh) == drawn
        # The program goes on with the objects that it held before.
        inner[0].append(9.0)
        fresh["later"] = [1]
        fresh["generators"] = 5
        second = checkpoints.save(2, other).wait()
        last = {**made(), "later": []}
        checkpoints.load(second, state(model, extra=last))
    assert last["history"]["loss"] == [1.5, float("inf"), 9.0]
    assert (last["later"], last["generators"]) == ([1], 5)


def test_what_cannot_be_filled_in_place_is_refused() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(errors.TreeInvalid, match="mappingproxy cannot be filled in place"):
        state(model, extra={"x": MappingProxyType({"a": 1})}).values()
    with pytest.raises(errors.TreeInvalid, match="object cannot be stored"):
        state(model, extra={"x": object()}).values()
    with pytest.raises(errors.TreeInvalid, match="a set that has no order"):
        state(model, extra={"x": {1, "a"}}).values()
    with pytest.raises(errors.TreeInvalid, match="a tensor is a key"):
        state(model, extra={"x": {torch.ones(1): 2}}).values()
    with pytest.raises(errors.UsageError, match="extra must be a dict, got list"):
        state(model, extra=[1])
    with pytest.raises(
        errors.UsageError, match="a scheduler must have state_dict and load_state_dict, got dict"
    ):
        state(model, scheduler={"a": 1})


def test_a_load_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    """Goal: a failed load never shows in a later save. Method: make room for a checkpoint, do not fill it, save."""
    sampler = Sampler()
    sampler.weights = {1: torch.ones(2)}
    tree = state(nn.Linear(1, 1), extra={"sampler": sampler})
    tree.room_for({"extra/sampler/weights/1": ("F32", (5,))}, tree.values())
    (held,) = [held for held in tree.held() if held.name == "extra/sampler/weights/1"]
    assert held.shape == (2,)
    assert held.memory.view("float32").tolist() == [1.0, 1.0]


@given(st.data())
def test_windows_hold_a_stretch_of_elements_in_c_order(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).permute(order)
    tensor = tensor[:: data.draw(st.integers(1, 2))]
    first = data.draw(st.integers(0, tensor.numel() - 1))
    count = data.draw(st.integers(1, tensor.numel() - first))
    parts = [window.reshape(-1) for window in windows(tensor, first, count)]
    assert torch.cat(parts).tolist() == tensor.reshape(-1)[first : first + count].tolist()
    assert len(parts) <= 2 * tensor.ndim + 1
