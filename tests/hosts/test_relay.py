"""Where a job was started by ssh, every command about it works: on a real sshd, with the output and the exit code of a host of the job."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.hosts.network_namespace import HostWorld
from tests.hosts.sshd import SBIN, SshHosts

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("sshd", path=SBIN),
    reason="needs root, iproute2 and openssh-server",
)
VARIABLES = {"PYTHONPATH": str(Path(penstock.__file__).parent.parent)}
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
RANK = """
import os, sys, time
rank, folder = os.environ["RANK"], sys.argv[1]
print("begins", rank, os.environ["PENSTOCK_INCARNATION"], flush=True)
for _ in range(6000):
    if os.path.exists(f"{folder}/fail-{rank}"):
        os.remove(f"{folder}/fail-{rank}")
        raise KeyError(f"lost by {rank}")
    if os.path.exists(f"{folder}/say"):
        print("says", rank, flush=True)
        break
    time.sleep(0.02)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    folder = tmp_path_factory.mktemp("from-launcher")
    (folder / "rank.py").write_text(RANK)
    with HostWorld(folder, 3) as world:
        yield SshHosts(folder, world[2], {"gpu01": world[0], "gpu02": world[1]})


def _ask(hosts: SshHosts, *words: str) -> "subprocess.CompletedProcess[str]":
    return hosts.launcher.run(*PENSTOCK, *words, variables=VARIABLES)


def _rows(hosts: SshHosts, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _ask(hosts, *words, "--json").stdout.splitlines()]


def _ranks(hosts: SshHosts, name: str) -> list[tuple[int, int]]:
    rows = [row for row in _rows(hosts, "ps", name) if row.get("depth") == 0]
    return sorted((row["rank"], row["incarnation"]) for row in rows if row["rank"] is not None)


def test_a_detached_job_is_asked_stopped_and_told_of_from_where_it_was_started(hosts: SshHosts) -> None:
    program = [str(hosts.folder / "rank.py"), str(hosts.folder)]
    words = ["--hosts", "gpu01,gpu02", "--name", "kept", "--restarts", "2", "--backoff", "0s", "--detach"]
    started = hosts.launcher.run(*PENSTOCK, "run", *words, *program, variables=VARIABLES)
    assert started.returncode == 0, started.stderr
    assert f"penstock attach {started.stdout.strip()}" in started.stderr

    hosts.launcher.await_(lambda: _ranks(hosts, "kept") == [(0, 0), (1, 0)], "for its ranks")
    (hosts.folder / "fail-1").touch()
    hosts.launcher.await_(lambda: _ranks(hosts, "kept") == [(0, 1), (1, 1)], "for another life")
    shown = _ask(hosts, "incident", "kept")
    assert "KeyError: 'lost by 1'" in shown.stdout, shown.stderr
    assert "rank 1 on gpu02" in shown.stdout
    assert "2 of 2 hosts · unheard: none · refused: none" in shown.stderr

    assert _ask(hosts, "exec", "kept", "--", "sh", "-c", "exit 7").returncode == 7
    assert _ask(hosts, "stop", "kept").returncode == 0
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}")
    afterwards = _ask(hosts, "incident", "kept")
    assert "KeyError: 'lost by 1'" in afterwards.stdout, afterwards.stderr


def test_a_host_that_ssh_does_not_reach_is_passed_over(hosts: SshHosts) -> None:
    """Method: the sshd of the first host is killed; the second one answers for both."""
    program = [str(hosts.folder / "rank.py"), str(hosts.folder)]
    words = ["--hosts", "gpu01,gpu02", "--name", "other", "--detach"]
    assert hosts.launcher.run(*PENSTOCK, "run", *words, *program, variables=VARIABLES).returncode == 0
    hosts.launcher.await_(lambda: _ranks(hosts, "other") == [(0, 0), (1, 0)], "for its ranks")
    assert hosts.servers["gpu01"].kill(signal.SIGKILL, "sshd")
    stopped = _ask(hosts, "stop", "other")
    assert stopped.returncode == 0, stopped.stderr
    assert "ssh does not reach gpu01" in stopped.stderr
    hosts.serve("gpu01")
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}")
