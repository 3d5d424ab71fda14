"""Hosts made of namespaces: own network, processes, /tmp, /dev/shm and name; one directory is shared.

A cut is what a pulled cable is: the link goes down and nobody is told. One way only is a rule that drops what comes in.
"""

import itertools
import os
import shutil
import signal as signals
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.process.jobs import wait_until

PATIENCE_S = 60.0
#: Looks at who is outside of a group while some of them start others.
ROUNDS_MAX = 50
#: Control groups that can be frozen: of version 1, else of version 2.
FREEZER = Path("/sys/fs/cgroup/freezer")
UNIFIED = Path("/sys/fs/cgroup")
_WORLDS = itertools.count()
#: Waits for what it starts and for orphans, as the first process of a machine does.
_FIRST = "while :; do sleep 1000 & wait $!; done"


def _first_closed(path: Path) -> Path | None:
    """The uppermost directory on the way that other users cannot pass."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@dataclass
class NamespaceHost:
    """One host. Its processes are found by its namespace, so nothing that runs on it can hide."""

    name: str
    address: str
    shared: Path
    bridge: str
    first: subprocess.Popen[bytes] | None = None
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def _veth(self) -> str:
        return f"v{self.name}"

    def boot(self) -> None:
        """Begin, with nothing on it."""
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._veth, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run("ip", "link", "set", self._veth, "master", self.bridge, "up")
        _run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _run("ip", "-n", self.name, "link", "set", "eth0", "up")
        _run("ip", "-n", self.name, "link", "set", "lo", "up")
        shared = str(self.shared)
        script = (
            f"hostname {self.name}; mount --make-rprivate /; mount --bind {shared} /mnt; mount -t tmpfs tmpfs /tmp;"
            f" mkdir -p {shared} /tmp/home; mount --bind /mnt {shared}; umount /mnt;"
            f" mount -t tmpfs tmpfs /dev/shm; touch /tmp/booted; {_FIRST}"
        )
        unshare = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
        self.first = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.name}", *unshare, "bash", "-c", script],
            stdin=subprocess.DEVNULL,
        )
        self.await_(lambda: self.run("test", "-e", "/tmp/booted").returncode == 0, "to boot")

    @property
    def inner(self) -> int:
        """The first process of the host, as seen from outside."""
        assert self.first is not None
        children = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children")
        words = children.read_text().split() if children.exists() else []
        return int(words[0]) if words else 0

    def entered(self) -> list[str]:
        """What a command begins with that runs on it."""
        return ["nsenter", "--target", str(self.inner), "--mount", "--pid", "--net", "--ipc", "--uts", "--"]

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a login on it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK", "SLURM", "PYTEST"))
        }
        bin_folder = str(Path(sys.executable).parent)
        path = f"{bin_folder}:{os.environ.get('PATH', '')}"
        return {**kept, "HOME": "/tmp/home", "TMPDIR": "/tmp", "PATH": path, **(more or {})}

    def open_to_all(self, *paths: Path) -> None:
        """Let ordinary users reach these, whatever they lie below: a mount over what is closed to them, on this host alone."""
        kept, script = "/tmp/open", ["set -e"]
        for number, path in enumerate(paths):
            script.append(f"mkdir -p {kept}/{number}; mount --bind {path} {kept}/{number}")
        closed = {_first_closed(path) for path in paths} - {None}
        script += [f"mount -t tmpfs -o mode=755 tmpfs {folder}" for folder in sorted(map(str, closed))]
        for number, path in enumerate(paths):
            if _first_closed(path) is not None:
                script.append(f"mkdir -p {path}; mount --bind {kept}/{number} {path}")
        opened = self.run("bash", "-c", "; ".join(script))
        assert opened.returncode == 0, opened.stderr

    def run(
        self, *words: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on it to its end."""
        return subprocess.run(
            [*self.entered(), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self.variables(variables),
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(
        self, words: Sequence[str], *, output: Path, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command on it; what it says goes to a file."""
        with output.open("ab") as file:
            process = subprocess.Popen(
                [*self.entered(), *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.variables(variables),
                cwd=self.shared,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def name_itself(self) -> None:
        """Give its own name an address, as most real hosts have it."""
        script = f"echo {self.address} {self.name} > /tmp/etc-hosts && mount --bind /tmp/etc-hosts /etc/hosts"
        made = self.run("sh", "-c", script)
        assert made.returncode == 0, made.stderr

    def processes(self) -> dict[int, str]:
        """What runs on it, but its first process and what that started: numbers from outside, and command lines."""
        namespace = os.readlink(f"/proc/{self.inner}/ns/pid") if self.inner else ""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                if os.readlink(entry / "ns/pid") != namespace:
                    continue
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if words and not words.startswith(("bash -c hostname", "sleep 1000")):
                    found[int(entry.name)] = words
        return found

    def pids(self, *words: str) -> list[int]:
        """Processes on it whose command line has all of these words."""
        return [pid for pid, line in self.processes().items() if all(word in line for word in words)]

    def kill(self, signal: int, *words: str) -> list[int]:
        """Send a signal to processes by words of their command lines; who got it."""
        pids = self.pids(*words)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal)
        return pids

    def kill_all(self) -> None:
        """Kill everything on it at once, as a power failure does."""
        for _ in range(20):
            pids = list(self.processes())
            if not pids:
                return
            for number in (signals.SIGSTOP, signals.SIGKILL):
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
        self.await_(lambda: not self.processes(), "to be empty", 5.0)

    def cut(self) -> None:
        """Pull the cable."""
        _run("ip", "link", "set", self._veth, "down")

    def join(self) -> None:
        """Put it back."""
        _run("ip", "link", "set", self._veth, "up")

    def deafen(self) -> None:
        """Drop what comes in; what it says still goes out."""
        for words in (
            ["add", "table", "inet", "cut"],
            ["add", "chain", "inet", "cut", "in", "{ type filter hook input priority 0; }"],
            ["add", "rule", "inet", "cut", "in", "iifname", "eth0", "drop"],
        ):
            _run("ip", "netns", "exec", self.name, "nft", *words)

    def hear(self) -> None:
        """Let in again what comes."""
        _run("ip", "netns", "exec", self.name, "nft", "delete", "table", "inet", "cut")

    @property
    def _freezer(self) -> Path:
        """Its control group of those that can be frozen, in whichever version this machine has."""
        first = FREEZER if FREEZER.is_dir() else UNIFIED
        return first / f"penstock-{self.name}"

    def freeze(self) -> None:
        """Freeze everything on it at once, as a machine that is paused: nobody on it gets to run, whatever signal comes."""
        group = self._freezer
        group.mkdir(exist_ok=True)
        for _ in range(ROUNDS_MAX):
            outside = set(self.processes()) - {
                int(pid) for pid in (group / "cgroup.procs").read_text().split()
            }
            for pid in outside:
                with suppress(OSError):
                    (group / "cgroup.procs").write_text(str(pid))
            if not outside:
                break
        self._set_frozen(True)
        self.await_(self._is_frozen, "until it is frozen")

    def thaw(self) -> None:
        """Let it go on."""
        self._set_frozen(False)

    def _set_frozen(self, frozen: bool) -> None:
        if FREEZER.is_dir():
            (self._freezer / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
        else:
            (self._freezer / "cgroup.freeze").write_text("1" if frozen else "0")

    def _is_frozen(self) -> bool:
        if FREEZER.is_dir():
            return (self._freezer / "freezer.state").read_text().strip() == "FROZEN"
        return "frozen 1" in (self._freezer / "cgroup.events").read_text()

    def _forget_freezer(self) -> None:
        group = self._freezer
        if not group.is_dir():
            return
        self._set_frozen(False)
        self.await_(lambda: not (group / "cgroup.procs").read_text().split(), "until its group is empty")
        group.rmdir()

    def end(self) -> None:
        """End it with everything on it."""
        if self._freezer.is_dir():
            self._set_frozen(False)
        if self.first is not None:
            inner = self.inner
            if inner:
                with suppress(ProcessLookupError):
                    os.kill(inner, 9)
            self.first.kill()
            self.first.wait(timeout=PATIENCE_S)
            self.first = None
        for process in self.started:
            process.kill()
            process.wait(timeout=PATIENCE_S)
        self._forget_freezer()
        subprocess.run(["ip", "link", "delete", self._veth], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.name], check=False, capture_output=True)

    def await_(self, condition: "object", what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until something is so."""
        assert callable(condition)
        wait_until(condition, f"{self.name} waits {what}", timeout_s=patience_s)


@dataclass
class HostWorld:
    """Several hosts on one switch."""

    shared: Path
    count: int
    hosts: list[NamespaceHost] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Names of links have at most 15 letters, and worlds of several test processes stand side by side.
        self.tag = f"{os.getpid() % 0x10000:x}{next(_WORLDS) % 0x1000:x}"
        self.bridge = f"pb{self.tag}"

    def __enter__(self) -> "HostWorld":
        assert shutil.which("ip"), "hosts of tests need iproute2"
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _boot(self) -> None:
        number = os.getpid() % 200 + 20
        _run("ip", "link", "add", self.bridge, "type", "bridge")
        _run("ip", "link", "set", self.bridge, "up")
        for index in range(self.count):
            name = f"h{self.tag}-{index}"
            host = NamespaceHost(name, f"10.{number}.0.{index + 1}", self.shared, self.bridge)
            self.hosts.append(host)
            host.boot()

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.end()
        subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)

    def __getitem__(self, index: int) -> NamespaceHost:
        return self.hosts[index]
