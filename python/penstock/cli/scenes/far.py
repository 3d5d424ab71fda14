"""Data that is somewhere else: its store refuses, resets and lies, then dies; the batches are those of local files, bit for bit."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from penstock import Recipe, Registry, Source
from penstock.cli.scenes import insist
from penstock.data.feed.feed import open_feed

_SHARDS, _ROWS, _LENGTH = 4, 2048, 512
_STEPS = _SHARDS * _ROWS // 64
_TIMEOUT_S = 60
#: Reads an epoch in a process of its own, with the cache that the scene gives it; prints digests and what the store did.
_READER = """
import msgspec, sys, penstock as ps
from penstock._rust import store_counts
recipe = ps.Recipe(sources=[ps.Source(sys.argv[2], epochs=1)], seed=5, batch=64)
with ps.open(recipe, registry=ps.Registry(sys.argv[1])) as feed:
    digests = [batch.digest for batch in feed]
sys.stdout.buffer.write(msgspec.json.encode({"digests": digests, "counts": store_counts()}))
"""


class Read(msgspec.Struct):
    """What a reader found."""

    digests: list[str]
    #: Of its store and cache; some are times.
    counts: dict[str, float | None]

    def count(self, name: str) -> int:
        """One of the counts."""
        return int(self.counts[name] or 0)


def play(place: Path) -> Iterator[str]:
    """Register over HTTP, read through faults, kill the store, read again from the host's cache."""
    raw = place / "raw"
    _write(raw)
    registry = Registry(place / "registry")
    near = registry.register("near", raw)
    expected = _digests(registry, near.address)
    with _store(raw) as (process, url):
        far = registry.register("far", [f"{url}/{file.name}" for file in sorted(raw.iterdir())])
        insist("the same bytes are the same version wherever they are", holds=far.digest == near.digest)
        yield f"registered {_SHARDS} files over HTTP, {far.bytes / 1e6:.0f} MB: the same version as from the local disk"
        process.send_signal(signal.SIGUSR1)
        reading = _read(place, far.address)
        insist("faults of a store change no bit", holds=reading.digests == expected)
        retries, refetched = reading.count("retries"), reading.count("corrupt_refetched")
        insist("the faults were met", holds=retries >= 3 and refetched >= 1)
        yield (
            f"the store refused twice, reset a connection and flipped a bit: {retries} retries, "
            f"{refetched} piece fetched again, {len(expected)} batches equal to those of local files"
        )
    reading = _read(place, far.address)
    insist("the cache of the host has every byte", holds=reading.digests == expected)
    insist("nothing was fetched", holds=reading.count("bytes_read") == 0)
    yield "killed the store (signal 9) and read everything again from the host's cache: the same batches, nothing fetched"


def _write(raw: Path) -> None:
    raw.mkdir()
    draw = np.random.default_rng(3)
    for number in range(_SHARDS):
        tokens = draw.integers(0, 50_000, size=(_ROWS, _LENGTH), dtype=np.uint16)
        np.save(raw / f"tokens-{number}.npy", tokens)


def _digests(registry: Registry, address: str) -> list[str]:
    recipe = Recipe(sources=(Source(address, epochs=1),), seed=5, batch=64)
    with open_feed(recipe, registry=registry) as feed:
        return [batch.digest for batch in feed]


@contextmanager
def _store(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The store as a process, which is killed at the end."""
    program = Path(__file__).with_name("faulty_store.py")
    with subprocess.Popen(
        [sys.executable, str(program), str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait(_TIMEOUT_S)


def _read(place: Path, address: str) -> "Read":
    """An epoch as a process of its own reads it."""
    variables = {**os.environ, "PENSTOCK_CACHE": str(place / "cache")}
    words = [sys.executable, "-c", _READER, str(place / "registry"), address]
    done = subprocess.run(words, env=variables, capture_output=True, check=False, timeout=_TIMEOUT_S)
    insist(f"an epoch is read ({done.stderr.decode(errors='replace')[-400:]})", holds=done.returncode == 0)
    return msgspec.json.decode(done.stdout, type=Read)
