"""What differs between two checkpoints, and by how much."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.state import Checkpoint
from penstock.state.inspect.difference import Difference, difference
from penstock.state.inspect.optimizer_moments import moments_of
from penstock.state.inspect.piece_reader import Reader
from tests.state.trees import any_bits, columns, every_type, in_memory, laid, saved, whole


def differ(before: Checkpoint, after: Checkpoint) -> Difference:
    return difference(Reader(before.manifest, before.store), Reader(after.manifest, after.store))


def normal(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_equal_checkpoints_are_equal_without_reading(tmp_path: Path) -> None:
    tree = every_type()
    result = differ(saved(tmp_path / "a", tree), saved(tmp_path / "b", tree, step=9))
    assert result.nothing
    assert result.bytes_read == 0
    assert result.equal_by_hash == result.equal == len(tree["model"]) + 1


def test_changes_have_the_figures_of_their_elements(tmp_path: Path) -> None:
    """Goal: relative change, largest change and share are right. Method: against numpy in double precision."""
    a = normal((700, 800), 1)
    b = a.copy()
    b[100:110, 3] += np.float32(0.5)
    b[0, 0] = 40
    result = differ(saved(tmp_path / "a", {"w": a, "v": a}), saved(tmp_path / "b", {"w": b, "v": a}))
    (change,) = result.changes
    wide = b.astype(np.float64) - a.astype(np.float64)
    assert change.name == "w"
    assert change.share == 11 / a.size
    assert change.relative == pytest.approx(np.linalg.norm(wide) / np.linalg.norm(a.astype(np.float64)))
    assert change.greatest == pytest.approx(np.abs(wide).max())
    assert (result.equal, result.equal_by_hash) == (1, 1)
    # Chunks whose hashes agree are read from one side alone.
    assert a.nbytes < result.bytes_read < 2 * a.nbytes


def test_layouts_do_not_matter() -> None:
    """Goal: a resharded copy is equal, and a change in it is found. Method: the same matrix in columns and whole."""
    a = normal((300, 400), 3)
    b = a.copy()
    b[299, 399] += 1
    one = laid(in_memory(), [("w", a, box) for box in columns(a, [100, 150])])
    same = laid(in_memory(), [("w", a, whole(a))])
    other = laid(in_memory(), [("w", b, whole(b))])
    again = differ(one, same)
    assert again.nothing
    assert again.equal_by_hash == 0
    (change,) = differ(one, other).changes
    assert change.changed == 1
    assert change.greatest == pytest.approx(1, rel=1e-6)


def test_types_and_shapes_that_differ_are_said(tmp_path: Path) -> None:
    a = {"w": normal((4, 4), 1), "s": normal((4,), 2), "z": np.zeros(3, np.float32)}
    b = {
        "w": a["w"].astype(np.float64),
        "s": normal((5,), 2),
        "z": np.ones(3, np.float32),
        "new": normal((2,), 1),
    }
    result = differ(saved(tmp_path / "a", a), saved(tmp_path / "b", b))
    assert result.added == ["new"]
    by_name = {change.name: change.to_json() for change in result.changes}
    assert by_name["s"]["shapes"] == [[4], [5]]
    assert by_name["s"]["max_abs"] is None
    assert by_name["w"]["dtypes"] == ["F32", "F64"]
    assert by_name["w"]["changed_share"] == 0.0
    assert by_name["z"]["relative_l2"] is None
    assert by_name["z"]["max_abs"] == 1.0
    assert differ(saved(tmp_path / "c", b), saved(tmp_path / "d", a)).removed == ["new"]


def test_numbers_that_are_not_finite_are_counted_apart(tmp_path: Path) -> None:
    a, b = np.ones(5, np.float32), np.ones(5, np.float32)
    a[0], b[0], b[1], b[2] = np.nan, np.nan, np.inf, 3
    (change,) = differ(saved(tmp_path / "a", {"w": a}), saved(tmp_path / "b", {"w": b})).changes
    assert (change.changed, change.not_finite, change.greatest) == (2, 2, 2.0)


def test_every_type_is_compared(tmp_path: Path) -> None:
    before = {
        "w": {dtype: any_bits(dtype, (64,), 1) for dtype in ("C64", "BOOL", "F8_E4M3", "BF16", "U64", "F16")}
    }
    after = {"w": {dtype: any_bits(dtype, (64,), 2) for dtype in before["w"]}}
    result = differ(saved(tmp_path / "a", before), saved(tmp_path / "b", after))
    assert {change.name for change in result.changes} == {f"w/{dtype}" for dtype in before["w"]}
    assert all(0 < change.share <= 1 for change in result.changes)


def test_values_and_entries_are_taken_apart(tmp_path: Path) -> None:
    a, b = ({"w": np.ones(2), "schedule": {"lr": lr, "kind": "cosine"}} for lr in (0.1, 0.2))
    one = saved(tmp_path / "a", a, entries={"cursor": {"position": 1}, "rng": list(range(700))})
    two = saved(tmp_path / "b", b, entries={"cursor": {"position": 2}, "rng": list(range(700))})
    result = differ(one, two)
    assert result.values == {"schedule/lr": (0.1, 0.2)}
    assert result.entries == {"cursor/position": (1, 2)}
    assert not result.changes
    assert not result.nothing


def test_moments_and_parameters_of_which_one_stood_still_are_named(tmp_path: Path) -> None:
    a = {
        "model": {name: normal((4,), 1) for name in ("moves", "stands", "both")},
        "optimizer": {
            name: {"exp_avg": normal((4,), 2), "step": np.float32(1)} for name in ("moves", "stands", "both")
        },
    }
    b = {
        "model": {**a["model"], "moves": normal((4,), 5), "both": normal((4,), 5)},
        "optimizer": {
            "moves": {**a["optimizer"]["moves"], "step": np.float32(2)},
            "stands": {"exp_avg": normal((4,), 6), "step": np.float32(2)},
            "both": {"exp_avg": normal((4,), 6), "step": np.float32(2)},
        },
    }
    document = differ(saved(tmp_path / "a", a), saved(tmp_path / "b", b)).to_json()
    assert document["stale_moments"] == [{"parameter": "model/moves", "moment": "optimizer/moves/exp_avg"}]
    assert document["unmoved_parameters"] == [
        {"parameter": "model/stands", "moment": "optimizer/stands/exp_avg"}
    ]


def test_moments_are_known_by_their_names() -> None:
    names = ["model/a.weight", "params/dense/kernel", "optimizer/a.weight/exp_avg", "optimizer/a.weight/step"]
    optax = ["opt_state/0/mu/dense/kernel", "opt_state/0/nu/params/dense/kernel", "opt_state/0/count"]
    assert moments_of([*names, *optax, "optimizer/unknown/exp_avg", "optics/a.weight"]) == {
        "optimizer/a.weight/exp_avg": "model/a.weight",
        "opt_state/0/mu/dense/kernel": "params/dense/kernel",
        "opt_state/0/nu/params/dense/kernel": "params/dense/kernel",
    }
