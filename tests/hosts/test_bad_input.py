"""Bad input and faults that people make: a typed error, or a step in the journal, with host, value and hint; the job goes on where it can (H3, H6)."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import PORT, JobOfHosts, job_of_hosts, until

LISTEN = """
import socket, sys, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))):
    print("listens", flush=True)
    time.sleep(600)
"""
#: A host whose clock on the wall is an hour ahead; the clocks of leases are not.
AHEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(id, at);
    if (answer == 0 && id == CLOCK_REALTIME) at->tv_sec += 3600;
    return answer;
}
"""


def _other_version(folder: Path) -> Path:
    """Where Python finds another Penstock than the one that is installed."""
    about = folder / "other" / "penstock-9.9.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock\nVersion: 9.9\n")
    return about.parent


def _refused(job: JobOfHosts, index: int, *said: str) -> None:
    (code,) = job.codes(index)
    assert code in (1, 2), job.output(index)
    for words in said:
        assert words in job.output(index), job.output(index)
    assert "Traceback" not in job.output(index)
    job.assert_nothing_left(index)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 2) as job:
        job.host(0).start(
            [sys.executable, "-c", LISTEN, job.host(0).address, str(PORT)], output=tmp_path / "listener"
        )
        until(lambda: "listens" in (tmp_path / "listener").read_text(), job.account)
        job.start(0)
        (code,) = job.codes(0)
        assert code in (1, 2), job.output(0)
        assert f"{job.host(0).address}:{PORT}" in job.output(0), job.output(0)
        assert "Address already in use" in job.output(0)


def test_a_port_that_was_taken_for_a_while_is_taken_back(tmp_path: Path) -> None:
    """Goal: what is left of an earlier job costs a few seconds. Method: another program has the port while the first host begins, and ends."""
    with job_of_hosts(tmp_path, 2) as job:
        listener = job.host(0).start(
            [sys.executable, "-c", LISTEN, job.host(0).address, str(PORT)], output=tmp_path / "listener"
        )
        until(lambda: "listens" in (tmp_path / "listener").read_text(), job.account)
        job.start()
        until(lambda: job.ask(0, "hosts"), job.account)
        job.host(0).kill(signal.SIGKILL, str(PORT), "create_server")
        listener.wait(10)
        job.await_life(0)
        job.finish()
        assert job.codes() == [0, 0], job.account()


@pytest.mark.parametrize("kind", ["readable", "foreign"])
def test_a_key_that_others_may_read_or_own_is_refused(tmp_path: Path, kind: str) -> None:
    with job_of_hosts(tmp_path, 2) as job:
        key = tmp_path / "key"
        if kind == "readable":
            key.chmod(0o644)
        else:
            subprocess.run(["chown", "12345", str(key)], check=True)
        job.start(0)
        said = "can be read by others (mode 0644)" if kind == "readable" else "belongs to user 12345"
        _refused(job, 0, str(key), said)


@pytest.mark.parametrize("kind", ["name", "network", "interface"])
def test_an_endpoint_that_nobody_reaches_is_named(tmp_path: Path, kind: str) -> None:
    with job_of_hosts(tmp_path, 2) as job:
        endpoint = {"name": f"nowhere.invalid:{PORT}", "network": f"203.0.113.9:{PORT}"}
        changed = {"endpoint": endpoint[kind]} if kind in endpoint else {}
        more = ["--interface", "none0"] if kind == "interface" else []
        job.start(1, options=["--lease", "2s", "--host-wait", "1s", *more], **changed)
        said = {
            "name": ("nowhere.invalid", "its name has no address after 1 s"),
            "network": ("203.0.113.9", "no interface leads there"),
            "interface": ("none0", "eth0"),
        }
        _refused(job, 1, *said[kind])


def test_another_version_is_refused_with_both_and_may_join_where_that_is_wished_for(tmp_path: Path) -> None:
    other = _other_version(tmp_path)
    with job_of_hosts(tmp_path, 2) as job:
        job.start(0)
        until(lambda: job.parts(0, "coordinator"), job.account)
        job.path = (other,)
        job.start(1)
        _refused(job, 1, "has agent 9.9", "--mixed allows that")
        job.penstock(0, "stop", job.name(0))
        job.codes(0)
        mixed = ("--lease", "2s", "--mixed")
        job.path = ()
        job.start(0, options=mixed)
        job.path = (other,)
        job.start(1, options=mixed)
        job.await_life(0)
        job.finish()
        assert job.codes() == [0, 0]


def test_a_clock_that_is_an_hour_off_is_told_and_costs_nothing(tmp_path: Path) -> None:
    """Goal: leases compare no clocks. Method: one of three hosts has another time of day; its lease holds, and people are told."""
    source, library = tmp_path / "ahead.c", tmp_path / "ahead.so"
    source.write_text(AHEAD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    with job_of_hosts(tmp_path, 3) as job:
        job.start(0, 1)
        job.start(2, variables={"LD_PRELOAD": str(library)})
        job.await_life(0)
        before = job.rank_pids()

        def events() -> str:
            return job.penstock(0, "events", job.name(0)).stdout

        until(lambda: "its clock is 60 min ahead of the leader's" in events(), events)
        assert f"host {job.host(2).name} (host rank 2)" in events()
        shown = job.penstock(1, "hosts", "list", job.name(1)).stderr
        assert f"{job.host(2).name}: its clock is 60 min ahead" in shown, shown
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0, 0]


def test_a_voter_whose_disk_is_full_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    """Goal: a majority decides. Method: the local disk of one of three voters is full when a rank dies."""
    with job_of_hosts(tmp_path, 3, options=("--lease", "2s", "--restarts", "1000")) as job:
        small = "mkdir /tmp/small && mount -t tmpfs -o size=24m tmpfs /tmp/small"
        assert job.host(1).run("sh", "-c", small).returncode == 0
        job.start(0, 2)
        job.start(1, variables={"PENSTOCK_LOCAL": "/tmp/small"})
        job.await_life(0)
        until(lambda: job.leader(0) is not None, job.account)
        job.host(1).run("sh", "-c", "cat /dev/zero > /tmp/small/full")

        def events() -> str:
            return job.penstock(0, "events", job.name(0)).stdout

        # The first votes may fit into what its file has already.
        (tmp_path / "fail-0").touch()
        until(lambda: "so this voter is silent until there is room" in events(), events)
        (tmp_path / "fail-0").unlink()
        job.await_life(1)
        job.host(1).run("rm", "/tmp/small/full")
        until(lambda: f"host {job.host(1).name} (host rank 1) is well again" in events(), events)
        job.finish()
        assert job.codes() == [0, 0, 0]
