"""The roll: an incarnation whose name another start may have had is joined by its own processes alone."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import (
    CheckpointDamaged,
    Fenced,
    IncarnationTaken,
    RanksMissing,
    UsageError,
)
from penstock.state.log.incarnation import Member
from penstock.state.log.log import Log
from penstock.state.ranks.clock import Clock
from penstock.state.ranks.launcher import Launch, Place, launch_of, place_of
from penstock.state.ranks.roll import call
from penstock.store import Store
from tests.state.savers import begin
from tests.state.test_agreement import Time, in_threads


def start(
    store: Store, start_: str, ranks: int = 3, name: str = "job.0", late: int | None = None
) -> list[int]:
    """Numbers of the incarnation that the ranks of a start come to; rank ``late`` comes when another one waits already."""
    waits = threading.Event()

    def pause(seconds: float) -> None:
        waits.set()
        Clock().pause(seconds)

    def work(rank: int) -> int | None:
        if rank == late:
            assert waits.wait(50)
        member = Member(rank, ranks, name)
        return call(
            Log(store), member, f"{start_}-{rank}", deadline_s=50, clock=Clock(pause=pause)
        ).incarnation

    numbers = in_threads(ranks, work)
    assert all(isinstance(number, int) for number in numbers), numbers
    return numbers


@pytest.mark.parametrize("late", [None, 0, 1])
def test_a_second_start_of_the_same_name_is_another_incarnation(store: Store, late: int | None) -> None:
    """Goal: S2 for starts that their launcher calls the same. Method: three starts with one name, of which the last has other ranks."""
    assert start(store, "first") == [0] * 3
    assert start(store, "second", late=late) == [1] * 3
    assert start(store, "third", ranks=2, late=late) == [2] * 2
    assert [entry.ranks for _, entry in Log(store).read().fences()] == [3, 3, 2]


def test_a_rank_that_signed_with_the_dead_moves_to_its_own_start(memory: Store) -> None:
    """Goal: a start that died before its roll was called keeps nobody. Method: rank 0 has fenced and died; rank 1 of the next start comes
    before its own rank 0 and finds its place free."""
    with pytest.raises(RanksMissing) as caught:
        call(Log(memory), Member(0, 2, "job"), "dead-0", deadline_s=0)
    assert caught.value.missing == [1]
    moved = Time()
    begun: list[Any] = []

    def second_rank_0() -> None:
        if not begun:
            thread = threading.Thread(
                target=lambda: begun.append(call(Log(memory), Member(0, 2, "job"), "new-0", deadline_s=50))
            )
            thread.start()
            begun.append(thread)

    moved.on_pause = second_rank_0
    assert call(Log(memory), Member(1, 2, "job"), "new-1", deadline_s=1e9, clock=moved.clock).incarnation == 1
    begun[0].join(60)
    assert begun[1].incarnation == 1
    assert memory.get("resume/0/roll/1") == b"new-1"


def test_a_rank_that_comes_alone_is_told_who_has_its_name(memory: Store) -> None:
    """Goal: a rank is never joined to other processes, and says so. Method: rank 1 is started again by itself, and then with other ranks."""
    assert start(memory, "first", ranks=2) == [0, 0]
    with pytest.raises(
        RanksMissing, match="incarnation 0 has the same name, but another process was its rank 1"
    ):
        call(Log(memory), Member(1, 2, "job.0"), "again-1", deadline_s=30, clock=Time().clock)
    with pytest.raises(RanksMissing, match="it has 2 ranks, and this start 4"):
        call(Log(memory), Member(3, 4, "job.0"), "again-3", deadline_s=30, clock=Time().clock)


def test_a_number_that_was_used_is_refused_on_all_ranks(memory: Store) -> None:
    members = [Member(0, 2, "drawn", incarnation=4), Member(1, 2, "", incarnation=4)]

    def work(rank: int, of: str) -> int | None:
        return call(Log(memory), members[rank], f"{of}-{rank}", deadline_s=50).incarnation

    assert in_threads(2, lambda rank: work(rank, "first")) == [4, 4]
    refused = in_threads(2, lambda rank: work(rank, "second"))
    assert [type(problem) for problem in refused] == [Fenced, IncarnationTaken]
    begin(Log(memory))
    with pytest.raises(Fenced):
        work(1, "third")


def test_rank_0_notices_its_successor_while_it_waits(memory: Store) -> None:
    moved = Time()
    moved.on_pause = lambda: begin(Log(memory))
    with pytest.raises(Fenced):
        call(Log(memory), Member(0, 2, "job"), "0", deadline_s=1e6, clock=moved.clock)


@pytest.mark.parametrize("roll", [b"{", b'{"processes": ["a"]}'])
def test_a_roll_that_is_damaged_is_named(memory: Store, roll: bytes) -> None:
    with pytest.raises(RanksMissing):
        call(Log(memory), Member(0, 2, "job"), "0", deadline_s=0)
    memory.put_if_absent("resume/0/roll.json", roll)
    with pytest.raises(CheckpointDamaged, match=r"resume/0/roll\.json"):
        call(Log(memory), Member(1, 2, "job"), "1", deadline_s=0)


@pytest.mark.parametrize("by", ["launcher", "token", "number"])
def test_checkpoints_opened_again_under_one_name_resume_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Goal: a hand-written loop never begins from nothing over what it saved. Method: two starts with the same name of the launcher, the
    same token, and the same number, which is the one that has to be refused."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "seven")
    options: dict[str, Any] = {"launcher": {}, "token": {"token": "mine"}, "number": {"incarnation": 3}}[by]

    def work(rank: int) -> int | None:
        with ps.Checkpoints(tmp_path, rank=rank, ranks=2, deadline_s=50, **options) as ck:
            tree = {"w": np.zeros(8)}
            checkpoint = ck.resume(tree)
            tree["w"] += 1
            ck.save(0 if checkpoint is None else checkpoint.step + 10, tree).wait()
            return None if checkpoint is None else checkpoint.step + int(tree["w"][0])

    assert in_threads(2, work) == [None, None]
    if by == "number":
        assert [type(problem) for problem in in_threads(2, work)] == [Fenced, IncarnationTaken]
        assert [checkpoint.step for checkpoint in ps.Checkpoints(tmp_path, read_only=True).list()] == [0]
        return
    assert in_threads(2, work) == [2, 2]
    assert in_threads(2, work) == [13, 13]


def test_copies_behind_a_second_start_of_the_same_name_are_its_own(tmp_path: Path) -> None:
    """Goal: the second place has the newest as well. Method: two starts with one token, and a single-rank start between them."""

    def work(rank: int, step: int) -> None:
        with ps.Checkpoints(
            tmp_path / "near", behind=str(tmp_path / "far"), token="same", rank=rank, ranks=2, deadline_s=50
        ) as ck:
            tree = {"w": np.full(8, float(step))}
            ck.resume(tree)
            ck.save(step, {"w": np.full(8, float(step))}).wait()
            ck.wait()
            assert not ck.behind_failures

    for step in (1, 2, 3):
        assert in_threads(2, lambda rank, step=step: work(rank, step)) == [None, None]
    assert [checkpoint.step for checkpoint in ps.Checkpoints(tmp_path / "far", read_only=True).list()] == [
        1,
        2,
        3,
    ]


_TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_PORT": "29500"}
_SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "17"}
_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "99"}


@pytest.mark.parametrize(
    ("environment", "place", "launch"),
    [
        ({}, Place(), None),
        ({"SLURM_JOB_ID": "17", "SLURM_PROCID": "0"}, Place(), None),
        ({**_SLURM, "SLURM_STEP_ID": "2"}, Place(3, 4, 1), Launch("slurm", "17", "2")),
        (
            {**_SLURM, "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"},
            Place(3, 4, 1),
            Launch("slurm", "17", "0", 1),
        ),
        (
            {**_SLURM, **_TORCHRUN, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "2"},
            Place(1, 2, 1),
            Launch("torchrun", "", "29500", 2),
        ),
        ({**_SLURM, **_MPI}, Place(0, 2), Launch("mpirun", "99")),
        (
            {**_TORCHRUN, "PENSTOCK_JOB": "j", "PENSTOCK_INCARNATION": "5"},
            Place(1, 2, 1),
            Launch("penstock", "j", life=5),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_PORT": "5"}, Place(1, 2), Launch("mpirun", "5")),
        (_TORCHRUN, Place(1, 2, 1), Launch("ranks", "29500")),
    ],
)
def test_launchers_are_known_by_their_variables(
    environment: Mapping[str, str], place: Place, launch: Launch | None
) -> None:
    assert (place_of(environment), launch_of(environment)) == (place, launch)


def test_names_of_steps_and_restarts_differ() -> None:
    starts = [
        {**_SLURM, "SLURM_STEP_ID": "0"},
        {**_SLURM, "SLURM_STEP_ID": "1"},
        {**_SLURM, "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"},
        {"TORCHELASTIC_RUN_ID": "17", "TORCHELASTIC_RESTART_COUNT": "0"},
        {"TORCHELASTIC_RUN_ID": "17", "TORCHELASTIC_RESTART_COUNT": "1"},
    ]
    names = [launch.name for environment in starts if (launch := launch_of(environment)) is not None]
    assert len(set(names)) == len(starts)


@pytest.mark.parametrize(
    "environment", [{**_TORCHRUN, "RANK": "2"}, {**_TORCHRUN, "RANK": "x"}, {**_TORCHRUN, "WORLD_SIZE": "-1"}]
)
def test_variables_that_make_no_sense_are_refused(environment: Mapping[str, str]) -> None:
    with pytest.raises(UsageError, match=r"RANK|rank"):
        place_of(environment)
