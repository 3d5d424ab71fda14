"""A launcher on one host that starts jobs on others by ssh, for tests: what it is told, and what it says."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import penstock
from tests.hosts.network_namespace import HostWorld
from tests.hosts.sshd import SBIN, SshHosts

#: What tests by ssh need.
POSSIBLE = os.geteuid() == 0 and shutil.which("ip") and shutil.which("sshd", path=SBIN)
NEEDS = "needs root, iproute2 and openssh-server"
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


@contextmanager
def ssh_hosts(folder: Path, count: int) -> Iterator[SshHosts]:
    """``gpu01`` and so on, each with an sshd, and one more with the launcher."""
    (folder / "rank.py").write_text(RANK)
    with HostWorld(folder, count + 1) as world:
        yield SshHosts(
            folder, world[count], {f"gpu{number + 1:02}": world[number] for number in range(count)}
        )


@dataclass
class Launcher:
    """A launcher, and what it says."""

    process: subprocess.Popen[bytes]
    output: Path

    def end(self) -> tuple[int, str]:
        """Wait until it has ended: how, and what it said."""
        return self.process.wait(timeout=60), self.output.read_text()


def launch(hosts: SshHosts, *words: str) -> Launcher:
    """Start a job from the host without an sshd."""
    output = hosts.folder / f"out-{len(hosts.launcher.started)}"
    command = [sys.executable, "-m", "penstock.cli.main", "run", *words]
    variables = {"PYTHONPATH": str(MODULES)}
    return Launcher(hosts.launcher.start(command, output=output, variables=variables), output)


def ranks_in(text: str) -> list[tuple[str, ...]]:
    """What ranks said, by rank: prefix, then the words."""
    return sorted(tuple(line.split()) for line in text.splitlines() if "] rank " in line)
