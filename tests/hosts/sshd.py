"""A real sshd on hosts of tests, and a client's configuration that leads to them by name."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.hosts.network_namespace import NamespaceHost

#: ``sshd`` lies where ordinary users do not look.
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
SERVER = """
ListenAddress {address}:22
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
LogLevel VERBOSE
SetEnv HOME=/tmp/home PATH="{path}" PYTHONPATH={modules}
"""
CLIENT = """
{hosts}
Host *
  User root
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile /tmp/known_hosts
  GlobalKnownHostsFile /dev/null
  ConnectTimeout 10
"""


class SshHosts:
    """Hosts that can be logged in to, and one from which it is done."""

    def __init__(self, folder: Path, launcher: NamespaceHost, servers: Mapping[str, NamespaceHost]) -> None:
        self.folder, self.launcher, self.servers = folder, launcher, servers
        self._make_keys()
        for name in servers:
            self.serve(name)
        self._configure()

    def _make_keys(self) -> None:
        for name in ("host_key", "user_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

    def serve(self, name: str) -> None:
        """Start the sshd of a host, which has none."""
        host = self.servers[name]
        modules = Path(sys.modules["penstock"].__file__ or "").parent.parent
        text = SERVER.format(
            address=host.address, folder=self.folder, path=host.variables()["PATH"], modules=modules
        )
        configuration = self.folder / f"sshd-{name}"
        configuration.write_text(text)
        sshd = shutil.which("sshd", path=SBIN)
        assert sshd, "hosts of tests need openssh-server"
        host.run("mkdir", "-p", "/run/sshd")
        log = self.folder / f"log-{name}"
        log.unlink(missing_ok=True)
        host.start([sshd, "-D", "-e", "-f", str(configuration)], output=log)
        host.await_(lambda: "Server listening" in log.read_text(), "for its sshd")

    def _configure(self) -> None:
        """Where ssh finds hosts: the system's file, because ``~`` is that of the password database."""
        hosts = "".join(f"Host {name}\n  HostName {host.address}\n" for name, host in self.servers.items())
        # The same machine, and a user that it does not let in.
        first = next(iter(self.servers.values()))
        hosts += f"Host alias\n  HostName {first.address}\n"
        hosts += f"Host denied\n  HostName {first.address}\n  User nobody\n"
        file = self.folder / "ssh_config"
        file.write_text(CLIENT.format(hosts=hosts, folder=self.folder))
        bound = self.launcher.run("mount", "--bind", str(file), "/etc/ssh/ssh_config")
        assert bound.returncode == 0, bound.stderr

    def left(self) -> dict[str, list[str]]:
        """What runs on the hosts beside their sshd."""
        found = {
            name: [line for line in host.processes().values() if "sshd -D" not in line]
            for name, host in {**self.servers, "launcher": self.launcher}.items()
        }
        return {name: lines for name, lines in found.items() if lines}
