"""From a fault to the next good batch, for the faults of docs/operations.md that a reader survives, with the default limits.

Token files lie behind a real nginx and a proxy that breaks answers (the one of the tests); every reading is a process of its own without a
cache. The reference is the first batch when nothing is wrong. Faults that kill somebody are timed from the signal.

The last two rows are places of checkpoints: 500 random damages over all kinds of files and random kills until 300 processes were killed, with the
mean time of one trial. A wrong load, a whole checkpoint that does not load or that ``repair`` does not bring back ends the benchmark with an error.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from tests.faults.campaign import Tally, damages, kills
from tests.faulty.faults import Fault, Flip, Reset, Stall, Status, Truncate
from tests.faulty.nginx import nginx
from tests.faulty.proxy import Proxy
from tests.operations.reading import BATCH, SEED, Reading, reading

import penstock as ps
from benchmarks.table import Table

_ROWS, _LENGTH = 4096, 1024
_MEMORY = Path("/dev/shm")
_FAULTS: dict[str, tuple[Fault, int]] = {
    "one answer 503": (Status(503), 1),
    "three answers 503": (Status(503), 3),
    "a reset before the answer": (Reset(None), 1),
    "a reset inside the body": (Reset(300_000), 1),
    "a truncated body": (Truncate(300_000), 1),
    "a flipped bit": (Flip(700_000), 1),
    "an answer that stops coming (20 s allowed)": (Stall(300_000), 1),
}


def run() -> Table:
    """Measure in one run."""
    table = Table("from a fault to the next good batch", "s")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder)
        registry, address, proxy = stack.enter_context(_far(place))
        table.add("nothing is wrong: the first batch", _first(registry, address, proxy, None))
        for what, (fault, times) in _FAULTS.items():
            table.add(what, _first(registry, address, proxy, (fault, times)))
        table.add("kill -9 of the reader of this host", _reader_killed(registry, address))
        table.add("kill -9 of the server that is asked", _server_killed(place, registry, address))
    for what, tally in places().items():
        table.add(what, tally.seconds / tally.trials, tally.text())
    return table


def places(damage_count: int = 500, kill_count: int = 300, seed: int = 16) -> dict[str, Tally]:
    """Damage and kill places of checkpoints; in memory where there is such a folder, since every trial syncs many small files."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        tallies = {
            "a damaged place of checkpoints, resumed and repaired": damages(
                damage_count, seed, Path(folder) / "damages"
            ),
            "a killed run, looked at": kills(kill_count, seed, Path(folder) / "kills"),
        }
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    if failures:
        raise RuntimeError("\n".join(failures))
    return tallies


@contextmanager
def _far(place: Path) -> Iterator[tuple[ps.Registry, str, Proxy]]:
    (place / "raw").mkdir()
    draw = np.random.default_rng(5)
    tokens = draw.integers(0, 50_000, size=(_ROWS, _LENGTH), dtype=np.uint16)
    np.save(place / "raw" / "tokens.npy", tokens)
    registry = ps.Registry(place / "registry")
    with nginx(place / "raw", place / "nginx") as url, Proxy(url) as proxy:
        version = registry.register("far", f"{proxy.url}/tokens.npy")
        yield registry, version.address, proxy


def _first(registry: ps.Registry, address: str, proxy: Proxy, fault: tuple[Fault, int] | None) -> float:
    with reading(registry.url, address, variables={"PENSTOCK_CACHE": "off"}) as reader:
        proxy.heal()
        if fault is not None:
            proxy.add(fault[0], times=fault[1], method="GET")
        return _timed(reader)


def _timed(reader: Reading) -> float:
    begun = time.perf_counter()
    assert "digest" in reader.batch()
    return time.perf_counter() - begun


def _reader_killed(registry: ps.Registry, address: str) -> float:
    with reading(registry.url, address, "share") as first, reading(registry.url, address, "share") as second:
        for _ in range(4):
            first.batch()
            second.batch()
        os.kill(first.pid, signal.SIGKILL)
        return _timed(second)


def _server_killed(place: Path, registry: ps.Registry, address: str) -> float:
    recipe = place / "recipe.toml"
    recipe.write_text(f'seed = {SEED}\nbatch = {BATCH}\nsources = [{{ name = "{address}" }}]\n')
    with ExitStack() as stack:
        (server, one), (_, two) = (stack.enter_context(_serving(recipe, registry)) for _ in range(2))
        feed = stack.enter_context(ps.open(f"{one},{two.removeprefix('penstock://')}"))
        for _ in range(4):
            next(feed)
        server.kill()
        begun = time.perf_counter()
        # Batches that were read ahead are no news.
        for _ in range(64):
            next(feed)
        return time.perf_counter() - begun


@contextmanager
def _serving(recipe: Path, registry: ps.Registry) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    ready = recipe.with_name(f"ready-{time.monotonic_ns()}")
    words = ["data", "serve", str(recipe), "--bind", "127.0.0.1:0", "--ready-file", str(ready)]
    command = [sys.executable, "-m", "penstock.cli.main", *words, "--registry", registry.url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 60
            while not ready.exists():
                assert server.poll() is None
                assert time.monotonic() < until
                time.sleep(0.01)
            yield server, ready.read_text().strip()
        finally:
            server.kill()
