"""Programs that read a far version through the host cache; each says on one line of JSON what it read and counted.

python -m tests.cache.reader REGISTRY DATASET [waiting|twice|forking|limited]
"""

import hashlib
import json
import os
import resource
import sys
import warnings

from penstock import Registry
from penstock._rust import store_counts
from penstock.registry import Version

ROWS_AT_ONCE = 512


def digest_of(version: Version) -> str:
    """Of all rows, in order."""
    hasher = hashlib.sha256()
    for first in range(0, version.rows, ROWS_AT_ONCE):
        for row in version.take(range(first, min(version.rows, first + ROWS_AT_ONCE))):
            hasher.update(row["bytes"] if "bytes" in row else row["text"].encode())
    return hasher.hexdigest()


def fork(version: Version) -> list[str]:
    """What a child of a fork reads, while the parent has files, threads and locks of its own."""
    source, sink = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.write(sink, digest_of(version).encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as answer:
        digest = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return [digest]


def main() -> None:
    """Read as told."""
    place, dataset, *how = sys.argv[1:]
    version = Registry(place).resolve(dataset)
    if "limited" in how:
        # No file may grow beyond this: writing fails as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    if "waiting" in how:
        print("ready", flush=True)
        sys.stdin.readline()
    digests = [digest_of(version)]
    if "twice" in how:
        digests.append(digest_of(Registry(place).resolve(dataset)))
    if "forking" in how:
        digests += fork(version)
    print(json.dumps({"digests": digests, "counts": store_counts()}), flush=True)


if __name__ == "__main__":
    main()
