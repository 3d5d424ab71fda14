"""A recipe's batches from a server on loopback, against a local feed and a raw TCP copy of as many bytes.

One client, one server, each a process of its own. All contenders are timed in turns in one run; every batch that came over the
wire has the digest that the local feed has. The raw copy sends bytes of one buffer through one socket into one other: no data
service on this machine can be faster than that.
"""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.table import Table

LENGTH = 4096
ROWS = 60_000
ROUNDS = 5
#: Rows of a step: batches of 1, 4 and 16 MB.
BATCHES = (128, 512, 2048)
ROUND_BYTES = 1 << 30
#: How often servers are killed, and how many batches are read before and after.
KILLS, BATCHES_READ = 5, 300


def run() -> Table:
    """Measure in one run, in alternating rounds; the best of each."""
    table = Table(
        "a service gives one client 1 GB/s on loopback, bits equal to a local feed",
        "GB/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        np.save(
            place / "rows.npy",
            np.random.default_rng(3).integers(0, 50_000, (ROWS, LENGTH), dtype=np.uint16),
        )
        ps.Registry(place / "registry").register("rows", place / "rows.npy")
        for rows in BATCHES:
            measure(table, place, rows)
        fail_over(place)
    return table


def measure(table: Table, place: Path, rows: int) -> None:
    """One size of batch."""
    size = rows * LENGTH * 2
    count = ROUND_BYTES // size
    recipe = write_recipe(place, rows)
    with Server(place, recipe) as server, RawCopy(size) as raw:
        local = ps.open(ps.Recipe.load(recipe), registry=ps.Registry(place / "registry"))
        with local, ps.open(server.address) as remote:
            equal = all(next(local).digest == next(remote).digest for _ in range(count))
            assert equal, "the service gave other bits"
            contenders: dict[str, Callable[[], object]] = {
                "raw TCP copy": raw.next,
                "local feed": lambda: next(local),
                "service": lambda: next(remote),
            }
            rates = dict.fromkeys(contenders, 0.0)
            spent = []
            for _, (name, step) in itertools.product(range(ROUNDS), contenders.items()):
                before = processor_s(os.getpid()) + processor_s(server.process.pid)
                rates[name] = max(rates[name], rate(step, count, size))
                if name == "service":
                    spent.append(processor_s(os.getpid()) + processor_s(server.process.pid) - before)
    for name, value in rates.items():
        share = f"{value / rates['local feed']:.2f} of the local feed, {value / rates['raw TCP copy']:.2f} of the raw copy, "
        share += f"{min(spent) / (count * size) * 1e9:.2f} s of processor a GB on both sides"
        table.add(f"{name}, {size >> 20} MB", value / 1e9, share if name == "service" else "")


def processor_s(process: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(step: Callable[[], object], count: int, size: int) -> float:
    """Bytes per second over one round."""
    begun = time.perf_counter()
    for _ in range(count):
        step()
    return count * size / (time.perf_counter() - begun)


def write_recipe(place: Path, rows: int) -> Path:
    """A recipe of so many rows a step."""
    path = place / f"recipe-{rows}.toml"
    path.write_text(f'seed = 1\nbatch = {rows}\n[[sources]]\nname = "rows"\n')
    return path


class Server:
    """``penstock data serve`` in a process of its own."""

    def __init__(self, place: Path, recipe: Path, bind: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "penstock.cli.main", "data", "serve", str(recipe), "--bind", bind]
        command += ["--registry", str(place / "registry"), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = str(json.loads(line)["address"])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class RawCopy:
    """The same number of bytes through a socket, sent by a process of its own and received into one buffer."""

    SENDER = (
        "import socket,sys\n"
        "s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
        "b=memoryview(bytearray(int(sys.argv[2])))\n"
        "try:\n"
        " while s.recv(1): s.sendall(b)\n"
        "except OSError: pass\n"
    )

    def __init__(self, size: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        command = [sys.executable, "-c", self.SENDER, str(listener.getsockname()[1]), str(size)]
        self._sender = subprocess.Popen(command)
        self._socket, _ = listener.accept()
        listener.close()
        self._into = memoryview(bytearray(size))
        # Two are asked for ahead, so that the sender never waits to be asked.
        self._socket.sendall(b"..")

    def next(self) -> None:
        """Receive once."""
        self._socket.sendall(b".")
        at = 0
        while at < len(self._into):
            at += self._socket.recv_into(self._into[at:])

    def __enter__(self) -> "RawCopy":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._sender.wait()


def fail_over(place: Path) -> None:
    """Print how long a client waits when the server that it reads from is killed, and when it hangs."""
    recipe = write_recipe(place, BATCHES[0])
    for words, number in (("kill -9", signal.SIGKILL), ("SIGSTOP (given up after 0.5 s)", signal.SIGSTOP)):
        waits = []
        for _ in range(KILLS):
            with Server(place, recipe) as one, Server(place, recipe) as two:
                servers = f"{one.address},{two.address.removeprefix('penstock://')}"
                with ps.open(ps.Service(address=servers, silence_max_s=0.5)) as remote:
                    for _ in range(BATCHES_READ):
                        next(remote)
                    one.process.send_signal(number)
                    waits.append(longest_wait(remote))
                one.process.kill()
        waits.sort()
        print(
            f"{words} of the server: the longest wait for a batch is {waits[KILLS // 2] * 1e3:.0f} ms "
            f"(median of {KILLS}), {waits[-1] * 1e3:.0f} ms at worst"
        )


def longest_wait(feed: Iterator[object]) -> float:
    """The longest that a consumer waits for one of the next batches, those that were read ahead included."""
    waits = []
    for _ in range(BATCHES_READ):
        begun = time.perf_counter()
        next(feed)
        waits.append(time.perf_counter() - begun)
    return max(waits)
