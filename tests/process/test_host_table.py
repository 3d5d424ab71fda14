"""What any host says about all hosts is shown: a line about hosts, rows of all, the journal of the job."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.questions.process_table import _view
from penstock.errors import JobSilent
from penstock.process.hosts.host_table import HostRow, HostTable, host_table
from penstock.process.job.catalogue import Job
from penstock.process.job.control import stop
from penstock.report.job_story import Story

ROLE = {"name": "rank", "kind": "gang", "ranks": 2, "command": ["true"], "policy": {"restart": "gang"}}
HOSTS: dict[str, Any] = {
    "term": 3,
    "leader": "gpu01",
    "voters": ["gpu01", "gpu02", "gpu03"],
    "frozen": None,
    "reason": None,
    "answered_by": "gpu01",
    "lease_ms": 30000,
    "list": 2,
    "hosts": [
        {"rank": 0, "name": "gpu01", "state": "here", "slots": 2, "since_s": 4.0, "voter": True},
        {"rank": 1, "name": "gpu02", "state": "unheard", "slots": 2, "since_s": 1.5, "voter": True},
        {"rank": 2, "name": "gpu03", "state": "here", "slots": 2, "since_s": 4.0, "voter": True},
    ],
}
WORKER: dict[str, Any] = {
    "role": "rank",
    "pid": 7,
    "incarnation": 0,
    "exit": None,
    "running": True,
    "step": 12,
}
ORDERED = {"at": 1.0, "event": "ordered", "incarnation": 0, "reason": "as asked for", "line": 1}
MOVED = {
    "at": 2.0,
    "event": "hosts",
    "line": 2,
    "about": {"version": 3, "lost": [1], "placed": [[1, {"name": "gpu09"}]]},
}
ANSWERS: dict[str, Any] = {
    "hosts": {"ok": True, "rows": [HOSTS], "account": {"asked": "0", "answered": "0"}},
    "ps": {
        "ok": True,
        "rows": [
            {**WORKER, "host": "gpu03", "host_rank": 2, "rank": 4},
            {**WORKER, "host": "gpu01", "host_rank": 0, "rank": 0},
        ],
        "account": {"asked": "0-2", "answered": "0,2", "unheard": "1", "refused": []},
        "names": {"1": "gpu02"},
    },
    "journal": {"ok": True, "rows": [ORDERED, MOVED], "account": {"asked": "0", "answered": "0"}},
}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job of three hosts whose coordinator answers as such a coordinator does."""
    (tmp_path / "job.json").write_text(json.dumps({"id": "x", "roles": [ROLE]}))
    (tmp_path / "host.json").write_text(json.dumps({"name": "gpu01", "nnodes": 3}))
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/host.sock")
        os.close(folder)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    talk, _ = server.accept()
                except OSError:
                    return
                with talk:
                    question = json.loads(talk.makefile("rb").readline())
                    answer = ANSWERS.get(question["ask"], {"ok": False, "problem": "not a question"})
                    talk.sendall(json.dumps(answer).encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Job(tmp_path)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)


def test_one_line_says_which_hosts_are_here_and_which_are_not(job: Job) -> None:
    assert host_table(job).line() == "2 hosts here · unheard: gpu02"
    frozen = HostTable([HostRow(0, "a", "here"), HostRow(1, "b", "expired")], frozen="1 of 3 voters")
    assert frozen.line() == "1 host here · expired: b · frozen: 1 of 3 voters"


def test_before_all_have_met_the_line_says_what_is_waited_for() -> None:
    waiting = HostTable(reason="waits for hosts: 2 of 3 are here; missing: gpu03")
    assert waiting.line() == "waits for hosts: 2 of 3 are here; missing: gpu03"


def test_rows_of_all_hosts_are_shown_each_once_and_silent_hosts_are_counted(job: Job) -> None:
    view = _view(job, supervisors=False, gpus={})
    assert [(row["host"], row["host_rank"], row["worker"], row["state"]) for row in view.rows] == [
        ("gpu03", 2, "rank-4", "runs")
    ]
    assert (view.is_many, view.hosts) == (
        True,
        "2 hosts here · unheard: gpu02 · 4 of 6 ranks · unheard: gpu02 · refused: none",
    )


def test_the_story_of_a_job_is_that_of_all_hosts_and_every_line_is_told_once(job: Job) -> None:
    story = Story(job)
    assert [happening.what for happening in story.more()] == [
        "life 0 is ordered: as asked for",
        "the host of host rank 1 is lost, gpu09 has host rank 1",
    ]
    assert list(story.more()) == []


def test_when_nobody_answers_any_more_the_story_goes_on_in_the_file(job: Job) -> None:
    """Method: the socket is removed, and the file has old lines, a fact of this host alone, and the last line."""
    story = Story(job)
    assert len(list(story.more())) == 2
    (job.directory / "host.sock").unlink()
    over = {"at": 3.0, "event": "over", "phase": "stopped", "reason": "asked", "line": 3}
    lines = [ORDERED, MOVED, {"at": 2.5, "event": "gap"}, over]
    (job.directory / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [happening.what for happening in story.more()] == ["the job is over, stopped: asked"]


def test_a_host_that_is_cut_off_says_that_it_hears_no_leader(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = {"ok": True, "rows": [], "account": {"asked": "0-2", "unheard": "0-2"}}
    monkeypatch.setitem(ANSWERS, "hosts", silence)
    monkeypatch.setitem(ANSWERS, "ps", silence)
    view = _view(job, supervisors=False, gpus={})
    assert view.hosts == "the leader is not heard here"


def test_an_answer_of_another_time_is_an_error_and_no_crash(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "hosts", {"ok": True, "rows": [{"hosts": "many"}]})
    with pytest.raises(JobSilent, match="not told in a known way"):
        host_table(job)


def test_a_job_of_other_hosts_says_where_to_ask(tmp_path: Path) -> None:
    (tmp_path / "host_directories").mkdir()
    (tmp_path / "host_directories/gpu07").touch()
    (tmp_path / "job.json").write_text("{}")
    other = Job(tmp_path)
    assert (other.phase(), other.reason()) == ("elsewhere", "on gpu07")
    with pytest.raises(JobSilent) as caught:
        stop(other)
    assert f"ssh gpu07 penstock stop {other.id}" in str(caught.value.hint)
