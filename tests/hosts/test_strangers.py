"""Who may not take part: typed words on the refused host, and the others do not notice."""

import sys
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import PORT, JobOfHosts, job_of_hosts, until

#: Speaks to a port as strangers do: HTTP, noise, silence, and nothing at all.
STRANGER = """
import os, socket, sys
kept = []
for number in range(120):
    with_words = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
    said = [b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", os.urandom(4096), b"\\x16\\x03\\x01\\xff\\xff" + os.urandom(500), b""][number % 4]
    try:
        with_words.sendall(said)
    except OSError:
        pass
    kept.append(with_words)
for one in kept:
    try:
        one.settimeout(5)
        while one.recv(4096):
            pass
    except TimeoutError:
        raise
    except OSError:
        pass
print("all were closed")
"""


def _pair_running(job: JobOfHosts) -> dict[int, list[int]]:
    job.start(0, 1)
    job.await_life(0)
    return job.rank_pids()


REFUSED = {
    "another count": ({"nnodes": 3}, "--nnodes"),
    "a rank that is taken": ({"node_rank": 0}, "host rank 0 is asked for by"),
    "another program": ({"program": ["-m", "this"]}, "program"),
    "other words": ({"options": ["--lease", "3s"]}, "has a lease of 3000 ms"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_host_that_does_not_fit_is_refused_with_the_reason_before_the_start(
    tmp_path: Path, kind: str
) -> None:
    changed, said = REFUSED[kind]
    with job_of_hosts(tmp_path, 2, world=3) as job:
        job.start(0)
        until(lambda: job.parts(0, "coordinator"), job.account)
        job.start(2, **{"node_rank": 1, **changed})
        assert job.codes(2) == [2], job.output(2)
        assert said in job.output(2), job.output(2)
        job.host(2).await_(lambda: not job.host(2).processes(), "to have nothing left")
        job.start(1)
        job.await_life(0)
        job.finish()
        assert job.codes() == [0, 0]
        job.assert_nothing_left()


@pytest.mark.parametrize("kind", ["another count", "other words"])
def test_a_host_that_does_not_fit_is_refused_while_the_job_runs(tmp_path: Path, kind: str) -> None:
    changed, said = REFUSED[kind]
    with job_of_hosts(tmp_path, 2, world=3) as job:
        before = _pair_running(job)
        job.start(2, **{"node_rank": 1, **changed})
        assert job.codes(2) == [2], job.output(2)
        assert said in job.output(2), job.output(2)
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0]


def test_a_host_with_another_key_is_a_stranger(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 2, world=3) as job:
        before = _pair_running(job)
        (tmp_path / "key").write_text("66" * 32 + "\n")
        job.start(2, node_rank=1)
        assert job.codes(2) == [2], job.output(2)
        assert "it holds the key of another job" in job.output(2), job.output(2)
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0]


def test_strangers_at_the_port_are_closed_and_no_host_is_unheard(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        heard = job.ask(1, "hosts")[0]
        stranger = job.host(2).run(sys.executable, "-c", STRANGER, job.host(0).address, str(PORT))
        assert stranger.stdout == "all were closed\n", stranger.stderr
        after = job.ask(1, "hosts")[0]
        assert (after["term"], after["leader"]) == (heard["term"], heard["leader"])
        assert "Unheard" not in job.account()
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


#: Speaks to all ports of a job at once, for as long as it is told to: half of it stays silent, as who holds places does.
FLOOD = """
import os, select, socket, sys, time
places = [(words.split(":")[0], int(words.split(":")[1])) for words in sys.argv[2:]]
until, kept, count = time.monotonic() + float(sys.argv[1]), [], 0
while time.monotonic() < until:
    for place in places:
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.connect_ex(place)
        select.select([], [stranger], [], 0.1)
        try:
            stranger.send((b"", os.urandom(2048), b"\\x16\\x03\\x03" + os.urandom(900), b"GET / HTTP/1.1\\r\\n\\r\\n")[count % 4])
        except OSError:
            pass
        kept.append(stranger)
        count += 1
    while len(kept) > 400:
        kept.pop(0).close()
print(count)
"""


def test_a_flood_at_every_port_and_another_key_leave_no_host_unheard(tmp_path: Path) -> None:
    """Goal: strangers are refused and counted, and nobody in the job notices. Method: while two machines flood every host's port for
    some seconds and a third has the key of another job, the leader is asked again and again who is here."""
    with job_of_hosts(tmp_path, 3, world=5, options=("--lease", "30s")) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        ports = [host["address"] for host in job.ask(0, "hosts")[0]["hosts"]]
        (tmp_path / "key").write_text("66" * 32 + "\n")
        floods = [
            job.host(index).start(
                [sys.executable, "-c", FLOOD, "5", *ports], output=tmp_path / f"flood-{index}"
            )
            for index in (3, 4)
        ]
        job.start(4, node_rank=1)
        seen = set()
        while any(flood.poll() is None for flood in floods):
            seen.add(tuple(job.states(1)))
        assert seen == {("here",) * 3}, seen
        assert job.codes(4) == [2], job.output(4)
        assert all(int((tmp_path / f"flood-{index}").read_text()) > 100 for index in (3, 4))
        assert job.account().count("refused a connection from") >= 3
        assert job.rank_pids() == before
        job.finish()
        assert job.codes(0, 1, 2) == [0, 0, 0]
        job.assert_nothing_left(0, 1, 2)
