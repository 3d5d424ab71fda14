"""Logins as they are on real clusters: other shells, greetings, jumps, connections that are kept, and homes that nobody may write to."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network_namespace import HostWorld, NamespaceHost
from tests.hosts.ssh_launcher import GONE_S, RANK, launch, ranks_in
from tests.hosts.sshd import SBIN, SshHosts

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("sshd", path=SBIN),
    reason="needs root, iproute2 and openssh-server",
)
#: Greets on standard output, without an end of line, as a profile that calls `echo -n` does.
GREETING = '#!/bin/sh\nprintf "Welcome to the cluster"\nexec /bin/sh "$@"\n'
#: Whatever port is asked for, the command leads to the one where sshd listens.
PROXIED = "  Port 2222\n  ProxyCommand ssh -W %h:22 gpu02\n"
LOUD = "  PermitLocalCommand yes\n  LocalCommand echo welcome to %n\n  VisualHostKey yes\n  Compression yes\n"
TERMINAL = "  RequestTTY force\n  EscapeChar ^B\n"
REMOTE = "  RemoteCommand uptime\n"
KEPT = "  ControlMaster auto\n  ControlPath /tmp/%r@%h\n  ControlPersist 10m\n"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "rank.py").write_text(RANK)
    with HostWorld(folder, 3) as world:
        yield SshHosts(folder, world[2], {"gpu01": world[0], "gpu02": world[1]})


def with_shell(host: NamespaceHost, shell: str) -> None:
    """Let root have this shell when it logs in."""
    made = host.run(
        "sh",
        "-c",
        f"sed 's,^\\(root:.*:\\)[^:]*$,\\1{shell},' /etc/passwd > /tmp/passwd; mount --bind /tmp/passwd /etc/passwd",
    )
    assert made.returncode == 0, made.stderr


def on_both(hosts: SshHosts, names: str = "gpu01,gpu02") -> str:
    """Run a rank on each host; what was said."""
    code, text = launch(hosts, "--hosts", names, "--ranks", "1", str(hosts.folder / "rank.py"), "end").end()
    assert code == 0, text
    assert [line[:3] for line in ranks_in(text)] == [("[0]", "rank", "0"), ("[1]", "rank", "1")], text
    return text


@pytest.mark.parametrize("shell", ["/bin/csh", "greeting"])
def test_whatever_shell_a_host_has_the_job_runs(hosts: SshHosts, shell: str) -> None:
    """Goal: a login shell that is no POSIX shell, or greets, is no trouble. Method: one host has it, the other has not."""
    host = hosts.servers["gpu01"]
    if shell == "greeting":
        shell = str(hosts.folder / "greeting")
        Path(shell).write_text(GREETING)
        Path(shell).chmod(0o755)
    with_shell(host, shell)
    try:
        assert "Welcome" not in on_both(hosts)
    finally:
        assert host.run("umount", "/etc/passwd").returncode == 0


@pytest.mark.parametrize(
    "lines",
    [
        KEPT,
        "  ForwardAgent yes\n  LogLevel VERBOSE\n",
        "  ProxyJump gpu02\n",
        PROXIED,
        LOUD,
        TERMINAL,
        REMOTE,
    ],
    ids=[
        "kept connections",
        "a forwarded agent and a talkative client",
        "a jump through the other host",
        "a command that connects, and another port",
        "a command here at each login, and pictures of keys",
        "a terminal whoever asks",
        "a command there that is not ours",
    ],
)
def test_whatever_a_configuration_of_ssh_says_the_job_runs_and_ends(hosts: SshHosts, lines: str) -> None:
    """Goal: ~/.ssh/config holds. Method: hosts of other names with these lines; the launcher has to end by itself."""
    file = hosts.folder / "ssh_config"
    before = file.read_text()
    first = hosts.servers["gpu01"].address
    file.write_text(f"Host odd\n  HostName {first}\n{lines}{before}")
    try:
        on_both(hosts, "odd,gpu02")
    finally:
        hosts.launcher.run("ssh", "-O", "exit", "odd")
        file.write_text(before)
    hosts.launcher.await_(lambda: not hosts.left(), f"until nothing is left: {hosts.left()}", GONE_S)


def test_a_home_that_cannot_be_written_is_named_with_what_to_do(hosts: SshHosts) -> None:
    host = hosts.servers["gpu02"]
    assert host.run("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", "/tmp/home").returncode == 0
    try:
        code, text = launch(hosts, "--hosts", "gpu01,gpu02", str(hosts.folder / "rank.py"), "end").end()
    finally:
        assert host.run("umount", "/tmp/home").returncode == 0
    assert code == 1
    said = (
        "cannot create directory '/tmp/home/.cache': Read-only file system (XDG_CACHE_HOME in the environment"
    )
    assert f"2 asked · 1 here · gpu02: {said}" in " ".join(text.split())
