"""Who collects and who answers: only peers that know the token are heard, and one that is ill holds nobody up."""

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CheckFailed
from penstock.process.health.check_link import CheckLink, accepted, connected, proof, token_of
from penstock.process.health.check_rank import ReportReader, listen, pieces
from penstock.process.health.examiner import CheckPlan, Examiner
from penstock.process.health.facts.compute_probe import ComputeLook, DeviceSpeed
from penstock.process.health.facts.gpu_facts import GpuFacts, GpuLook
from penstock.process.health.facts.host_facts import HostFacts
from penstock.process.health.participant import ExaminerPlace, Participant, take_part
from penstock.process.health.report import CheckReport, HostLook, Meeting
from penstock.process.health.verdict import judge

TOKEN = os.urandom(32)
PLAN = CheckPlan(limit_s=8.0, processor=False, compute="")


def _hosts(count: int, address: str, port: int) -> list[threading.Thread]:
    def take(number: int) -> None:
        me = Participant(number, f"gpu{number}")
        take_part(me, ExaminerPlace(address, port), TOKEN, limit_s=10.0, environment={})

    threads = [threading.Thread(target=take, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_hosts_are_collected_whatever_else_connects(address: str) -> None:
    """Method: of four hosts three come; strangers say garbage, nothing, or what they heard before."""
    with listen(address, 0) as listener:
        port = listener.getsockname()[1]
        strangers = [socket.create_connection((address, port)) for _ in range(3)]
        strangers[0].sendall(os.urandom(4096))
        strangers[1].sendall(b"\0" * 48)
        threads = _hosts(3, address, port)
        report = Examiner(listener, TOKEN, dict.fromkeys(range(4), ""), PLAN).collect(lambda _report: "unfit")
        for stranger in strangers:
            stranger.close()
        for thread in threads:
            thread.join(10)
    assert [look.name for look in report.hosts[:3]] == ["gpu0", "gpu1", "gpu2"]
    assert all(look.facts is not None and look.clock_s is not None for look in report.hosts[:3])
    assert report.hosts[3].problem == "not heard"
    assert {frozenset((one.one, one.two)) for one in report.meetings if one.good} == {
        frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2))
    }
    assert judge(report).unfit == [3]


def test_a_host_that_answers_garbage_is_named_and_the_others_are_measured() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        threads = _hosts(3, "127.0.0.1", port)

        def answer() -> None:
            link = CheckLink(connected("127.0.0.1", port, TOKEN, 5.0))
            link.say({"number": 3, "name": "gpu3", "address": "127.0.0.1", "port": 1})
            for word in ({"at": 1e9}, {"at": 1e9}, {"at": 1e9}, {"at": 1e9}, {"at": 1e9}, {"facts": [7]}):
                asked = link.hear(10.0) or {}
                link.say({**word, "id": asked.get("id")})
            while (asked := link.hear(10.0)) is not None and asked.get("do") != "end":
                link.say({"pair": 7, "id": asked.get("id")})
            link.close()

        threads.append(threading.Thread(target=answer, daemon=True))
        threads[-1].start()
        report = Examiner(listener, TOKEN, dict.fromkeys(range(4), ""), PLAN).collect()
        for thread in threads:
            thread.join(10)
    assert judge(report).unfit == [3]
    assert "other versions" in report.hosts[3].problem


def test_neither_end_believes_who_does_not_know_the_token() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        def let_in() -> None:
            handle, _ = listener.accept()
            accepted(handle, TOKEN)
            handle.close()

        thread = threading.Thread(target=let_in, daemon=True)
        thread.start()
        with pytest.raises((OSError, CheckFailed)):
            connected("127.0.0.1", port, b"another", 5.0)
        thread.join(10)
    assert token_of(b"secret", "a") != token_of(b"secret", "b")
    assert proof(TOKEN, b"a", b"b") != proof(TOKEN, b"ab")


def test_a_report_comes_through_a_launcher_that_marks_and_mixes_lines() -> None:
    report = CheckReport([HostLook(number, f"gpu{number}·", _facts(number)) for number in range(40)])
    lines = [f"[0] {line}\n" for line in pieces(report)]
    reader = ReportReader()
    for line in [*reversed(lines), "[1] penstock-check-end fit\n"]:
        assert reader.take(line)
    assert not reader.take("[0] loss 0.3\n")
    assert reader.report() == report
    assert reader.end == "fit"
    missing = ReportReader()
    assert [missing.take(line) for line in lines[1:]]
    assert missing.report() is None


def _facts(number: int, **more: Any) -> HostFacts:
    base: dict[str, Any] = {
        "memory_bytes": 100,
        "shm_bytes": 1 << 30,
        "shm_free_bytes": 1 << 30,
        "processors": 8,
    }
    return HostFacts(versions={"torch": "2.7"}, limits={"open files": 4096}, **{**base, **more})


def test_hosts_are_compared_with_their_own_kind() -> None:
    """Method: six hosts of one kind of GPU and five of another, half as fast; one of the slow kind is slow for it."""
    looks = []
    for number in range(11):
        kind, usual = ("H200", 100.0) if number < 6 else ("A100", 50.0)
        gpus = GpuLook((GpuFacts(f"GPU-{number}", kind),), "550.1")
        speed = usual * (0.7 if number == 8 else 1.0)
        compute = ComputeLook((DeviceSpeed(f"GPU-{number}", kind, speed, speed),))
        looks.append(HostLook(number, f"gpu{number}", _facts(number, gpus=gpus), 0.0, 0.0, 100.0, compute))
    verdict = judge(CheckReport(looks))
    assert verdict.unfit == [8]
    assert {one.check for one in verdict.findings} == {"gemm", "copy"}
    assert all(one.failure == "outlier" for one in verdict.findings)


def test_clocks_disks_and_wrong_products_are_named() -> None:
    looks = [HostLook(number, f"gpu{number}", _facts(number), 0.0) for number in range(5)]
    looks[1].clock_s = 3600.0
    looks[2].facts = _facts(2, shm_free_bytes=0)
    looks[3].compute = ComputeLook((DeviceSpeed("GPU-3", "H200", 1.0, 1.0, wrong=True),))
    looks[4].facts = _facts(4, memory_bytes=50)
    meetings = [Meeting(0, number, good=True) for number in range(1, 5)]
    verdict = judge(CheckReport(looks, meetings))
    words = {one.host: (one.check, one.failure) for one in verdict.findings}
    assert words == {1: ("clock", ""), 2: ("shm", ""), 3: ("gemm", "check"), 4: ("mem", "outlier")}
    assert "3,600.0 s ahead of the others'" in next(one.words for one in verdict.findings if one.host == 1)


def test_two_groups_without_a_majority_are_both_named(tmp_path: Path) -> None:
    looks = [HostLook(number, f"gpu{number}", _facts(number), 0.0) for number in range(2)]
    looks[1].facts = HostFacts(versions={"torch": "2.6"}, shm_free_bytes=1 << 30)
    verdict = judge(CheckReport(looks))
    assert verdict.unfit == [0, 1]
    assert any("hosts differ" in one.words for one in verdict.findings)
