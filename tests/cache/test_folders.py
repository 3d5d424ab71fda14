"""Folders of media on a real S3 server (moto), read through the cache of the host, with a proxy that counts requests."""

import hashlib
import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Registry
from penstock.errors import CorruptShard
from penstock.store.remote import RemoteStore
from tests.cache.conftest import Far
from tests.faulty.faults import Flip
from tests.faulty.proxy import Proxy

#: Around the borders of blocks (64 KiB) and pieces (1 MiB).
LENGTHS = (700, 65_536, 65_537, 3, 1 << 20, 2_500_000, 90_000, 12)
BYTES = sum(LENGTHS)


def content_of(number: int) -> bytes:
    """A file that begins as a PNG does."""
    length = LENGTHS[number]
    return (b"\x89PNG\r\n\x1a\n" + random.Random(number).randbytes(length))[:length]


@pytest.fixture
def store(s3_bucket: str) -> RemoteStore:
    """A folder of the bucket with one file of each length."""
    store = RemoteStore(f"{s3_bucket}/{uuid.uuid4().hex}")
    for number in range(len(LENGTHS)):
        store.put_if_absent(f"{number}.png", content_of(number))
    return store


@pytest.fixture
def media(store: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """The folder as version ``web``, behind the proxy, and an empty cache."""
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        Registry(tmp_path / "registry").register("web", store.url)
        proxy.forget()
        digest = hashlib.sha256(b"".join(content_of(number) for number in range(len(LENGTHS)))).hexdigest()
        yield Far(tmp_path / "registry", proxy, BYTES, digest, tmp_path / "cache")


def test_a_second_epoch_and_a_second_process_ask_the_store_for_nothing(media: Far) -> None:
    counts = media.read("twice")
    assert (counts["pieces_fetched_bytes"], media.proxy.bytes_of("png") >= BYTES) == (BYTES, True)
    assert all(len(media.proxy.requests(f"/{number}.png", "GET")) <= 3 for number in range(len(LENGTHS)))
    media.proxy.forget()
    counts = media.read("twice")
    assert (media.proxy.requests(".png"), counts["cache_misses"]) == ([], 0)
    # Without a cache directory, pieces are kept in memory.
    media.read("twice", PENSTOCK_CACHE="off")
    assert BYTES <= media.proxy.bytes_of("png") < 1.5 * BYTES


def test_what_rots_in_the_cache_or_on_the_way_is_fetched_again(media: Far) -> None:
    """Goal: D4, wrong bytes are never handed out and cost speed only. Method: a bit of every kept piece is flipped, one is cut off, and
    one answer of the store is wrong."""
    media.read()
    pieces = media.pieces()
    for number, piece in enumerate(pieces):
        kept = bytearray(piece.read_bytes())
        kept[number % 3] ^= 4
        piece.write_bytes(kept[: len(kept) - (number == 1)])
    media.proxy.forget()
    media.proxy.add(Flip(at=80_000), times=1, path="6.png")
    counts = media.read()
    assert (counts["cache_rotten"], counts["corrupt_refetched"]) == (len(pieces), 1)
    assert counts["pieces_fetched_bytes"] == BYTES + LENGTHS[6]
    media.proxy.forget()
    assert media.read()["cache_misses"] == 0
    assert media.proxy.requests(".png") == []


@pytest.mark.parametrize(
    ("change", "said"), [("other", "expected xxh3"), ("shorter", "has 5 bytes"), ("gone", "is gone")]
)
def test_a_file_replaced_under_its_name_is_noticed_when_it_is_fetched(
    media: Far, store: RemoteStore, change: str, said: str
) -> None:
    """Goal: registered bytes or an error with file and place. Method: what the cache has stays what was registered; what it has not is
    compared as it arrives."""
    media.read()
    store.delete("1.png")
    if change != "gone":
        store.put_if_absent("1.png", content_of(1)[:-1] + b"?" if change == "other" else b"\x89PNG\r")
    media.read()
    version = Registry(media.registry).resolve("web")
    with pytest.raises(CorruptShard, match=said) as caught:
        version.take([1])
    assert caught.value.shard.endswith("/1.png")
    assert [row["bytes"] for row in version.take([0, 2])] == [content_of(0), content_of(2)]
