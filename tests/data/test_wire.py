"""Columns and batches as bytes: everything comes back as it was, and what nobody packed is refused."""

import datetime
import zoneinfo
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import penstock as ps
from penstock._rust import FeedBatch
from penstock.data import Batch, TokenBatch
from penstock.data.feed.batch_wire import receive, ship
from penstock.data.feed.columns_wire import NotPackable, pack, unpack
from penstock.data.feed.feed import batch_of
from penstock.data.feed.lane import Lane
from penstock.data.plan.plan import prepare
from penstock.data.records.values import encode
from penstock.errors import BatchDamaged
from tests.data.corpus import Corpus
from tests.data.gallery import Gallery
from tests.data.record_maps import fragile
from tests.data.test_record_values import PLAIN, VALUES
from tests.data.token_maps import picky, thinned

_ZONED = datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("UTC"))
_OTHERS: list[Any] = [
    *(_ZONED, datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.UTC), datetime.time(2, 3, fold=1)),
    *(
        np.zeros((2, 3), ml_dtypes.bfloat16),
        np.datetime64("2020-01-01", "us"),
        float("nan"),
        "grüße",
        1 << 64,
    ),
]


def _back(value: Any) -> Any:
    columns, facts = unpack(pack({"x": [value], "y": np.arange(3)}, {"a": value}))
    assert (columns["y"] == np.arange(3)).all()
    assert encode({"x": facts["a"]}) == encode({"x": value})
    return columns["x"][0]


@pytest.mark.parametrize("value", [*VALUES, *_OTHERS], ids=repr)
def test_a_value_comes_back_with_its_type_and_every_bit(value: Any) -> None:
    back = _back(value)
    assert (type(back), encode({"x": back})) == (type(value), encode({"x": value}))


@given(PLAIN)
@settings(deadline=None, max_examples=50)
def test_any_plain_value_comes_back(value: Any) -> None:
    assert encode({"x": _back(value)}) == encode({"x": value})


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_side=4)))
@settings(deadline=None, max_examples=100)
def test_any_array_comes_back_and_lies_where_it_was_packed(array: "np.ndarray[Any, Any]") -> None:
    packed = pack({"x": array, "z": array.T}, {})
    columns, _ = unpack(packed)
    back = columns["x"]
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert columns["z"].tobytes() == np.ascontiguousarray(array.T).tobytes()
    assert not back.flags.writeable
    assert not back.size or np.shares_memory(back, np.frombuffer(packed, np.uint8))


def test_what_would_change_on_its_way_is_refused() -> None:
    for value in (object(), {1, 2}, np.array([object()]), datetime.UTC):
        with pytest.raises(NotPackable):
            pack({"x": [value]}, {})


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_bytes_that_are_cut_changed_or_made_up_are_refused_or_harmless(data: st.DataObject) -> None:
    packed = bytearray(pack({"x": np.arange(9), "y": ["a", 1]}, {"digest": "00"}))
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(BatchDamaged):
        unpack(bytes(packed[:cut]))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        columns, _ = unpack(bytes(packed))
    except BatchDamaged:
        return
    assert set(columns) == {"x", "y"}


def _told(batch: Batch) -> Any:
    fields = {name: batch[name] for name in batch}
    kinds = {name: getattr(values, "dtype", type(values)) for name, values in fields.items()}
    rows = [batch.origin(row) for row in range(batch.made.rows)]
    faults = getattr(batch, "faults", ())
    return batch.step, batch.digest, batch.padding, encode(fields), kinds, rows, faults, batch.size_bytes


def test_a_batch_of_records_comes_back_whole(tmp_path: Path) -> None:
    gallery = Gallery.make(tmp_path / "gallery")
    notes = ps.Source("notes@1", stages=[ps.Map(fragile)])
    faulty = gallery.recipe(notes, undecodable="mask", undecodable_max=99)
    for recipe in (gallery.mixed(), faulty):
        plan = prepare(recipe, gallery.registry)
        for step in range(3):
            batch = batch_of(plan, step, Lane())
            assert _told(receive(ship(batch), plan)) == _told(batch)


def test_a_batch_of_mapped_tokens_comes_back_whole(corpus: Corpus) -> None:
    shapes = [
        [ps.Pack(32, "fit"), ps.Map(thinned, random=True, length_max=24)],
        [ps.Pack(16), ps.Map(picky, random=True)],
    ]
    for shape in shapes:
        stages = [ps.Tokenize(str(corpus.tokenizer)), *shape]
        recipe = corpus.recipe("web@1", stages=stages, undecodable="mask", undecodable_max=999)
        plan = prepare(recipe, corpus.registry)
        batch = batch_of(plan, 2, Lane())
        assert _told(receive(ship(batch), plan)) == _told(batch)


def test_a_batch_that_rust_made_comes_back_whole(corpus: Corpus) -> None:
    plan = prepare(corpus.recipe("web@1", "code@1"), corpus.registry)
    batch = batch_of(plan, 1, Lane(1, of=2))
    packed = batch.made.to_bytes()
    assert _told(TokenBatch(FeedBatch.from_bytes(packed), plan)) == _told(batch)
    for damaged in (packed[:-1], packed[:200], b"", b"PENBATCH" * 40):
        with pytest.raises(BatchDamaged):
            FeedBatch.from_bytes(damaged)
