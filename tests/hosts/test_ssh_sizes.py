"""``penstock run --hosts`` with hosts that are missing: at the start, and because they were lost while the launcher has the keys."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.hosts.ssh_launcher import GONE_S, MODULES, NEEDS, POSSIBLE, Launcher, launch, ranks_in, ssh_hosts
from tests.hosts.sshd import SshHosts

pytestmark = pytest.mark.skipif(not POSSIBLE, reason=NEEDS)
USUAL = ("--ranks", "1", "--restarts", "5", "--backoff", "0s", "--lease", "2s")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), 2) as found:
        yield found


def _await_said(hosts: SshHosts, launcher: Launcher, so: Callable[[str], object], what: str) -> str:
    hosts.launcher.await_(
        lambda: so(launcher.output.read_text()), f"{what}\n{launcher.output.read_text()}", 40.0
    )
    return launcher.output.read_text()


def _penstock(hosts: SshHosts, name: str, *words: str) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", *words]
    done = hosts.servers[name].run(*command, variables={"PYTHONPATH": str(MODULES)})
    return done.stdout + done.stderr


def _lose(hosts: SshHosts, name: str) -> None:
    """Everything on a host ends at once but its sshd, as after a reboot: the login has ended as well."""
    server = hosts.servers[name]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid, line in server.processes().items():
            if "sshd -D" not in line:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def test_a_spare_whose_login_fails_does_not_stop_the_start_and_is_named(hosts: SshHosts) -> None:
    program = str(hosts.folder / "rank.py")
    words = ["--hosts", "gpu01,gpu02,denied", "--spare-hosts", "1", *USUAL, program, "end"]
    code, text = launch(hosts, *words).end()
    assert code == 0, text
    assert "3 asked · 2 here · denied: Permission denied (publickey); the job begins without" in text
    assert [words[1:4] for words in ranks_in(text)] == [("rank", "0", "2"), ("rank", "1", "2")]
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_a_job_of_min_to_max_begins_with_the_hosts_that_can_be_logged_in_to(hosts: SshHosts) -> None:
    """Goal: one host that is down does not hold up the others. Method: of three hosts for 2:3 one has no name that anybody knows."""
    program = str(hosts.folder / "rank.py")
    words = ["--hosts", "gpu01,nowhere.invalid,gpu02", "--nnodes", "2:3", *USUAL, program, "end"]
    code, text = launch(hosts, *words).end()
    assert code == 0, text
    assert "3 asked · 2 here · nowhere.invalid: Could not resolve hostname nowhere.invalid" in text
    assert [words[1:4] for words in ranks_in(text)] == [("rank", "0", "2"), ("rank", "1", "2")]
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_too_few_hosts_begin_nothing(hosts: SshHosts) -> None:
    program = str(hosts.folder / "rank.py")
    code, text = launch(
        hosts, "--hosts", "gpu01,denied,nowhere.invalid", "--nnodes", "2:3", program, "end"
    ).end()
    assert code == 1
    assert "3 asked · 1 here" in text
    assert ranks_in(text) == []
    hosts.launcher.await_(lambda: not hosts.left(), "until nothing is left", GONE_S)


def test_a_host_that_was_lost_is_logged_in_to_again_by_the_launcher(hosts: SshHosts) -> None:
    """Goal: item 2, a new host is asked for. Method: everything on a host ends but its sshd, which is as good as new."""
    program, finish = str(hosts.folder / "rank.py"), hosts.folder / "finish-again"
    launcher = launch(
        hosts, "--name", "again", "--hosts", "gpu01,gpu02", *USUAL, program, "until", str(finish)
    )
    _await_said(hosts, launcher, lambda text: len(ranks_in(text)) == 2, "for two ranks")
    _lose(hosts, "gpu02")
    text = _await_said(hosts, launcher, lambda text: len(ranks_in(text)) == 4, "for two ranks again")
    assert "logged in to gpu02 again" in text
    said = _penstock(hosts, "gpu01", "events", "again")
    assert "host rank 1, gpu02 before: another host is asked for, by ssh from the launcher" in said, said
    finish.touch()
    code, text = launcher.end()
    assert code == 0, text
    assert "proof" not in text
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}", GONE_S)


def test_a_detached_job_says_why_nobody_is_asked_for_a_host(hosts: SshHosts) -> None:
    """Goal: keys of a user are not on the hosts. Method: a host of a detached job is lost."""
    program = str(hosts.folder / "rank.py")
    launcher = launch(hosts, "--name", "alone", "--hosts", "gpu01,gpu02", "--detach", *USUAL, program, "wait")
    code, text = launcher.end()
    assert code == 0, text
    hosts.servers["gpu02"].await_(lambda: hosts.servers["gpu02"].pids("rank.py wait"), "for its rank")
    _lose(hosts, "gpu02")
    why = "no other host is asked for: the job is detached"
    hosts.launcher.await_(lambda: why in _penstock(hosts, "gpu01", "events", "alone"), "for the reason")
    assert f"gpu02: {why}" in _penstock(hosts, "gpu01", "hosts", "list", "alone")
    _penstock(hosts, "gpu01", "stop", "alone")
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}", GONE_S)
