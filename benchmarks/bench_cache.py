"""Reading a far file through the host cache, against the same file on this machine.

A real nginx on the loopback serves the file. Warm: every piece is in the cache, and each round opens the shard anew, so that first-touch
checks are part of the time on both sides. Cold: the cache is empty, and one or four processes read everything at once; how much the host
fetched is counted by the cache's ledger.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.faulty.nginx import nginx

from benchmarks.table import Table
from penstock import Registry
from penstock._rust import HostCache, ShardFile
from penstock.formats.shard_bytes import open_file
from penstock.registry import Version
from penstock.store.hostcache import cache_place

ROWS = 150_000
TAKEN = 50_000
ROUNDS = 7
READ_BYTES = 1 << 20
_READER = """
import sys
from benchmarks.bench_cache import opened, sequential
from penstock import Registry
file, bytes_ = opened(Registry(sys.argv[1]).resolve("far"))
print("ready", flush=True)
sys.stdin.readline()
sequential(file, bytes_)
print("done", flush=True)
"""


def run() -> Table:
    """Measure in one run, warm page cache, local and far in turns."""
    table = Table(
        "a warm cache reads at 0.9 of local files or better; a host fetches a byte once",
        "MB/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["PENSTOCK_CACHE"] = str(place / "cache")
        (place / "served").mkdir()
        path = place / "served" / "far.jsonl"
        _write(path)
        with nginx(place / "served", place / "nginx") as url:
            registry = Registry(place / "registry")
            near = registry.register("near", [path])
            far = registry.register("far", [f"{url}/far.jsonl"])
            sequential(*opened(far))
            rows = np.random.default_rng(7).permutation(ROWS)[:TAKEN].astype(np.uint64)
            _compare(table, "sequential", near, far, sequential)
            _compare(table, "random rows", near, far, lambda file, _: gather(file, rows))
            _compare(table, "random rows, again", near, far, lambda file, _: gather(file, rows), again=True)
            for processes in (1, 4):
                seconds, fetched = _cold(place / "registry", processes)
                note = f"bytes fetched / bytes of the file: {fetched / far.bytes:.3f}"
                table.add(f"cold, {processes} processes", processes * far.bytes / seconds / 1e6, note)
        del os.environ["PENSTOCK_CACHE"]
    return table


def opened(version: Version) -> tuple[ShardFile, int]:
    """The one shard of a version, opened anew, and its bytes."""
    (shard,) = version.manifest.shards
    return open_file(version.open_shard(shard)), shard.bytes


def sequential(file: ShardFile, bytes_: int) -> int:
    """Read everything from beginning to end; how many bytes."""
    return sum(len(file.read(at, min(READ_BYTES, bytes_ - at))) for at in range(0, bytes_, READ_BYTES))


def gather(file: ShardFile, rows: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> int:
    """Gather rows in portions as a batch has them; how many bytes."""
    return sum(len(file.gather(rows[at : at + 512].data, 1)[0]) for at in range(0, len(rows), 512))


def _compare(
    table: Table,
    what: str,
    near: Version,
    far: Version,
    work: Callable[[ShardFile, int], int],
    *,
    again: bool = False,
) -> None:
    """Local and far in turns; the best round of each counts. With ``again``, what was touched before is read."""
    speeds: dict[str, list[float]] = {"local": [], "warm cache": []}
    for _ in range(ROUNDS):
        for name, version in (("local", near), ("warm cache", far)):
            file, bytes_ = opened(version)
            if again:
                work(file, bytes_)
            began = time.perf_counter()
            done = work(file, bytes_)
            speeds[name].append(done / (time.perf_counter() - began) / 1e6)
    ratio = max(speeds["warm cache"]) / max(speeds["local"])
    table.add(f"{what}, local", max(speeds["local"]))
    table.add(f"{what}, warm cache", max(speeds["warm cache"]), f"{ratio:.2f} of local")


def _cold(registry: Path, processes: int) -> tuple[float, int]:
    """Seconds until all have read everything through an empty cache, and the bytes that were fetched."""
    cache = _cache()
    cache.clear()
    before = dict(cache.ledger())["fetched_bytes"]
    command = [sys.executable, "-c", _READER, str(registry)]
    readers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for reader in readers:
        assert reader.stdout is not None
        reader.stdout.readline()
    began = time.perf_counter()
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "done\n"
    seconds = time.perf_counter() - began
    for reader in readers:
        reader.communicate(timeout=60)
    return seconds, dict(cache.ledger())["fetched_bytes"] - before


def _cache() -> HostCache:
    place = cache_place()
    assert place is not None
    return place.open()


def _write(path: Path) -> None:
    draw = random.Random(7)
    words = [draw.randbytes(20).hex() for _ in range(1_000)]
    with path.open("w") as file:
        for row in range(ROWS):
            file.write(f'{{"id": {row}, "text": "{" ".join(draw.choices(words, k=draw.randint(5, 40)))}"}}\n')
