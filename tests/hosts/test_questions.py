"""What people ask about a job of many hosts is answered alike on each of them: H5, and a stop anywhere ends all (H6)."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.hosts.network_namespace import HostWorld

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
PORT = 29400


class Joined:
    """A job of one rank on each host, whose ranks wait."""

    def __init__(self, world: HostWorld, folder: Path) -> None:
        self.world, self.folder = world, folder
        key = folder / "key"
        key.write_text("ab" * 32 + "\n")
        key.chmod(0o600)
        modules = Path(penstock.__file__).parent.parent
        self.variables = {"PYTHONPATH": str(modules), "PENSTOCK_KEY_FILE": str(key)}
        self.launchers = [self._start(index) for index in range(world.count)]
        for index in range(world.count):
            world[index].await_(lambda index=index: f"[{index}] here" in self.said(index), "for its rank")

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        host = self.world[index]
        place = ["--nnodes", str(self.world.count), "--node-rank", str(index)]
        place += ["--rdzv-endpoint", f"{self.world[0].address}:{PORT}", "--rdzv-id", "asked"]
        words = [*place, "--lease", "3s", "--zygote", "never", "--", "sh", "-c", "echo here; exec sleep 600"]
        command = [sys.executable, "-m", "penstock.cli.main", "run", *words]
        return host.start(command, output=self.folder / f"out-{index}", variables=self.variables)

    def said(self, index: int) -> str:
        return (self.folder / f"out-{index}").read_text()

    def ask(self, index: int, *words: str) -> list[dict[str, Any]]:
        """Lines of JSON that a command prints on a host."""
        command = [sys.executable, "-m", "penstock.cli.main", *words]
        done = self.world[index].run(*command, variables=self.variables)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def await_nothing_left(self, *indexes: int) -> None:
        for index in indexes:
            host = self.world[index]
            host.await_(lambda host=host: not host.processes(), "until nothing is left")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Joined]:
    with HostWorld(tmp_path, 2) as world:
        yield Joined(world, tmp_path)


def test_every_host_tells_of_all_and_a_stop_on_any_ends_all(job: Joined) -> None:
    names = [host.name for host in job.world.hosts]
    for index in range(2):
        rows = job.ask(index, "ps", "asked", "--json")
        assert [(row["host"], row["host_rank"], row["rank"]) for row in rows if row["depth"] == 0] == [
            (names[0], 0, 0),
            (names[1], 1, 1),
        ]
    hosts = job.ask(1, "hosts", "list", "asked", "--json")
    assert [(host["name"], host["state"], host["leader"]) for host in hosts] == [
        (names[0], "here", True),
        (names[1], "here", False),
    ]
    told = [entry["event"] for entry in job.ask(1, "events", "asked", "--json")]
    assert told[:3] == ["ordered", "prepared", "started"]
    job.ask(1, "stop", "asked", "--json")
    job.await_nothing_left(0, 1)
    assert [launcher.wait(timeout=60) for launcher in job.launchers] == [143, 143]


def test_a_host_that_is_cut_off_says_so_and_is_ended_by_force(job: Joined) -> None:
    """Method: the host that does not vote loses its cable; there nothing is decided any more, so only force ends it."""
    job.world[1].cut()
    job.world[1].await_(lambda: "the lease of this host ends" in job.said(1), "for the end of its lease")
    command = [sys.executable, "-m", "penstock.cli.main", "ps", "asked"]
    shown = job.world[1].run(*command, variables=job.variables)
    assert "the leader is not heard here" in shown.stderr, shown.stderr
    job.ask(1, "stop", "asked", "--force", "--json")
    job.await_nothing_left(1)
    assert job.launchers[0].poll() is None, job.said(0)
