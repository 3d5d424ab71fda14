"""``penstock run --hosts`` with a real sshd on hosts of namespaces: ranks everywhere, output back, and nothing left (H6)."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock
from tests.hosts.network_namespace import HostWorld
from tests.hosts.sshd import SBIN, SshHosts

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("sshd", path=SBIN),
    reason="needs root, iproute2 and openssh-server",
)
MODULES = Path(penstock.__file__).parent.parent
RANK = """
import os, sys, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK")
print("rank", *(os.environ[name] for name in names), os.uname().nodename, flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
if sys.argv[1] == "until":
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
"""
#: The launcher says goodbye in two seconds; the machine may be slow.
GONE_S = 10.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    folder = tmp_path_factory.mktemp("ssh")
    (folder / "rank.py").write_text(RANK)
    with HostWorld(folder, 3) as world:
        yield SshHosts(folder, world[2], {"gpu01": world[0], "gpu02": world[1]})


@dataclass
class Launcher:
    """A launcher on the third host, and what it says."""

    process: subprocess.Popen[bytes]
    output: Path

    def end(self) -> tuple[int, str]:
        return self.process.wait(timeout=60), self.output.read_text()


def launch(hosts: SshHosts, *words: str) -> Launcher:
    output = hosts.folder / f"out-{len(hosts.launcher.started)}"
    command = [sys.executable, "-m", "penstock.cli.main", "run", *words]
    variables = {"PYTHONPATH": str(MODULES)}
    return Launcher(hosts.launcher.start(command, output=output, variables=variables), output)


def ranks_in(text: str) -> list[tuple[str, ...]]:
    """What ranks said, by rank: prefix, then the words."""
    return sorted(tuple(line.split()) for line in text.splitlines() if "] rank " in line)


def test_ranks_run_on_both_hosts_and_their_output_comes_back_with_global_ranks(hosts: SshHosts) -> None:
    program = str(hosts.folder / "rank.py")
    code, text = launch(hosts, "--hosts", "gpu01,gpu02", "--ranks", "2", program, "end").end()
    assert code == 0, text
    first, second = (host.name for host in hosts.servers.values())
    assert ranks_in(text) == [
        ("[0]", "rank", "0", "4", "0", "0", first),
        ("[1]", "rank", "1", "4", "1", "0", first),
        ("[2]", "rank", "2", "4", "0", "1", second),
        ("[3]", "rank", "3", "4", "1", "1", second),
    ]
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}", GONE_S)


def test_a_killed_launcher_leaves_nothing_on_any_host(hosts: SshHosts) -> None:
    program = str(hosts.folder / "rank.py")
    launcher = launch(hosts, "--hosts", "gpu01,gpu02", "--ranks", "1", program, "wait")
    hosts.launcher.await_(lambda: len(ranks_in(launcher.output.read_text())) == 2, "for two ranks")
    assert hosts.launcher.kill(signal.SIGKILL, "penstock.cli.main", "--hosts")
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_a_stop_from_one_host_ends_both_and_the_launcher(hosts: SshHosts) -> None:
    program = str(hosts.folder / "rank.py")
    launcher = launch(hosts, "--name", "stopped", "--hosts", "gpu01,gpu02", "--ranks", "1", program, "wait")
    hosts.launcher.await_(lambda: len(ranks_in(launcher.output.read_text())) == 2, "for two ranks")
    words = [sys.executable, "-m", "penstock.cli.main", "stop", "stopped"]
    stop = hosts.servers["gpu02"].run(*words, variables={"PYTHONPATH": str(MODULES)})
    assert stop.returncode == 0, stop.stderr
    code, text = launcher.end()
    assert code != 0
    assert "stopped by `penstock stop`" in text
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_a_directory_that_only_the_launcher_has_is_there_on_both_hosts(hosts: SshHosts) -> None:
    """Method: a directory on the launcher's own disk, whose path exists on no other host."""
    mine = "/tmp/only-here/src"
    hosts.launcher.run("mkdir", "-p", mine)
    hosts.launcher.run("cp", str(hosts.folder / "rank.py"), f"{mine}/rank.py")
    launcher = launch(
        hosts, "--hosts", "gpu01,gpu02", "--ship", "/tmp/only-here", "--directory", mine, "rank.py", "end"
    )
    code, text = launcher.end()
    assert code == 0, text
    assert "note: 1 file with" in text
    assert [words[5] for words in ranks_in(text)] == ["0", "1"]
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_two_names_of_one_host_are_refused(hosts: SshHosts) -> None:
    program = str(hosts.folder / "rank.py")
    code, text = launch(hosts, "--hosts", "gpu01,gpu02,alias", program, "end").end()
    assert code != 0
    assert "gpu01 and alias are the same host" in text
    assert ranks_in(text) == []
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        (Path(sys.executable).parent, f"{sys.executable} is not on this host"),
        (MODULES / "penstock", f"{sys.executable} has no Penstock on this host: ModuleNotFoundError"),
    ],
    ids=["without this Python", "without Penstock"],
)
def test_a_host_without_what_the_launcher_runs_is_named(hosts: SshHosts, hidden: Path, said: str) -> None:
    program = str(hosts.folder / "rank.py")
    server = hosts.servers["gpu02"]
    assert server.run("mount", "-t", "tmpfs", "tmpfs", str(hidden)).returncode == 0
    try:
        code, text = launch(hosts, "--hosts", "gpu01,gpu02", program, "end").end()
    finally:
        assert server.run("umount", str(hidden)).returncode == 0
    assert code == 1
    assert f"2 asked · 1 here · gpu02: {said}" in text
    assert ranks_in(text) == []
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_the_agent_is_copied_once(hosts: SshHosts) -> None:
    """Goal: item 9. Method: a second job finds the very file that the first one brought."""
    program = str(hosts.folder / "rank.py")
    found = []
    for _ in range(2):
        code, text = launch(hosts, "--hosts", "gpu01,gpu02", "--ranks", "1", program, "end").end()
        assert code == 0, text
        listed = hosts.servers["gpu02"].run("sh", "-c", "ls -i /tmp/home/.cache/penstock/agents/*/*")
        found.append(listed.stdout.split())
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_a_host_whose_last_process_ssh_saw_end_is_gone_long_before_its_lease_ends(hosts: SshHosts) -> None:
    """Goal: H2, an engine that saw processes end frees the host rank. Method: everything of the job on a host is killed but the login; with a lease of ten minutes only what ssh saw
    can end the wait for it."""
    program = str(hosts.folder / "rank.py")
    words = [
        "--hosts",
        "gpu01,gpu02",
        "--ranks",
        "1",
        "--restarts",
        "3",
        "--lease",
        "600s",
        "--host-wait",
        "10s",
    ]
    launcher = launch(hosts, *words, program, "wait")
    hosts.launcher.await_(lambda: len(ranks_in(launcher.output.read_text())) == 2, "for two ranks")
    server = hosts.servers["gpu02"]
    parts = [
        pid
        for part in ("launch", "keeper", "agent", "coordinator")
        for pid in server.pids(f"penstock-agent {part} ")
    ]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in parts:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    code, text = launcher.end()
    assert code != 0
    assert "host gpu02 (host rank 1) is gone: ssh saw its last process end on gpu02" in text, text
    assert "proof" not in text
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_a_killed_sshd_costs_no_rank_and_the_job_ends_well(hosts: SshHosts) -> None:
    """Goal: a connection is not a host (P2). Method: kill the sshd of one host with all its sessions, and let the ranks end."""
    program, finish = str(hosts.folder / "rank.py"), hosts.folder / "finish"
    launcher = launch(hosts, "--hosts", "gpu01,gpu02", "--ranks", "1", program, "until", str(finish))
    hosts.launcher.await_(lambda: len(ranks_in(launcher.output.read_text())) == 2, "for two ranks")
    ranks = {name: host.pids("rank.py until") for name, host in hosts.servers.items()}
    assert hosts.servers["gpu02"].kill(signal.SIGKILL, "sshd")
    hosts.launcher.await_(
        lambda: "the connection to gpu02 broke" in launcher.output.read_text(), "for a note"
    )
    assert {name: host.pids("rank.py until") for name, host in hosts.servers.items()} == ranks
    finish.touch()
    code, text = launcher.end()
    assert code == 0, text
    hosts.serve("gpu02")
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}", GONE_S)


def test_hosts_that_are_unknown_or_refuse_are_named_in_the_words_of_ssh(hosts: SshHosts) -> None:
    program = str(hosts.folder / "rank.py")
    code, text = launch(hosts, "--hosts", "gpu01,denied,nowhere.invalid", program, "end").end()
    assert code == 1
    assert "3 asked" in text
    assert "denied: Permission denied (publickey)" in text
    assert "nowhere.invalid: Could not resolve hostname nowhere.invalid" in text
    assert ranks_in(text) == []
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)
