"""What opening a feed over far shards asks its store for: a few objects, not one per shard."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.data import Feed
from penstock.registry import Registry
from tests.data.corpus import Corpus, some_documents
from tests.faulty.proxy import Proxy

SHARDS = 40
#: Names, records, the manifest, columns, plans: what every opening asks for, whatever the number of shards.
FEW = 25


@pytest.fixture
def proxy(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Counts requests before a real S3 server; without a cache of the host, as on a machine that never read the data."""
    assert s3_bucket
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        monkeypatch.setenv("PENSTOCK_CACHE", "off")
        yield proxy


def opened(recipe: ps.Recipe, place: str, proxy: Proxy) -> tuple[Feed, int]:
    """A feed of a registry that this process has not seen, and how many requests that took."""
    proxy.forget()
    feed = ps.open(recipe, registry=Registry(place), threads=0)
    return feed, len(proxy.requests())


def test_opening_text_again_asks_for_a_few_objects(own: Corpus, s3_bucket: str, proxy: Proxy) -> None:
    """Goal: columns and plans that are known cost a few requests. Method: 40 shards of text, opened twice, plain and filtered; count."""
    own.add("web", some_documents(SHARDS * 3, longest=20, seed=4), shards=SHARDS)
    place = f"{s3_bucket}/{uuid.uuid4().hex}"
    Registry(place).register("web", own.folder / "web")
    for before in ([], [ps.Filter("lang != 'de'")]):
        recipe = own.recipe(ps.Source("web@1", epochs=1), stages=[*before, *own.stages(16)], batch=2)
        first, _ = opened(recipe, place, proxy)
        with first:
            expected = next(first).digest
        again, requests = opened(recipe, place, proxy)
        with again:
            assert requests < FEW
            assert next(again).digest == expected


@pytest.mark.parametrize("packed", [True, False])
def test_opening_arrays_asks_for_a_few_objects(
    own: Corpus, tmp_path: Path, s3_bucket: str, proxy: Proxy, packed: bool
) -> None:
    """Goal: the layouts of array files are one object. Method: 40 .npy files of tokens; a damaged object is not believed."""
    folder = tmp_path / "arrays"
    folder.mkdir()
    for number in range(SHARDS):
        np.save(folder / f"{number:03d}.npy", np.arange(8 * 16, dtype=np.uint16).reshape(8, 16) + number)
    place = f"{s3_bucket}/{uuid.uuid4().hex}"
    version = Registry(place).register("arrays", folder)
    recipe = own.recipe(ps.Source("arrays@1", epochs=1), stages=[ps.Pack(32)] if packed else [], batch=2)
    first, requests = opened(recipe, place, proxy)
    with first:
        assert requests < FEW
        expected = [batch.digest for batch in first]
    again, requests = opened(recipe, place, proxy)
    with again:
        assert requests < FEW
        assert [batch.digest for batch in again] == expected
    store, name = Registry(place).place, f"layouts/{version.digest.removeprefix('b3:')}.json"
    kept = store.get(name)
    store.delete(name)
    store.put_if_absent(name, kept.replace(b"[128,32]", b"[128,64]", 1))
    assert store.get(name) != kept
    third, _ = opened(recipe, place, proxy)
    with third:
        assert [batch.digest for batch in third] == expected
