"""Token files on a real S3 server behind a proxy that can break everything, and the same files on the local disk."""

import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from penstock import Recipe, Registry, Source
from penstock.data.feed.feed import open_feed
from penstock.store import open_store
from tests.faulty.proxy import Proxy
from tests.operations.reading import BATCH, SEED, Reading, reading

_SHARDS, _ROWS, _LENGTH = 2, 1024, 1024
STEPS = _SHARDS * _ROWS // BATCH
#: Small enough that a test sees the end of them, large enough for a machine that is busy.
LIMITS = {
    "PENSTOCK_STORE_READ_S": "1",
    "PENSTOCK_STORE_TOTAL_S": "5",
    "PENSTOCK_STORE_TRIES": "4",
    "PENSTOCK_STORE_PAUSE_S": "0.02",
    "PENSTOCK_STORE_PAUSE_MAX_S": "0.1",
}


@dataclass
class Far:
    """A version whose files are far away, and what a reader of the local ones gets."""

    proxy: Proxy
    registry: Registry
    address: str
    #: Objects of the version, by name.
    store: str
    names: list[str]
    digests: list[str]
    place: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """The cache of the host, as far as readers of this test know."""
        return self.place / "cache"

    def reading(self, *words: str, **variables: str | None) -> AbstractContextManager[Reading]:
        """A reader that meets the proxy."""
        said = {**LIMITS, **self.variables, "PENSTOCK_CACHE": str(self.cache), **variables}
        return reading(self.registry.url, self.address, *words, variables=said)


@pytest.fixture
def far(s3_bucket: str, tmp_path: Path) -> Iterator[Far]:
    """Files of their own for every test, so that it may do to them what it likes."""
    store, names = f"{s3_bucket}/{uuid.uuid4().hex}", []
    raw = tmp_path / "raw"
    raw.mkdir()
    draw = np.random.default_rng(29)
    for number in range(_SHARDS):
        tokens = draw.integers(0, 50_000, size=(_ROWS, _LENGTH), dtype=np.uint16)
        names.append(f"tokens-{number}.npy")
        np.save(raw / names[-1], tokens)
        open_store(store).put_if_absent(names[-1], (raw / names[-1]).read_bytes())
    registry = Registry(tmp_path / "registry")
    near = registry.register("near", raw)
    version = registry.register("far", store)
    assert version.digest == near.digest
    recipe = Recipe(sources=[Source(near.address)], seed=SEED, batch=BATCH)
    with open_feed(recipe, registry=registry) as feed:
        digests = [next(feed).digest for _ in range(STEPS)]
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        variables = {"AWS_ENDPOINT_URL": proxy.url}
        yield Far(proxy, registry, version.address, store, names, digests, tmp_path, variables)
