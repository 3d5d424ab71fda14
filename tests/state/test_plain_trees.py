"""Trees of containers and arrays that people have beside dicts and plain arrays: filled, made anew, or refused, never left as they were."""

from collections import UserDict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import TreeInvalid


class Frozen(Mapping[str, Any]):
    """A mapping that cannot be written to, as those of JAX's libraries."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Fixed(Frozen):
    """One that nobody can make from its items."""

    def __init__(self) -> None:
        super().__init__({"a": 1})


@pytest.mark.parametrize("kind", [dict, UserDict, MappingProxyType, Frozen])
def test_values_in_mappings_of_every_kind_come_back(tmp_path: Path, kind: Callable[[Any], Any]) -> None:
    def made(number: int) -> dict[str, Any]:
        inner = kind({"number": number, "list": [number], "array": np.full(3, number)})
        return {"outer": kind({"inner": inner}), "last": number}

    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, made(3)).wait()
        fresh = made(0)
        loaded = checkpoints.load(checkpoint, fresh)
    assert loaded is fresh
    inner = loaded["outer"]["inner"]
    assert type(inner) is type(made(0)["outer"]["inner"])
    assert (inner["number"], inner["list"], inner["array"].tolist()) == (3, [3], [3, 3, 3])


def _read_only() -> Any:
    array = np.zeros(3)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        (np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False]), "masked"),
        ("name-\udc80", "valid in UTF-8"),
        ({"name-\udc80": 1}, "valid in UTF-8"),
        (Fixed(), "Fixed cannot be made from a dict"),
    ],
    ids=["masked array", "text", "key", "mapping of its own"],
)
def test_what_would_lose_something_is_refused_by_name(tmp_path: Path, leaf: Any, said: str) -> None:
    with ps.Checkpoints(tmp_path) as checkpoints, pytest.raises(TreeInvalid, match=said):
        checkpoints.save(1, {"leaf": leaf})


@pytest.mark.parametrize("target", [_read_only(), np.broadcast_to(np.zeros(1), 3)], ids=["array", "view"])
def test_nothing_is_loaded_into_arrays_that_nobody_may_write_to(tmp_path: Path, target: Any) -> None:
    with ps.Checkpoints(tmp_path) as checkpoints:
        # It can be saved, as it is now.
        checkpoint = checkpoints.save(1, {"first": np.ones(2), "last": np.array(target)}).wait()
        first = np.zeros(2)
        with pytest.raises(TreeInvalid, match="read-only"):
            checkpoints.load(checkpoint, {"first": first, "last": target})
    assert first.tolist() == [0, 0]
