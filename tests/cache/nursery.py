"""Forks readers of a far version again and again, kills some of them at any instant, and lets another one read.

    python -m tests.cache.nursery REGISTRY DATASET ROUNDS

A reader that meets a lock of a dead one would wait for it until its patience ends, and count that.
"""

import json
import os
import random
import select
import signal
import sys
from pathlib import Path

from penstock import Registry
from penstock._rust import digest, store_counts
from penstock.formats.shard_bytes import open_file
from penstock.registry import Version
from penstock.store.hostcache import cache_place

READERS = 2


def start(version: Version) -> int:
    """A child that reads everything; its number."""
    (shard,) = version.manifest.shards
    child = os.fork()
    if child == 0:
        try:
            good = digest(open_file(version.open_shard(shard)).read(0, shard.bytes)) == shard.digest
            os._exit(0 if good and store_counts()["flights_impatient"] == 0 else 3)
        except Exception as problem:  # noqa: BLE001 - a child has nobody above it
            print(repr(problem), file=sys.stderr, flush=True)
            os._exit(4)
    return child


def main() -> None:
    """Kill and read."""
    place, dataset, rounds = sys.argv[1:]
    chance = random.Random(8)
    version = Registry(place).resolve(dataset)
    cache_at = cache_place()
    assert cache_at is not None
    killed, finished = 0, 0
    for _ in range(int(rounds)):
        cache_at.open().clear()
        children = [start(version) for _ in range(READERS)]
        select.select([], [], [], chance.random() * 0.03)
        for child in children:
            if chance.random() < 0.7:
                os.kill(child, signal.SIGKILL)
        survivor = start(version)
        assert os.waitpid(survivor, 0)[1] == 0, "the next reader"
        for child in children:
            status = os.waitpid(child, 0)[1]
            assert status in (0, signal.SIGKILL), status
            killed += status == signal.SIGKILL
            finished += status == 0
    cache = cache_at.open()
    files, _, rotten = cache.verify(lambda _: None)
    names = sorted({path.name for path in Path(cache.root).iterdir()})
    strange = [str(path) for path in Path(cache.root).rglob(".tmp-*")]
    facts = {"files": files, "rotten": len(rotten), "names": names, "strange": strange}
    print(json.dumps({"killed": killed, "finished": finished, **facts}))


if __name__ == "__main__":
    main()
