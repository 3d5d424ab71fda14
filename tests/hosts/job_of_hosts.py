"""A job over hosts made of namespaces: started as people start it, looked at from outside."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock
from tests.hosts.network_namespace import HostWorld, NamespaceHost

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
PORT = 29_400
LOOK_S = 0.02
#: A start under load.
PATIENCE_S = 30.0
PROGRAM = Path(__file__).with_name("rank_program.py")
KEY = "5a" * 32
USER_HOME = "/tmp/user-home"


def until(
    condition: Callable[[], object], what: Callable[[], object], patience_s: float = PATIENCE_S
) -> float:
    """Wait until something is so; how long it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + patience_s, f"not within {patience_s} s: {what()}"
        threading.Event().wait(LOOK_S)
    return time.monotonic() - begun


@dataclass
class JobOfHosts:
    """One job and the hosts it runs on; a host's place in the world is its host rank."""

    world: HostWorld
    folder: Path
    #: How many of them run ranks; those beyond are in reserve.
    hosts: int
    ranks: int = 1
    options: Sequence[str] = ("--lease", "2s")
    #: Where Python finds more modules.
    path: Sequence[Path] = ()
    #: Who starts it, if that is not root; such a user has a home of its own on each host.
    user: int | None = None
    launchers: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def host(self, index: int) -> NamespaceHost:
        """The namespaces of one host."""
        return self.world[index]

    def output(self, index: int) -> str:
        """All that was said on a host's terminal."""
        path = self.folder / f"output-{index}"
        return path.read_text(errors="replace") if path.exists() else ""

    def words(self, index: int, **changed: object) -> list[str]:
        """The command line of a host."""
        nnodes, node_rank = changed.get("nnodes", self.hosts), changed.get("node_rank", index)
        program = changed.get("program", [str(self.folder / PROGRAM.name), str(self.folder)])
        assert isinstance(program, list)
        meeting = changed.get("endpoint", f"{self.world[0].address}:{PORT}")
        assert isinstance(meeting, str)
        numbered = [] if node_rank is None else ["--node-rank", str(node_rank)]
        hosts = ["--nnodes", str(nnodes), *numbered, "--rdzv-endpoint", meeting]
        usual = ["--ranks", str(self.ranks), "--zygote", "never", "--restarts", "20", "--backoff", "0s"]
        options = changed.get("options", self.options)
        assert isinstance(options, Sequence)
        return [*PENSTOCK, "run", *hosts, *usual, *options, *program]

    def variables(self) -> dict[str, str]:
        """What a login on any host has."""
        return {
            **({} if self.user is None else {"HOME": USER_HOME}),
            "PYTHONPATH": ":".join(map(str, [Path(penstock.__file__).parents[1], *self.path])),
            "PENSTOCK_KEY_FILE": str(self.folder / "key"),
        }

    def start(self, *indices: int, **changed: object) -> None:
        """Start it on some hosts, or on all."""
        more = changed.pop("variables", {})
        assert isinstance(more, dict)
        for index in indices or range(self.hosts):
            self.launchers[index] = self.host(index).start(
                [*self._as_user(), *self.words(index, **changed)],
                output=self.folder / f"output-{index}",
                variables={**self.variables(), **more},
            )

    def _as_user(self) -> list[str]:
        return (
            []
            if self.user is None
            else ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        )

    def let_user_in(self) -> None:
        """Make what the user needs: a home on each host, and a way to Python, to penstock and to the shared directory."""
        assert self.user is not None
        self.folder.chmod(0o777)
        os.chown(self.folder / "key", self.user, self.user)
        needed = [Path(sys.base_prefix), Path(sys.prefix), Path(penstock.__file__).parents[1]]
        for host in self.world.hosts:
            host.open_to_all(*needed)
            host.run("install", "-d", "-o", str(self.user), USER_HOME)

    def penstock(self, index: int, *words: str) -> "subprocess.CompletedProcess[str]":
        """Any other command on a host."""
        return self.host(index).run(*self._as_user(), *PENSTOCK, *words, variables=self.variables())

    def rank_pids(self, *indices: int) -> dict[int, list[int]]:
        """Processes of ranks, by host."""
        found = {}
        for index in indices or range(self.hosts):
            lines = self.host(index).processes()
            found[index] = sorted(
                pid for pid, line in lines.items() if PROGRAM.name in line and "penstock.cli" not in line
            )
        return found

    def parts(self, index: int, part: str) -> list[int]:
        """Who is the `launch`, `keeper`, `agent` or `coordinator` of a host."""
        return self.host(index).pids(f"penstock-agent {part} ")

    def part(self, index: int, part: str) -> int:
        """The one."""
        (pid,) = self.parts(index, part)
        return pid

    def lives(self) -> list[int]:
        """The newest life of each rank that ever began."""
        found = []
        for rank in range(self.hosts * self.ranks):
            path = self.folder / f"lives-{rank}"
            words = path.read_text().split() if path.exists() else []
            found.append(int(words[-1]) if words else -1)
        return found

    def await_hosts(self, life: int, *indices: int, patience_s: float = PATIENCE_S) -> None:
        """Wait until these hosts, and no others, run a life that is young enough, with as many ranks as they have together."""

        def so() -> bool:
            pids = self.rank_pids(*range(len(self.world.hosts)))
            runs = [index for index, found in pids.items() if len(found) == self.ranks]
            begun = self.lives()[: len(indices) * self.ranks]
            return runs == sorted(indices) and min(begun) >= life and len(set(begun)) == 1

        until(so, lambda: f"life {life} on {indices}: {self.lives()}\n{self.account()}", patience_s)

    def await_life(self, least: int, patience_s: float = PATIENCE_S) -> int:
        """Wait until all ranks run one life that is young enough; the life."""

        def together() -> bool:
            lives = set(self.lives())
            running = all(len(pids) == self.ranks for pids in self.rank_pids().values())
            return len(lives) == 1 and min(lives) >= least and running

        until(together, lambda: f"life {least}: {self.lives()}\n{self.account()}", patience_s)
        return self.lives()[0]

    def name(self, index: int) -> str:
        """What the job is called on a host."""
        (found,) = Path(f"/proc/{self.host(index).inner}/root/tmp").glob("penstock-*/jobs/*")
        return found.name

    def ask(self, index: int, question: str) -> list[dict[str, Any]]:
        """What the job says when it is asked on a host; nothing if nobody answers."""
        root = Path(f"/proc/{self.host(index).inner}/root/tmp")
        for path in root.glob("penstock-*/jobs/*/host.sock"):
            with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asker:
                asker.settimeout(5.0)
                asker.connect(str(path))
                asker.sendall(json.dumps({"ask": question}).encode() + b"\n")
                answer = json.loads(asker.makefile().readline())
                if answer["ok"]:
                    return list(answer["rows"])
        return []

    def leader(self, index: int) -> int | None:
        """The host rank of who leads, as one host knows."""
        rows = self.ask(index, "hosts")
        leader = rows[0]["leader"] if rows else None
        if isinstance(leader, int) or leader is None:
            return leader
        names = [host.name for host in self.world.hosts]
        return names.index(leader) if leader in names else None

    def states(self, index: int) -> list[str]:
        """The states of all hosts, as one host knows."""
        rows = self.ask(index, "hosts")
        return [host["state"] for host in rows[0].get("hosts") or []] if rows else []

    def finish(self) -> None:
        """Have all ranks end well."""
        (self.folder / "finish").touch()

    def codes(self, *indices: int, patience_s: float = PATIENCE_S) -> list[int | None]:
        """Wait until the launchers have ended; how."""
        chosen = [self.launchers[index] for index in indices or range(self.hosts)]
        until(lambda: all(one.poll() is not None for one in chosen), self.account, patience_s)
        return [one.returncode for one in chosen]

    def assert_nothing_left(self, *indices: int) -> None:
        """Nothing of the job runs on these hosts, or on any."""
        for index in indices or range(self.hosts):
            host = self.host(index)
            until(lambda host=host: not host.processes(), lambda host=host: host.processes(), 5.0)  # type: ignore[misc]

    def assert_nobody_was_twice(self) -> None:
        """No rank found its lock taken."""
        assert not list(self.folder.glob("twice-*"))

    def lose(self, index: int) -> None:
        """Kill everything on a host at once, as a power failure does."""
        self.host(index).kill_all()

    def account(self) -> str:
        """Everything that may say why something is not as it should be."""
        parts = []
        for index in range(min(self.hosts, len(self.world.hosts))):
            root = Path(f"/proc/{self.host(index).inner}/root/tmp")
            logs = [
                log.read_text(errors="replace")[-3000:] for log in root.glob("penstock-*/jobs/*/agent.log")
            ]
            running = "\n".join(f"{pid} {line[:150]}" for pid, line in self.host(index).processes().items())
            parts.append(f"--- host {index}\n{self.output(index)[-2000:]}\n{''.join(logs)}\n{running}")
        return "\n".join(parts)


@contextmanager
def job_of_hosts(folder: Path, hosts: int, **chosen: Any) -> Iterator[JobOfHosts]:
    """Hosts, and a job that may be started on them. Whatever happened, no rank was there twice."""
    key = folder / "key"
    key.write_text(f"{KEY}\n")
    key.chmod(0o600)
    shutil.copy(PROGRAM, folder / PROGRAM.name)
    with HostWorld(folder, chosen.pop("world", hosts)) as world:
        job = JobOfHosts(world, folder, hosts, **chosen)
        yield job
        job.assert_nobody_was_twice()
