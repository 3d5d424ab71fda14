"""`penstock attach` to a job of many hosts: all its ranks in the foreground again, from any host and from where it was started by ssh."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.hosts.job_of_hosts import PENSTOCK, PROGRAM, job_of_hosts, until
from tests.hosts.network_namespace import HostWorld, NamespaceHost
from tests.hosts.sshd import SBIN, SshHosts

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
VARIABLES = {"PYTHONPATH": str(Path(penstock.__file__).parent.parent)}
#: Ten lines, then one for each file of its number, until the end.
WRITER = """
import os, sys, time
rank, folder = os.environ["RANK"], sys.argv[1]
for number in range(10):
    print(f"line {number} of {rank}", flush=True)
with open(f"{folder}/lives-{rank}", "a") as lives:
    lives.write(os.environ["PENSTOCK_INCARNATION"] + "\\n")
until = time.monotonic() + 120
while time.monotonic() < until and not os.path.exists(f"{folder}/finish"):
    if os.path.exists(f"{folder}/write-{rank}"):
        os.unlink(f"{folder}/write-{rank}")
        print(f"{rank} was told", flush=True)
    with open(f"{folder}/beats-{rank}", "a") as beats:
        beats.write(".")
    time.sleep(0.05)
print(f"end of {rank}", flush=True)
open(f"{folder}/ended-{rank}", "w").close()
# Who fails has the others ended, and they would say nothing more.
while rank == "1" and time.monotonic() < until and not os.path.exists(f"{folder}/ended-0"):
    time.sleep(0.05)
sys.exit(3 * (rank == "1"))
"""


class Attached:
    """Somebody who has attached on a host, in a pipe, and what that person sees."""

    def __init__(self, host: NamespaceHost, folder: Path, *words: str, variables: dict[str, str]) -> None:
        self.host = host
        self.output = folder / f"seen-{len(list(folder.glob('seen-*')))}"
        self.talk = host.start([*PENSTOCK, "attach", *words], output=self.output, variables=variables)

    def lines(self) -> list[str]:
        return self.output.read_text(errors="replace").splitlines()

    def await_line(self, line: str) -> None:
        until(lambda: line in self.lines(), lambda: f"{line}: {self.lines()}")

    def interrupt(self) -> int:
        for pid in self.host.pids("penstock.cli.main attach"):
            os.kill(pid, signal.SIGINT)
        return self.talk.wait(timeout=60)


def test_all_ranks_are_in_front_of_any_number_of_people_on_any_host(tmp_path: Path) -> None:
    """Goal: P2, an attachment owns nothing. Method: two attach on two hosts; one is interrupted, the other sees what both ranks write, and the end."""
    with job_of_hosts(tmp_path, 2) as job:
        (tmp_path / PROGRAM.name).write_text(WRITER)
        job.start()
        job.await_life(0)
        until(lambda: job.states(0) == ["here"] * 2, job.account)
        leaving = Attached(job.host(0), tmp_path, job.name(0), "--tail", "0", variables=job.variables())
        staying = Attached(job.host(1), tmp_path, job.name(1), "--tail", "14", variables=job.variables())
        staying.await_line("[0] line 9 of 0")
        staying.await_line("[1] line 9 of 1")
        assert len([line for line in staying.lines() if "] line " in line]) == 14
        (tmp_path / "write-1").touch()
        leaving.await_line("[1] 1 was told")
        assert not [line for line in leaving.lines() if "] line " in line]
        assert leaving.interrupt() == 130
        (tmp_path / "write-0").touch()
        staying.await_line("[0] 0 was told")
        job.finish()
        assert staying.talk.wait(timeout=60) == 3
        assert {"[0] end of 0", "[1] end of 1"} <= set(staying.lines())
        job.codes()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    if not shutil.which("sshd", path=SBIN):
        pytest.skip("needs openssh-server")
    folder = tmp_path_factory.mktemp("attached")
    (folder / "writer.py").write_text(WRITER)
    with HostWorld(folder, 3) as world:
        yield SshHosts(folder, world[2], {"gpu01": world[0], "gpu02": world[1]})


def _run(hosts: SshHosts, name: str, *words: str) -> "subprocess.Popen[bytes]":
    folder = hosts.folder / name
    folder.mkdir()
    program = [str(hosts.folder / "writer.py"), str(folder)]
    command = [*PENSTOCK, "run", "--hosts", "gpu01,gpu02", "--name", name, *words, *program]
    return hosts.launcher.start(command, output=folder / "output", variables=VARIABLES)


def test_a_detached_job_comes_back_to_where_it_was_started(hosts: SshHosts) -> None:
    assert _run(hosts, "kept", "--detach").wait(timeout=60) == 0
    attached = Attached(hosts.launcher, hosts.folder, "kept", "--json", variables=VARIABLES)
    seen = lambda: {json.loads(line)["text"] for line in attached.lines() if line.startswith("{")}  # noqa: E731
    until(lambda: {"line 9 of 0", "line 9 of 1"} <= seen(), attached.lines)
    (hosts.folder / "kept" / "finish").touch()
    assert attached.talk.wait(timeout=60) == 3
    assert {"end of 0", "end of 1"} <= seen(), attached.lines()[-8:]
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}")


def test_a_job_whose_launcher_is_lost_goes_on_for_who_is_attached_and_for_good_when_they_detach(
    hosts: SshHosts,
) -> None:
    """Method: somebody attaches; then every sshd is killed with its connections, so that the job would end after six seconds. It lives for twice
    that, and as long again after the reader has detached."""
    launcher = _run(hosts, "lost", "--detach-after", "6s")
    server = hosts.servers["gpu01"]
    beats = hosts.folder / "lost" / "beats-0"
    count = lambda: len(beats.read_text()) if beats.exists() else 0  # noqa: E731
    until(lambda: count() > 0, (hosts.folder / "lost" / "output").read_text)
    attached = Attached(server, hosts.folder, "lost", variables=VARIABLES)
    attached.await_line("[1] line 9 of 1")
    kept = "cat /tmp/penstock-*/jobs/*/attached"
    for host in hosts.servers.values():
        until(lambda host=host: host.run("sh", "-c", kept).returncode == 0, attached.lines)  # type: ignore[misc]
        assert host.kill(signal.SIGKILL, "sshd")
    launcher.wait(timeout=60)
    begun = count()
    until(lambda: count() > begun + 240, lambda: f"{count()} of {begun + 240}: {attached.lines()}")
    assert attached.interrupt() == 130
    assert "its launcher is not heard; the job goes on without it" in attached.lines()
    begun = count()
    until(lambda: count() > begun + 200, lambda: f"{count()} of {begun + 200}: {attached.lines()}")
    stop = server.run(sys.executable, "-m", "penstock.cli.main", "stop", "lost", variables=VARIABLES)
    assert stop.returncode == 0, stop.stderr
    for name in hosts.servers:
        hosts.serve(name)
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}")
