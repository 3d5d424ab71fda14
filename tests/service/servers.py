"""Real servers for tests: ``penstock data serve`` in processes of their own, to be killed, stopped and started again."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.data.plan.plan import prepare
from penstock.data.service import DataServer, ServeOptions

ROOT = Path(__file__).resolve().parents[2]


class ServerProcess:
    """A server of a recipe file, started once it says that it answers."""

    def __init__(self, folder: Path, *options: str, port: int = 0, recipe: str = "recipe.toml") -> None:
        self._command = [sys.executable, "-m", "penstock.cli.main", "data", "serve", "--json"]
        self._command += [str(folder / recipe), "--registry", str(folder / "registry"), *options]
        self.port = port
        self.process = self._started()

    def _started(self) -> "subprocess.Popen[str]":
        bind = [] if "--bind" in self._command else ["--bind", f"127.0.0.1:{self.port}"]
        process = subprocess.Popen(
            [*self._command, *bind], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        self.told: dict[str, Any] = json.loads(line)
        self.port = int(self.told["address"].rpartition(":")[2])
        return process

    @property
    def host(self) -> str:
        """As it stands in addresses."""
        return f"127.0.0.1:{self.port}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.process.communicate()

    def restart(self) -> None:
        """Start it again on the same port."""
        self.process = self._started()

    def ended(self) -> tuple[int, str]:
        """SIGTERM; how it ended, and what it said."""
        self.send(signal.SIGTERM)
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.kill()
        elif self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate()


def serving(registry: ps.Registry, recipe: ps.Recipe, **options: Any) -> DataServer:
    """A server inside this process."""
    skips = options.pop("skips", None)
    return DataServer(prepare(recipe, registry, skips=skips), options=ServeOptions(**options))


def address_of(*servers: DataServer) -> str:
    """The address of servers."""
    return "penstock://" + ",".join(f"{server.address[0]}:{server.address[1]}" for server in servers)


def get(server: tuple[str, int], path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a plain request."""
    connection = http.client.HTTPConnection(*server, timeout=20)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def said_to(server: tuple[str, int], request: bytes) -> bytes:
    """What a server answers to bytes, whatever they are, until it closes."""
    with socket.create_connection(server, timeout=20) as line:
        line.sendall(request)
        received = bytearray()
        try:
            while got := line.recv(1 << 16):
                received += got
        except ConnectionResetError:
            pass
        return bytes(received)
