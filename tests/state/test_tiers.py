"""A second place behind the first: it gets copies, and gives them back."""

import shutil
import uuid
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.store import open_store
from tests.state.layouts import Divided, equal, gang


@pytest.fixture(params=["directory", "s3"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The second place."""
    if request.param == "directory":
        return str(tmp_path / "far")
    return f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}"


def test_the_second_place_gives_back_what_the_first_lost(tmp_path: Path, far: str) -> None:
    near = tmp_path / "near"
    tree = {"base": np.random.default_rng(1).random(1 << 17), "lora": np.zeros(100)}
    with ps.Checkpoints(near, behind=far, keep=ps.Keep(last=1), keep_behind=ps.Keep(last=2)) as ck:
        for step in range(1, 5):
            tree["lora"] += 1
            ck.save(step, tree).wait()
            ck.wait()
    there = ps.Checkpoints(far, read_only=True)
    assert [checkpoint.step for checkpoint in there.list()] == [3, 4]
    shutil.rmtree(near)
    other = {"base": np.zeros(1 << 17), "lora": np.zeros(100)}
    with ps.Checkpoints(near, behind=far) as ck:
        resumed = ck.resume(other)
        assert resumed is not None
        assert resumed.step == 4
        np.testing.assert_equal(other, tree)
        ck.save(5, tree).wait()
    assert [checkpoint.step for checkpoint in there.list()] == [3, 4, 5]


def test_all_ranks_wait_for_what_is_brought_back(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    whole = {"a": np.arange(24.0)}
    for place, token in ((near, "one"), (tmp_path / "new", "two")):

        def run(rank: int, place: Path = place, token: str = token) -> Divided:
            state = Divided(whole if token == "one" else {"a": np.zeros(24)}, {"a": 0}, rank, 3)
            with ps.Checkpoints(place, behind=str(far), token=token, rank=rank, ranks=3) as ck:
                checkpoint = ck.resume(state)
                assert (checkpoint is None) == (token == "one")
                if checkpoint is None:
                    ck.save(1, state).wait()
            return state

        states = gang(3, run)
    assert equal(
        [state.arrays() for state in states], [Divided(whole, {"a": 0}, r, 3).arrays() for r in range(3)]
    )


def test_a_second_place_that_is_down_is_said_and_does_not_hold_up_the_first(tmp_path: Path) -> None:
    (tmp_path / "far").write_text("in the way")
    with ps.Checkpoints(tmp_path / "near", behind=str(tmp_path / "far")) as ck:
        checkpoint = ck.save(1, {"a": np.zeros(3)}).wait()
        ck.wait()
        assert checkpoint.step == 1
        assert [type(failure).__name__ for failure in ck.behind_failures] == ["StoreFailed"]
    pinned = [committed.pins for committed in ck.log.read().checkpoints()]
    assert pinned == [frozenset()]
    assert list(open_store(tmp_path / "near").entries("data"))
