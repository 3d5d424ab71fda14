"""One protocol, two sources: what moved is exactly what differs, of a job that is asked and of one that is played."""

import json
import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.process.job.catalogue import Job
from penstock.report.hosts.asked_job import AskedJob
from penstock.report.hosts.simulated_job import SimulatedJob
from penstock.report.hosts.snapshot import HostSnapshot, count_states
from penstock.report.hosts.source import HostSource
from tests.report.hosts.imagined import plan

HOSTS = 40
LOOKS = 300


@pytest.fixture(scope="module")
def played() -> SimulatedJob:
    return SimulatedJob(plan())


@given(st.lists(st.floats(0, 4 * 86_400), min_size=2, max_size=6))
@settings(deadline=None)
def test_what_moved_between_any_two_moments_is_what_differs(
    played: SimulatedJob, moments: list[float]
) -> None:
    """Goal: deltas are right, forwards and backwards. Method: a job with racks that fail, at random moments in any order."""
    before = played.look(moments[0])
    for moment in moments[1:]:
        now = played.look(moment)
        _check_moves(played, before, now)
        assert now.counts == count_states(now.hosts) + type(now.counts)()
        assert all(event.at_s <= moment for event in played.events(moment))
        held = [host.rank for host in now.hosts if host.rank is not None]
        assert len(held) == len(set(held))
        before = now


def test_a_rack_fails_before_the_eyes_of_whoever_plays_it(played: SimulatedJob) -> None:
    """Method: step from change to change: hosts of one rack are late, unheard, expired, and come back as spares; silence is seen first."""
    fault = next(event for event in played.events() if "switch takes" in event.what)
    rack = fault.what.split()[-1]
    moment, seen = fault.at_s, []
    for _ in range(60):
        snapshot = played.look(moment)
        states = {host.shown_state for host in snapshot.hosts if host.rack == rack and host.name != ""}
        seen += [state for state in sorted(states) if state not in seen]
        if snapshot.next_s is None or "expired" in seen:
            break
        moment = snapshot.next_s
    assert [state for state in seen if state in ("late", "unheard", "expired")] == [
        "late",
        "unheard",
        "expired",
    ]
    lost = next(
        host for host in played.look(fault.at_s + 20).hosts if host.rack == rack and host.state == "unheard"
    )
    left = played.look(fault.at_s + 20).lease_left_s(lost)
    assert left is not None
    assert 8 < left < 12


def _check_moves(source: HostSource, before: HostSnapshot, now: HostSnapshot) -> None:
    moved = source.moved(before.stamp, now)
    assert moved is not None
    differs = [
        place for place, (one, two) in enumerate(zip(before.hosts, now.hosts, strict=True)) if one != two
    ]
    assert set(differs) <= set(moved)


class Coordinator:
    """Answers on a real socket as the coordinator of a leader does; what it says is set by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = [
            {
                "rank": rank,
                "name": f"gpu{rank:02}",
                "state": "here",
                "slots": 1,
                "since_s": 5.0,
                "rack": "ab"[rank % 2],
                "first_rank": rank,
                "late_beats": 0.0,
            }
            for rank in range(HOSTS)
        ]
        self.head: dict[str, Any] = {
            "term": 1,
            "leader": "gpu00",
            "voters": ["gpu00"],
            "lease_ms": 30_000,
            "heartbeat_ms": 1000,
            "list": 1,
        }
        self.asked: list[str] = []
        self.knows_unsettled = self.is_heard = True
        (folder / "job.json").write_text(json.dumps({"id": "x", "roles": []}))
        (folder / "host.json").write_text(json.dumps({"name": "gpu00", "nnodes": HOSTS}))

    def answer(self, question: str) -> dict[str, Any]:
        if question == "journal":
            return {"ok": True, "rows": [], "account": {}}
        self.asked.append(question)
        if not self.is_heard:
            return {"ok": True, "rows": [], "account": {"asked": "0", "unheard": "0"}}
        if question == "unsettled" and not self.knows_unsettled:
            refused = [{"why": "another version", "hosts": "0"}]
            return {"ok": True, "rows": [], "account": {"asked": "0", "refused": refused}}
        rows = self.rows
        if question == "unsettled":
            rows = [row for row in rows if row["state"] not in ("here", "spare") or row["late_beats"]]
        return {
            "ok": True,
            "rows": [{**self.head, "hosts": rows}],
            "account": {"asked": "0", "answered": "0"},
        }

    def serve(self, server: socket.socket) -> None:
        while True:
            try:
                talk, _ = server.accept()
            except OSError:
                return
            with talk:
                question = json.loads(talk.makefile().readline())["ask"]
                talk.sendall(json.dumps(self.answer(question)).encode() + b"\n")


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    """Of a job that starts, because no agent is here to say that it runs."""
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/host.sock")
        os.close(folder)
        server.listen()
        one = Coordinator(tmp_path)
        thread = threading.Thread(target=one.serve, args=(server,), daemon=True)
        thread.start()
        yield one
        server.shutdown(socket.SHUT_RDWR)


class Clock:
    """A second for each look."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_job_that_is_asked_only_for_what_is_not_settled_is_seen_as_it_is(coordinator: Coordinator) -> None:
    """Goal: deltas are right. Method: random hosts change at random; each look is held to what the leader knows, and to what moved."""
    chance, clock = random.Random(7), Clock()
    source = AskedJob(Job(coordinator.folder), clock=clock)
    before = source.look()
    for _ in range(LOOKS // 3):
        for _ in range(chance.randrange(3)):
            row = chance.choice(coordinator.rows)
            row["state"] = chance.choice(["here", "here", "unheard", "expired", "gone"])
            row["late_beats"] = (
                3.0
                if row["state"] == "unheard"
                else chance.choice([0.0, 0.0, 1.5])
                if row["state"] == "here"
                else 0.0
            )
        clock.now_s += 1.0
        now = source.look()
        assert [host.state for host in now.hosts] == [row["state"] for row in coordinator.rows]
        assert [host.due_s is not None for host in now.hosts] == [
            bool(row["late_beats"]) for row in coordinator.rows
        ]
        assert now.counts == count_states(now.hosts)
        _check_moves(source, before, now)
        assert (now.stamp == before.stamp) == (now.hosts == before.hosts)
        before = now
    assert coordinator.asked.count("hosts") == 1
    seen = " ".join(event.what for event in source.events())
    assert "are unheard" in seen or "is unheard" in seen


def test_other_hosts_a_new_leader_a_silent_one_and_one_of_an_older_version(coordinator: Coordinator) -> None:
    clock = Clock()
    source = AskedJob(Job(coordinator.folder), clock=clock)
    first = source.look()

    coordinator.is_heard, clock.now_s = False, clock.now_s + 1
    silent = source.look()
    assert "not heard" in silent.problem
    assert silent.hosts == first.hosts

    coordinator.is_heard, clock.now_s = True, clock.now_s + 1
    coordinator.head.update(term=2, leader="gpu01")
    led = source.look()
    assert (led.problem, led.leader, led.term) == ("", "gpu01", 2)
    assert [event.what for event in source.events()] == ["gpu00 leads in term 1", "gpu01 leads in term 2"]

    coordinator.head["list"], clock.now_s = 2, clock.now_s + 1
    coordinator.rows[3]["name"] = "gpu99"
    other = source.look()
    assert other.hosts[3].name == "gpu99"
    assert other.list_stamp > led.list_stamp
    assert source.moved(led.stamp, other) is None

    coordinator.knows_unsettled, clock.now_s = False, clock.now_s + 1
    coordinator.rows[5]["state"] = "gone"
    assert source.look().hosts[5].state == "gone"


def test_a_host_that_waits_for_a_place_comes_and_goes(coordinator: Coordinator) -> None:
    clock = Clock()
    source = AskedJob(Job(coordinator.folder), clock=clock)
    source.look()
    coordinator.rows.append({"rank": None, "name": "late", "state": "spare", "late_beats": 0.0})
    coordinator.rows[-1]["state"] = "unkillable"
    clock.now_s += 1
    assert source.look().hosts[-1].name == "late"
    coordinator.rows.pop()
    clock.now_s += 1
    assert len(source.look().hosts) == HOSTS


def test_a_job_whose_files_are_gone_stays_as_it_was_and_says_so(coordinator: Coordinator) -> None:
    clock = Clock()
    source = AskedJob(Job(coordinator.folder), clock=clock)
    before = source.look()
    for path in coordinator.folder.iterdir():
        path.unlink()
    clock.now_s += 10
    after = source.look()
    assert after.hosts == before.hosts
    assert after.problem
    assert source.ranks(0).problem
    assert source.events()
