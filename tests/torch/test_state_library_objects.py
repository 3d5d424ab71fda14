"""What a program keeps in an object of a library is named when it changes, and only then."""

import array
import ctypes
import os
import queue
import threading
import weakref
from collections import ChainMap, OrderedDict, UserDict, UserList
from collections.abc import Callable
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import penstock as ps
from penstock.torch import state

_VARIABLE: ContextVar[int] = ContextVar("_VARIABLE", default=1)


class _Structure(ctypes.Structure):
    _fields_ = (("factor", ctypes.c_double),)


class _Sums(nn.Module):
    """As metrics keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(())


class _Noise:
    draws = np.random.default_rng(1)


class _Key:
    pass


_KEY = _Key()


@cache
def _drawn(number: int) -> torch.Tensor:
    return torch.randn(number)


def _counted() -> None:
    _counted.calls = getattr(_counted, "calls", 0) + 1  # type: ignore[attr-defined]


def _shuffled() -> Any:
    return DataLoader(range(8), batch_size=4, shuffle=True, generator=torch.Generator())


def _local() -> Any:
    kept = threading.local()
    kept.count = 0
    return kept


def _queue() -> Any:
    kept: queue.Queue[int] = queue.Queue()
    kept.put(1)
    return kept


#: What makes an object, and what training does to it.
_KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "array": (lambda: array.array("d", [1.0]), lambda kept: kept.append(2.0)),
    "bytearray": (lambda: bytearray(3), lambda kept: kept.__setitem__(1, 7)),
    "cache": (lambda: _drawn, lambda kept: kept(_drawn.cache_info().currsize + 1)),
    "chain": (lambda: ChainMap({"count": 0}), lambda kept: kept.__setitem__("count", 1)),
    "class": (lambda: _Noise(), lambda kept: kept.draws.random()),
    "context": (lambda: _VARIABLE, lambda kept: kept.set(kept.get() + 1)),
    "ctypes": (lambda: ctypes.c_double(1.0), lambda kept: setattr(kept, "value", 2.0)),
    "ctypes structure": (lambda: _Structure(1.0), lambda kept: setattr(kept, "factor", 2.0)),
    "decimal": (lambda: {"scale": Decimal(1)}, lambda kept: kept.__setitem__("scale", Decimal("1.5"))),
    "dict": (lambda: UserDict(count=0), lambda kept: kept.__setitem__("count", 1)),
    "fraction": (lambda: [Fraction(1, 3)], lambda kept: kept.__setitem__(0, Fraction(2, 3))),
    "function": (lambda: _counted, lambda kept: kept()),
    "list": (lambda: UserList([1]), lambda kept: kept.append(2)),
    "loader": (_shuffled, list),
    "local": (_local, lambda kept: setattr(kept, "count", 1)),
    "metric": (_Sums, lambda kept: kept.total.add_(1)),
    "proxy": (lambda: MappingProxyType({"list": [1]}), lambda kept: kept["list"].append(2)),
    "queue": (_queue, lambda kept: kept.put(2)),
    "weak keys": (lambda: weakref.WeakKeyDictionary({_KEY: 1}), lambda kept: kept.__setitem__(_KEY, 2)),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_what_an_object_of_a_library_holds_is_named_when_it_changes(kind: str) -> None:
    """Goal: "never silent" for what a program keeps in such objects. Method: look, look again, change it, look."""
    make, change = _KINDS[kind]
    tree = state(nn.Linear(4, 2))
    kept = make()
    tree.begin()
    before = tree.unpinned()
    change(kept)
    after = tree.unpinned()

    assert before == ()
    assert len(after) == 1
    assert "is in no state" in after[0]


def test_variables_of_the_environment_are_looked_at_where_a_program_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCALE_OF_A_TEST", "1")
    tree = state(nn.Linear(4, 2))

    def scaled() -> float:
        os.environ["SCALE_OF_A_TEST"] += "0"
        return float(os.environ["SCALE_OF_A_TEST"])

    tree.begin()
    assert tree.unpinned() == ()
    assert scaled() == 10
    assert [text.split(" ")[0] for text in tree.unpinned()] == ["os.environ"]


def test_an_optimizer_that_was_never_initialised_as_one_is_saved(tmp_path: Any) -> None:
    """Goal: wrappers that have no room for hooks (timm's Lookahead) are as good as others. Method: save, train on, load, compare."""

    class Outer(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
            self.inner, self.param_groups, self.defaults = inner, inner.param_groups, inner.defaults
            self.state = type(inner.state)(dict)

        def step(self, closure: Any = None) -> None:
            self.inner.step(closure)

        def state_dict(self) -> dict[str, Any]:
            return self.inner.state_dict()

    model = nn.Linear(4, 2)
    outer = Outer(torch.optim.Adam(model.parameters()))
    model(torch.ones(3, 4)).sum().backward()
    outer.step()
    tree = state(model, outer)
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, tree).wait()
        expected = outer.inner.state[model.weight]["exp_avg"].clone()
        outer.step()
        checkpoints.load(checkpoint, tree)
    assert torch.equal(outer.inner.state[model.weight]["exp_avg"], expected)
