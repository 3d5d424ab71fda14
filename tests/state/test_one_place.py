"""In a job of many hosts a place that only one of them sees is refused, with host and path, before anything waits for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import PlaceNotShared
from penstock.state.ranks.clock import Clock
from penstock.state.ranks.one_place import (
    HostPosition,
    check_one_place,
    host_position,
    leave_token,
    look_for_token,
)
from penstock.store import open_store

LIFE = {
    "PENSTOCK_JOB": "train-1",
    "PENSTOCK_INCARNATION": "0",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "40001",
    "WORLD_SIZE": "4",
    "GROUP_WORLD_SIZE": "2",
}


def rank(number: int, **changes: str) -> dict[str, str]:
    return {
        **LIFE,
        "RANK": str(number),
        "LOCAL_RANK": str(number % 2),
        "GROUP_RANK": str(number // 2),
        **changes,
    }


def position(number: int, **changes: str) -> HostPosition:
    found = host_position(rank(number, **changes))
    assert found is not None
    return found


def hurried() -> Clock:
    """A clock whose pauses take no time."""
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    return Clock(ticks=lambda: now[0], pause=pause)


def test_one_rank_of_every_other_host_looks() -> None:
    assert [position(number).looks for number in range(4)] == [False, False, True, False]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        rank(1, GROUP_WORLD_SIZE="1"),
        {key: value for key, value in rank(1).items() if key != "PENSTOCK_JOB"},
    ],
)
def test_a_job_of_one_host_and_other_launchers_are_left_alone(environment: dict[str, str]) -> None:
    assert host_position(environment) is None


def test_a_place_that_both_hosts_see_is_accepted(tmp_path: Path) -> None:
    store = open_store(tmp_path / "shared")
    check_one_place(store, position(0), 4, deadline_s=1)
    check_one_place(store, position(2), 4, deadline_s=1)


def test_two_local_disks_are_told_apart_and_the_host_is_named(tmp_path: Path) -> None:
    check_one_place(open_store(tmp_path / "disk0"), position(0), 4, deadline_s=1)
    other = open_store(tmp_path / "disk1")
    with pytest.raises(PlaceNotShared) as caught:
        look_for_token(other, position(2).life, position(2), timeout_s=30, clock=hurried())
    assert (caught.value.host, caught.value.host_rank) == (os.uname().nodename, 1)
    assert caught.value.place == other.url
    assert str(tmp_path / "disk1") in str(caught.value)


def test_a_token_of_an_earlier_life_proves_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "disk1")
    leave_token(store, position(0, PENSTOCK_INCARNATION="0").life)
    later = position(2, PENSTOCK_INCARNATION="1")
    with pytest.raises(PlaceNotShared):
        look_for_token(store, later.life, later, timeout_s=5, clock=hurried())
    leave_token(store, position(0, PENSTOCK_INCARNATION="1").life)
    assert len(list(store.entries("places"))) == 1


def test_what_some_ranks_use_alone_need_not_be_shared(tmp_path: Path) -> None:
    check_one_place(open_store(tmp_path / "own"), position(2), 1, deadline_s=0)


PROGRAM = """
import json, sys
import numpy as np
from penstock.errors import PlaceNotShared
from penstock.state import Checkpoints
place, rank = sys.argv[1], int(sys.argv[2])
try:
    with Checkpoints(place, rank=rank, ranks=2, deadline_s=float(sys.argv[3])) as checkpoints:
        checkpoints.save(1, {"w": np.ones(4)}).wait()
    print(json.dumps({"saved": True}))
except PlaceNotShared as problem:
    print(json.dumps({"host_rank": problem.host_rank, "place": problem.place}))
except Exception as problem:
    print(json.dumps({"other": type(problem).__name__}))
"""


@pytest.mark.parametrize("shared", [True, False])
def test_checkpoints_of_two_hosts_refuse_two_directories(tmp_path: Path, shared: bool) -> None:
    """Method: two real processes with the variables of two hosts, in one directory or in two."""
    places = [tmp_path / "a", tmp_path / ("a" if shared else "b")]
    for place in places:
        place.mkdir(exist_ok=True)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(places[number]), str(number), "60" if shared else "3"],
            env={
                **os.environ,
                **rank(0, RANK=str(number), WORLD_SIZE="2", LOCAL_RANK="0", GROUP_RANK=str(number)),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    if shared:
        assert answers == [{"saved": True}, {"saved": True}]
    else:
        assert answers[1] == {"host_rank": 1, "place": open_store(places[1]).url}
