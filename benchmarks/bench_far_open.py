"""How long a feed over a thousand far shards takes from opening to its first batch, and how many requests that makes.

The store is a real S3 server (moto) on this machine; nothing is cached on the host, as on a machine that never read the data. The
measure is the time that as many requests take one after another as there are shards.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tests.faulty.proxy import Proxy

import penstock as ps
from benchmarks.table import Table

SHARDS = 1150


def run() -> Table:
    """Measure in one run."""
    table = Table(f"a feed over {SHARDS:,} far shards opens without a request per shard", "ms")
    with tempfile.TemporaryDirectory() as folder, _server() as endpoint, Proxy(endpoint) as proxy:
        os.environ |= {"AWS_ENDPOINT_URL": proxy.url, "PENSTOCK_CACHE": "off", "PENSTOCK_HOME": folder}
        raw = Path(folder) / "raw"
        raw.mkdir()
        for number in range(SHARDS):
            np.save(raw / f"{number:05d}.npy", np.full((4, 32), number, dtype=np.uint16))
        place = "s3://bench/registry"
        registry = ps.Registry(place)
        version = registry.register("arrays", raw)
        recipe = ps.Recipe(sources=(ps.Source("arrays@1"),), stages=(), seed=1, batch=4)
        names = [f"objects/{shard.index.removeprefix('b3:')}" for shard in version.manifest.shards]
        begun = time.perf_counter()
        for name in names:
            registry.place.get(name)
        table.add("one request per shard, one after another", (time.perf_counter() - begun) * 1e3)
        for what in ("open and first batch, first time", "open and first batch, again"):
            proxy.forget()
            begun = time.perf_counter()
            with ps.open(recipe, registry=ps.Registry(place)) as feed:
                next(feed)
                took = time.perf_counter() - begun
            table.add(f"{what} ({len(proxy.requests()):,} requests)", took * 1e3)
    return table


@contextmanager
def _server() -> Iterator[str]:
    """A real S3 server with a bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    os.environ |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", **keys}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bench", method="PUT"), timeout=60)
                break
            except OSError:
                time.sleep(0.1)
        yield endpoint
    finally:
        server.terminate()
        server.wait()
