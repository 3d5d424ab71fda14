"""What the server answers about hosts: a board of runs, moves that make the next board of it, and refusals in words."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import penstock as ps
from penstock.report.hosts.simulated_job import SimulatedJob
from penstock.view.web.content.hosts import SIMULATION, PlayedJob, number_runs, text_runs
from penstock.view.web.site import Site
from tests.report.hosts.imagined import plan
from tests.view.serving import client_of

COLUMNS = ("states", "rank_shift", "since_s", "due_s", "lease_end_s")


@pytest.fixture
def asker(tmp_path: Path) -> TestClient:
    """A server that plays a job of 64 hosts."""
    played = PlayedJob(source=SimulatedJob(plan()), speed=30.0)
    registry = ps.Registry(tmp_path / "registry")
    return client_of(Site(registry=registry, events_directory=tmp_path, home=tmp_path, played=played))


def _board(asker: TestClient, moment: int) -> dict[str, Any]:
    answer = asker.get("/api/hosts/board", params={"job": SIMULATION, "moment": moment})
    assert answer.status_code == 200
    board: dict[str, Any] = answer.json()
    return board


def _spread(runs: dict[str, Any]) -> list[Any]:
    return [value for value, count in zip(runs["values"], runs["counts"], strict=True) for _ in range(count)]


def test_moves_make_one_board_of_another_at_any_moments(asker: TestClient) -> None:
    """Goal: deltas, not whole tables. Method: a day of a job whose racks fail, forwards and back; what moved is put into the old board."""
    stamps, moments = [], [0, 3_600_000, 80_000_000, 172_800_000, 90_000_000]
    board = _board(asker, moments[0])
    columns = {name: _spread(board["hosts"][name]) for name in COLUMNS}
    mark, stamp = board["events"]["mark"], board["stamp"]
    for moment in moments[1:]:
        moves = asker.get(
            "/api/hosts/moves", params={"job": SIMULATION, "stamp": stamp, "mark": mark, "moment": moment}
        ).json()
        moved = moves["moved"]
        for at, place in enumerate(moved["places"]):
            rank = moved["ranks"][at]
            columns["states"][place] = moved["states"][at]
            columns["rank_shift"][place] = None if rank is None else rank - place
            for name in COLUMNS[2:]:
                columns[name][place] = moved[name][at]
        now = _board(asker, moment)
        assert {name: _spread(now["hosts"][name]) for name in COLUMNS} == columns
        assert moves["events"] == now["events"]
        assert len(now["hosts"]["names"].split("\n")) == now["hosts"]["count"] == 68
        stamp, mark = moves["stamp"], moves["events"]["mark"]
        stamps.append(stamp)
    same = asker.get(
        "/api/hosts/moves", params={"job": SIMULATION, "stamp": stamp, "mark": mark, "moment": moments[-1]}
    ).json()
    assert (same["moved"]["places"], same["events"]) == ([], None)
    assert len(set(stamps)) == len(stamps)


@pytest.mark.parametrize("stamp", ["", "x", "other.1.0", "other.1.", "..", "a.b.c", "x" * 4000, "e.1.-5"])
def test_with_a_stamp_of_another_server_all_is_asked_for_again(asker: TestClient, stamp: str) -> None:
    moves = asker.get("/api/hosts/moves", params={"job": SIMULATION, "stamp": stamp, "mark": ""}).json()
    assert moves["moved"] is None


def test_what_can_be_looked_at_and_what_cannot(asker: TestClient) -> None:
    (job,) = asker.get("/api/hosts").json()["jobs"]
    assert (job["name"], job["hosts"], job["length_s"]) == (SIMULATION, 68, 345_600.0)
    refused = asker.get("/api/hosts/board", params={"job": "../nowhere"})
    assert refused.status_code == 422
    assert "no job of many hosts is called '../nowhere' here" in refused.text
    detail = asker.get("/api/hosts/host", params={"job": SIMULATION, "place": 3}).json()
    assert (detail["name"], detail["ranks"], detail["problem"]) == (
        "host03",
        "24-31",
        "an imagined host runs nothing",
    )
    assert asker.get("/api/hosts/host", params={"job": SIMULATION, "place": 68}).status_code == 422
    assert asker.get("/api/hosts/host", params={"job": SIMULATION, "place": "-1"}).status_code == 422
    assert asker.get("/api/hosts/board", params={"job": SIMULATION, "moment": "9" * 20}).json()["head"][
        "is_over"
    ]


@given(st.lists(st.sampled_from([None, 0.0, 1.0, 2.5])))
def test_runs_are_the_same_as_what_they_stand_for(values: list[float | None]) -> None:
    assert _spread(dict(number_runs(values))) == values
    words = [str(value) for value in values]
    assert _spread(dict(text_runs(words))) == words
    assert all(count > 0 for count in number_runs(values)["counts"])
