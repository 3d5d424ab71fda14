"""Ranks of one host fetch what they have in common once."""

import os
import tempfile
import uuid
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.state.load import spool
from penstock.state.load.spool import Spool
from penstock.state.manifest import DataFile
from penstock.store import Store
from tests.state.layouts import Divided, equal, gang


class Counted:
    """A store that counts what is fetched from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.fetched: list[tuple[int, int]] = []

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Some bytes."""
        self.fetched.append((start, length))
        return self._store.get_range(name, start, length)


def test_every_block_is_fetched_by_one_of_many(
    tmp_path: Path, memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "BLOCK_BYTES", 1000)
    data = np.random.default_rng(1).integers(0, 256, 12_345, np.uint8).tobytes()
    memory.put_if_absent("data/f", data)
    store = Counted(memory)
    # 3 and 4 of the 13 blocks are not wanted.
    wanted = [(0, 2500), (5200, 100), (6000, 6345)]

    def read(rank: int) -> bytes:
        with Spool("a", tmp_path) as shared:
            return shared.fetch(store, DataFile("data/f", len(data)), "data/f", wanted).read_bytes()  # type: ignore[arg-type]

    for content in gang(4, read):
        assert all(
            content[first : first + length] == data[first : first + length] for first, length in wanted
        )
    assert len(store.fetched) >= 11
    assert not list(tmp_path.iterdir())


def test_many_come_and_go_at_once_and_nobody_is_in_the_way(tmp_path: Path, memory: Store) -> None:
    memory.put_if_absent("data/f", b"x" * 5000)

    def come_and_go(rank: int) -> int:
        for _ in range(200):
            with Spool("a", tmp_path) as shared:
                path = shared.fetch(memory, DataFile("data/f", 5000), "data/f", [(0, 5000)])
                assert path.read_bytes() == b"x" * 5000
        return rank

    assert gang(4, come_and_go) == [0, 1, 2, 3]
    assert not list(tmp_path.iterdir())


def test_a_claim_whose_owner_died_is_passed_over(
    tmp_path: Path, memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "PATIENCE_S", 0.05)
    memory.put_if_absent("data/f", b"x" * 100)
    with Spool("a", tmp_path) as shared:
        path = shared.fetch(memory, DataFile("data/f", 100), "data/f", [])
        os.close(os.open(path.with_suffix(".0.claim"), os.O_CREAT | os.O_WRONLY))
        assert shared.fetch(memory, DataFile("data/f", 100), "data/f", [(0, 100)]).read_bytes() == b"x" * 100


def test_replicas_load_from_a_far_store_and_leave_nothing(s3_bucket: str) -> None:
    place = f"{s3_bucket}/{uuid.uuid4().hex}"
    whole = {"a": np.random.default_rng(1).random((400, 1000)), "b": np.arange(100)}
    with ps.Checkpoints(place) as ck:
        ck.save(1, whole).wait()
    before = set(os.listdir(tempfile.gettempdir()))

    def load(rank: int) -> Divided:
        state = Divided({k: np.zeros_like(v) for k, v in whole.items()}, {"a": None, "b": 0}, rank, 3)
        ck = ps.Checkpoints(place, rank=rank, ranks=3, read_only=True)
        checkpoint = ck.latest()
        assert checkpoint is not None
        ck.load(checkpoint, into=state)
        return state

    loaded = gang(3, load)
    expected = [Divided(whole, {"a": None, "b": 0}, rank, 3).arrays() for rank in range(3)]
    assert equal([state.arrays() for state in loaded], expected)
    left = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in left if name.startswith("penstock-spool")]
