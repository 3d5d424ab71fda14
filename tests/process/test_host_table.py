"""What any host's agent says about all hosts is shown: a line about hosts, rows of all, the journal of the job."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.job.ps import _view
from penstock.errors import JobSilent
from penstock.process.hosts.host_table import HostRow, HostTable, host_table
from penstock.process.job.catalogue import Job
from penstock.process.job.control import stop
from penstock.report.job_story import Story

ROLE = {"name": "rank", "kind": "gang", "ranks": 2, "command": ["true"], "policy": {"restart": "gang"}}
ANSWERS: dict[str, Any] = {
    "hosts": {
        "ok": True,
        "hosts": [
            {"rank": 0, "name": "gpu01", "state": "here", "ranks": 2},
            {"rank": 1, "name": "gpu02", "state": "unheard", "ranks": 2},
            {"rank": 2, "name": "gpu03", "state": "here", "ranks": 2},
        ],
        "term": 3,
        "leader": "gpu01",
        "voters": ["gpu01", "gpu02", "gpu03"],
        "frozen": False,
    },
    "ps": {
        "ok": True,
        "rows": [
            {"host": "gpu01", "role": "rank", "rank": 0, "worker": "rank-0"},
            {"host": "gpu02", "role": "rank", "rank": 2, "worker": "rank-2", "state": "S"},
        ],
    },
    "journal": {
        "ok": True,
        "lines": ['{"at": 1.0, "event": "ordered", "incarnation": 0, "reason": "as asked for"}'],
    },
}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job of three hosts whose agent answers as such an agent does."""
    (tmp_path / "job.json").write_text(json.dumps({"id": "x", "roles": [ROLE]}))
    (tmp_path / "host.json").write_text(json.dumps({"name": "gpu01", "nnodes": 3}))
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/agent.sock")
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
                    if question["ask"] == "journal":
                        answer = {**answer, "lines": answer["lines"][question["from"] :]}
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


def test_rows_of_all_hosts_are_shown_each_once(job: Job) -> None:
    view = _view(job, supervisors=False, gpus={})
    assert [(row["host"], row["worker"]) for row in view.rows] == [("gpu02", "rank-2")]
    assert (view.is_many, view.hosts) == (True, "2 hosts here · unheard: gpu02")


def test_the_story_of_a_job_is_that_of_all_hosts(job: Job) -> None:
    story = Story(job)
    assert [happening.what for happening in story.more()] == ["life 0 is ordered: as asked for"]
    assert list(story.more()) == []


def test_a_job_of_other_hosts_says_where_to_ask(tmp_path: Path) -> None:
    (tmp_path / "host_directories").mkdir()
    (tmp_path / "host_directories/gpu07").touch()
    (tmp_path / "job.json").write_text("{}")
    other = Job(tmp_path)
    assert (other.phase(), other.reason()) == ("elsewhere", "on gpu07")
    with pytest.raises(JobSilent) as caught:
        stop(other)
    assert f"ssh gpu07 penstock stop {other.id}" in str(caught.value.hint)
