"""Many hosts imagined on this machine: each has a real keeper, agent and coordinator, an address of its own on loopback, and its own home.

A `Swarm` furnishes host directories as `penstock run --nnodes` does and starts the agent's own launcher in each, because a Python for
each of a thousand hosts would be most of what is measured. `apart` runs the whole in a pid namespace whose first process dies with
whoever began it: however a benchmark ends, the kernel ends all of its processes.
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.process import Launch
from penstock.process.hosts.host_directory import HostFile, HostPlace, furnish_host
from penstock.process.job.launch import Restarts, agent_path

PORT = 29_400
PATIENCE_S = 300.0
#: For a host that is lost, before the job goes on with fewer.
WAIT_S = 0.5
LOOK_S = 0.005
#: Launchers under way at once: hosts of a real job begin on processors of their own.
STARTS_AT_ONCE = 8
#: Processes and threads that a host has at most while it begins, its rank included.
TASKS_OF_HOST = 14
#: Descriptors that the root needs for a host: its link, and one that is dialled anew.
FDS_OF_HOST = 2
_PR_SET_PDEATHSIG = 1


def limits() -> dict[str, int]:
    """What the machine allows, as far as many hosts on it need it."""

    def number(path: str) -> int:
        return int(Path(path).read_text().split()[0])

    return {
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "processes of a user": resource.getrlimit(resource.RLIMIT_NPROC)[1],
        "process numbers": number("/proc/sys/kernel/pid_max"),
        "threads": number("/proc/sys/kernel/threads-max"),
        "connections that wait": number("/proc/sys/net/core/somaxconn"),
    }


def hosts_possible(wanted: int) -> tuple[int, str]:
    """How many of so many hosts the limits allow, and which limit says so."""
    most = {name: value for name, value in limits().items() if value > 0}
    tasks = ("processes of a user", "process numbers", "threads")
    room = {name: most[name] // TASKS_OF_HOST for name in tasks if name in most}
    room["open files"] = most.get("open files", 1 << 20) // FDS_OF_HOST
    name = min(room, key=lambda limit: room[limit])
    return (wanted, "") if room[name] >= wanted else (room[name], f"{name}: {most[name]}")


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> float:
    """Wait until something is so; how long it took."""
    begun = time.perf_counter()
    while not condition():
        if time.perf_counter() > begun + patience_s:
            raise TimeoutError(f"not within {patience_s:.0f} s: {what}")
        time.sleep(LOOK_S)
    return time.perf_counter() - begun


@dataclass
class Swarm:
    """Hosts of one job. One host alone is a job without a network."""

    folder: Path
    hosts: int
    ranks: int = 1
    command: Sequence[str] = ("sleep", "3600")
    lease_s: float = 30.0
    #: Whether ranks are forked from a warm Python.
    zygote: str = "never"
    #: Hosts beyond those of the job.
    spares: int = 0
    #: Numbers of hosts that the job may go on with; none where its number is fixed.
    sizes: Sequence[int] = ()
    environment: dict[str, str] = field(default_factory=dict)
    #: A packed directory that the first host has and all get.
    packed: Path | None = None
    directories: list[Path] = field(default_factory=list)
    #: Host ranks by directory, for processes that name theirs.
    numbers: dict[str, int] = field(default_factory=dict)

    def address(self, host: int) -> str:
        """Where a host is."""
        return f"127.20.{host // 250}.{host % 250 + 1}"

    def home(self, host: int) -> Path:
        """What a host has for itself."""
        return self.folder / f"host-{host}"

    def furnish(self) -> None:
        """Make what each host's launcher needs."""
        secret = os.urandom(32)
        launch = Launch(
            command=self.command,
            ranks=self.ranks,
            detached=True,
            zygote=self.zygote,
            restarts=Restarts(most=100, backoff_s=0.0, same_failure_max=0, failure_grace_s=0.5),
        )
        description = launch.spec().to_json("swarm-0000")
        for number in range(self.hosts + self.spares):
            home = self.home(number)
            home.mkdir(parents=True)
            place = HostPlace(home=home / "home", local=home / "local")
            directory = furnish_host(place, description, self._host_file(number), secret)
            if self.hosts == 1:
                (directory / "host.json").unlink()
            self.directories.append(directory)
            self.numbers[str(directory)] = number

    def _host_file(self, number: int) -> HostFile:
        founder = number == 0
        return HostFile(
            name=f"host{number}",
            address=self.address(number),
            endpoint=f"{self.address(0)}:{PORT}",
            founder=founder,
            nnodes=self.hosts,
            sizes=list(self.sizes),
            replace_within_ms=round(WAIT_S * 1000),
            spare=number >= self.hosts,
            node_rank=number if number < self.hosts else None,
            slots=self.ranks,
            port=PORT if founder else 0,
            lease_ms=round(self.lease_s * 1000),
            ships=self.packed is not None,
            ship_from=str(self.packed) if self.packed is not None and founder else None,
        )

    def start(self, hosts: Iterable[int] | None = None) -> float:
        """Start the hosts, a few at once; seconds until the last launcher has done its part."""
        begun = time.perf_counter()
        running: list[subprocess.Popen[bytes]] = []
        for number in hosts if hosts is not None else range(self.hosts + self.spares):
            running.append(self.launch(number))
            while len(running) >= STARTS_AT_ONCE:
                running = [launcher for launcher in running if launcher.poll() is None]
                time.sleep(0.0005)
        for launcher in running:
            launcher.wait(PATIENCE_S)
        return time.perf_counter() - begun

    def launch(self, number: int) -> "subprocess.Popen[bytes]":
        """The launcher of one host."""
        home = self.home(number)
        variables = {**os.environ, **self.environment, "PENSTOCK_HOME": str(home / "home")}
        variables["PENSTOCK_LOCAL"] = str(home / "local")
        return subprocess.Popen(
            [str(agent_path()), "launch", str(self.directories[number])],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(home / "launcher.log").open("ab"),
        )

    def await_joined(self) -> None:
        """Wait until every host has written down the list of all hosts."""
        missing = set(range(self.hosts))

        def all_have_it() -> bool:
            missing.difference_update(
                {number for number in missing if (self.directories[number] / "membership.json").exists()}
            )
            return not missing

        until(all_have_it, f"{self.hosts} hosts to have the list; {len(missing)} lack it")

    def await_heard(self, asked: int = 0) -> None:
        """Wait until the leader hears every host."""

        def all_here() -> bool:
            time.sleep(0.05)
            rows = self.ask(asked, "hosts").get("rows") or [{}]
            states = [host["state"] for host in rows[0].get("hosts") or []]
            return states.count("here") == self.hosts

        until(all_here, "all hosts to be here")

    def ask(self, host: int, question: str | dict[str, Any], *, patience_s: float = 2.0) -> dict[str, Any]:
        """What a host says about the whole job; nothing if it does not answer."""
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asker:
            asker.settimeout(10.0 + patience_s)
            asker.connect(str(self.directories[host] / "host.sock"))
            asked = {"ask": question, "patience_ms": round(patience_s * 1000)}
            asker.sendall(json.dumps(asked).encode() + b"\n")
            answer: dict[str, Any] = json.loads(asker.makefile().readline())
            return answer
        return {}

    def leader(self, asked: int) -> int | None:
        """The host rank of who leads, as one host knows."""
        rows = self.ask(asked, "hosts").get("rows") or [{}]
        name = str(rows[0].get("leader") or "")
        return int(name.removeprefix("host")) if name.startswith("host") else None

    def penstock(self, host: int, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command on a host."""
        home = self.home(host)
        # Whoever forbids compiled files measures the compiler.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        variables = {
            **kept,
            "PENSTOCK_HOME": str(home / "home"),
            "PENSTOCK_LOCAL": str(home / "local"),
        }
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *words],
            env=variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def parts(self) -> dict[str, dict[int, list[int]]]:
        """Processes of keepers, agents and coordinators: by part, then by host."""
        found: dict[str, dict[int, list[int]]] = {"keeper": {}, "agent": {}, "coordinator": {}}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if len(words) > 2 and words[0].endswith("penstock-agent") and words[1] in found:
                    host = self.numbers.get(words[2])
                    if host is not None:
                        found[words[1]].setdefault(host, []).append(int(entry.name))
        return found

    def dismiss(self, host: int) -> None:
        """Kill the keeper of a host: its agent ends the ranks, says goodbye and leaves."""
        for pid in self.parts()["keeper"].get(host, []):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def lose(self, host: int) -> None:
        """End everything of a host at once: its keeper and agent first, and whatever they had."""
        mine = [pid for hosts in self.parts().values() for pid in hosts.get(host, [])]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in mine:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def memory_kb(pids: Iterable[int]) -> tuple[float, float]:
    """PSS and RSS of processes, in all."""
    pss = rss = 0.0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    pss += float(line.split()[1])
                elif line.startswith("Rss:"):
                    rss += float(line.split()[1])
    return pss, rss


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time of processes with all their threads."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError):
                    total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total / 1e9


def apart(module: str, words: Sequence[str], patience_s: float = 900.0) -> dict[str, Any]:
    """Run a module in pid and network namespaces of its own, and read the JSON that it prints last.

    The namespace ends with its first process, that with `unshare`, and `unshare` with this process. Addresses are those of its own
    loopback, so two benchmarks beside each other do not meet.
    """
    assert shutil.which("unshare"), "hosts of benchmarks need util-linux"
    assert shutil.which("ip"), "hosts of benchmarks need iproute2"
    mapped = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *mapped, "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
    command += ["sh", "-c", 'ip link set lo up && exec "$0" "$@"']
    libc = ctypes.CDLL(None)
    done = subprocess.run(
        [*command, sys.executable, "-m", module, *words],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=patience_s,
        check=False,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(words)} ended with {done.returncode}: {done.stdout[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
