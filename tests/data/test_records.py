"""Records: samples that are no tokens, through the same plan. D1 and D2 hold for them as for tokens."""

import functools
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import CursorForeign, FeedClosed, RecipeInvalid, SourceEmpty
from tests.data.gallery import (
    MOVES,
    NOTES,
    PICTURES,
    Gallery,
    Whole,
    expected_row,
    picture,
    plain,
    read_lanes,
    rows_of,
    whole,
)
from tests.data.record_maps import ragged

LANES = (1, 2, 3, 4)
THREADS = (0, 1, 3)
STEPS = 10


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return Gallery.make(tmp_path_factory.mktemp("gallery"))


@functools.cache
def uninterrupted(folder: str) -> tuple[Whole, ...]:
    """One lane, no threads, no resume: what everything else must be equal to."""
    gallery = Gallery(Path(folder))
    return tuple(whole([batch]) for batch in gallery.read(gallery.mixed(), STEPS))


@pytest.mark.parametrize(("lanes", "threads"), list(itertools.product(LANES, THREADS)))
def test_lanes_and_threads_change_nothing(gallery: Gallery, lanes: int, threads: int) -> None:
    """Goal: D2. Method: resume once, at a step of the case's own, and compare values and digests."""
    resume = random.Random(f"{lanes} {threads}").randrange(1, STEPS - 1)
    first, cursor = read_lanes(gallery, gallery.mixed(), None, lanes, threads, resume)
    second, _ = read_lanes(gallery, gallery.mixed(), cursor, lanes, threads, STEPS - resume)
    assert tuple(first + second) == uninterrupted(str(gallery.folder))


LIVES = st.lists(
    st.tuples(st.sampled_from(LANES), st.sampled_from(THREADS), st.integers(0, 4)), min_size=1, max_size=4
)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(lives=LIVES)
def test_any_number_of_resumes_with_other_lanes_changes_nothing(
    gallery: Gallery, lives: list[tuple[int, int, int]]
) -> None:
    expected, cursor, read_batches = uninterrupted(str(gallery.folder)), None, []
    for lanes, threads, steps in lives:
        some, cursor = read_lanes(
            gallery, gallery.mixed(), cursor, lanes, threads, min(steps, STEPS - len(read_batches))
        )
        read_batches += some
    assert tuple(read_batches) == expected[: len(read_batches)]


def test_rows_are_what_their_origins_say(gallery: Gallery) -> None:
    """Goal: every value of every row is that of its sample. Method: compare with what was written."""
    sources: Counter[str] = Counter()
    for batch in gallery.read(gallery.mixed(), STEPS):
        for number, row in enumerate(rows_of(batch)):
            (origin,) = batch.origin(number)
            assert row == expected_row(origin.source, origin.sample)
            sources[origin.source] += 1
    assert min(sources.values()) > 5


def test_an_origin_leads_to_the_bytes_of_the_sample(gallery: Gallery) -> None:
    (batch,) = gallery.read(gallery.recipe("pictures@1"), 1)
    for row in range(12):
        (origin,) = batch.origin(row)
        assert origin.byte_range is not None
        first, stop = origin.byte_range
        stored = (gallery.folder / "pictures" / origin.shard).read_bytes()[first:stop]
        assert picture(origin.sample)["png"] in stored
        assert (origin.version, origin.epoch) == ("pictures@1", 0)
    with pytest.raises(RecipeInvalid, match="12 rows, got 12"):
        batch.origin(12)


def test_equal_shapes_are_stacked_and_the_rest_is_a_list(gallery: Gallery) -> None:
    (moves,) = gallery.read(gallery.recipe("moves@1"), 1)
    kinds = {name: (value.dtype, value.shape) for name, value in moves.items()}
    assert kinds == {
        "valid": (np.dtype("u1"), (12,)),
        "obs": (np.dtype("f4"), (12, 2, 3)),
        "action": (np.dtype("i8"), (12,)),
        "reward": (np.dtype("f4"), (12,)),
    }
    (notes,) = gallery.read(gallery.recipe("notes@1"), 1)
    arrays = {name: value.dtype for name, value in notes.items() if isinstance(value, np.ndarray)}
    assert arrays == {"valid": np.uint8, "id": np.int64, "score": np.float64, "good": np.bool_}
    assert [type(notes[name]) for name in ("words", "text")] == [list, list]
    (pictures,) = gallery.read(gallery.recipe("pictures@1"), 1)
    assert {type(value) for value in pictures["png"]} == {bytes}
    assert isinstance(pictures["json"][0], dict)
    (mapped,) = gallery.read(gallery.recipe("notes@1", stages=[ps.Map(ragged)]), 1)
    assert mapped["pair"].shape == (12, 2)
    assert [len(items) for items in mapped["items"]] == [number % 3 for number in mapped["id"]]


def test_batches_of_sources_with_other_fields_have_none_where_a_row_lacks_one(gallery: Gallery) -> None:
    batch = gallery.read(gallery.mixed(), 1)[0]
    assert isinstance(batch["obs"], list)
    for row in range(12):
        (origin,) = batch.origin(row)
        assert (batch["obs"][row] is None) == (origin.source != "moves")
        assert (batch["text"][row] is None) == (origin.source != "notes")


@pytest.mark.parametrize("shuffle", ["full", "local", "none"])
def test_every_sample_comes_once_an_epoch(gallery: Gallery, shuffle: Any) -> None:
    sources = [ps.Source("moves@1", epochs=2), ps.Source("notes@1", epochs=1, stages=[ps.Filter("id < 20")])]
    recipe = gallery.recipe(*sources, shuffle=shuffle, exhaustion="drop", batch=1)
    seen: Counter[tuple[str, int, int]] = Counter()
    orders: list[int] = []
    for batch in gallery.read(recipe):
        (origin,) = batch.origin(0)
        seen[origin.source, origin.epoch, origin.sample] += 1
        orders += [origin.sample] if origin.source == "moves" else []
    moves = {("moves", epoch, sample) for epoch in range(2) for sample in range(MOVES)}
    assert seen == Counter(moves | {("notes", 0, sample) for sample in range(20)})
    assert (orders == [*range(MOVES)] * 2) == (shuffle == "none")


def test_splits_share_no_row_and_leave_none_out(gallery: Gallery) -> None:
    def samples(split: Any) -> set[int]:
        source = ps.Source("moves@1", split=split, held_share=0.3, epochs=1)
        batches = gallery.read(gallery.recipe(source, batch=1))
        return {batch.origin(0)[0].sample for batch in batches}

    train, held = samples("train"), samples("held")
    assert not train & held
    assert train | held == set(range(MOVES))
    with pytest.raises(SourceEmpty):
        gallery.open(gallery.recipe(ps.Source("notes@1", stages=[ps.Filter("id > 999")])))


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_a_last_step_is_padded_with_rows_that_do_not_count(gallery: Gallery, lanes: int) -> None:
    """Every lane has every field of every step, even one whose rows are all padding."""
    recipe = gallery.recipe(ps.Source("moves@1", epochs=1), batch=16, exhaustion="pad")
    parts = [gallery.read(recipe, lane=ps.Lane(k, of=lanes)) for k in range(lanes)]
    assert {len(part) for part in parts} == {4}
    last = [part[-1] for part in parts]
    valid = np.concatenate([batch["valid"] for batch in last])
    assert valid.tolist() == [1] * (MOVES % 16) + [0] * (16 - MOVES % 16)
    seen = np.concatenate([batch["obs"] for batch in last])
    assert seen.shape == (16, 2, 3)
    assert not seen[MOVES % 16 :].any()
    assert last[-1].origin(-1) == []
    assert sum(batch.padding for batch in last) == 16 - MOVES % 16
    assert len(gallery.read(gallery.recipe(ps.Source("moves@1", epochs=1), batch=16))) == 3
    pictures = gallery.read(gallery.recipe(ps.Source("pictures@1", epochs=1), batch=16, exhaustion="pad"))
    assert pictures[-1]["png"][PICTURES % 16 :] == [None] * (16 - PICTURES % 16)


def test_skips_leave_steps_out_and_mask_samples(gallery: Gallery) -> None:
    recipe = gallery.recipe("moves@1")
    expected = gallery.read(recipe, 8)
    masked = expected[1].origin(4)[0].sample
    skips = ps.Skips(steps=[(2, 4)], samples=[("moves", masked)])
    batches = gallery.read(recipe, 6, skips=skips)
    assert [batch.step for batch in batches] == [0, 1, 4, 5, 6, 7]
    for batch in batches:
        samples = [batch.origin(row)[0].sample for row in range(12)]
        assert batch["valid"].tolist() == [int(sample != masked) for sample in samples]
        assert batch.digest == expected[batch.step].digest
        assert np.array_equal(batch["obs"], expected[batch.step]["obs"])
    assert batches[1]["valid"][4] == 0
    with pytest.raises(FeedClosed, match="left out"):
        ps.batch_at(recipe, step=3, registry=gallery.registry, skips=skips)


def test_batch_at_is_the_batch_of_the_feed(gallery: Gallery) -> None:
    for step in (0, 3, 9):
        batch = ps.batch_at(gallery.mixed(), step=step, registry=gallery.registry)
        assert whole([batch]) == uninterrupted(str(gallery.folder))[step]


def test_statistics_count_what_was_delivered(gallery: Gallery) -> None:
    with gallery.open(gallery.mixed(), threads=2) as feed:
        batches = [next(feed) for _ in range(6)]
        counted = feed.statistics()
        assert f"{feed.cursor.step}" in feed.cursor.to_json()
    sources = Counter(batch.origin(row)[0].source for batch in batches for row in range(batch.rows))
    assert counted.rows_by_source == sources
    assert (counted.batches, counted.rows, counted.tokens) == (6, 5 * 12 + 24, 0)
    assert counted.bytes == sum(batch.size_bytes for batch in batches) > 1000
    assert counted.padding_share == 0
    assert counted.to_json()["undecodable"] == {"count": 0, "first": ()}


def test_a_digest_changes_with_any_value(gallery: Gallery, tmp_path: Path) -> None:
    """Goal: equal digests are equal values. Method: the same rows with one bit of one array changed."""
    arrays = dict(np.load(gallery.folder / "moves.npz"))
    arrays["obs"].view(np.uint32)[0, 0, 0] ^= 1
    np.savez(tmp_path / "moves.npz", **arrays)
    registry = ps.Registry(tmp_path / "registry")
    registry.register("moves", tmp_path / "moves.npz")
    recipe = gallery.recipe("moves@1", batch=MOVES, shuffle="none")
    digests = [ps.batch_at(recipe, step=0, registry=place).digest for place in (gallery.registry, registry)]
    assert digests[0] != digests[1]


def test_a_cursor_of_other_records_is_refused(gallery: Gallery) -> None:
    with gallery.open(gallery.recipe("moves@1")) as feed:
        next(feed)
        cursor = feed.cursor
    for changed in (gallery.recipe("notes@1"), gallery.recipe("moves@1", seed=3), gallery.mixed()):
        with pytest.raises(CursorForeign):
            gallery.open(changed, cursor=cursor)


def test_tokens_and_records_do_not_share_a_batch(gallery: Gallery, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((8, 1), dtype=np.uint16))
    gallery.registry.register("rows", tmp_path / "rows.npy")
    with pytest.raises(RecipeInvalid, match="rows give tokens, but moves are read as records") as raised:
        gallery.open(gallery.recipe("rows@1", "moves@1"))
    assert raised.value.hint


def test_numbers_of_json_lines_are_floats_where_any_is(tmp_path: Path) -> None:
    """A lane that happens to get whole numbers alone has the type that every other lane has."""
    (tmp_path / "rewards.jsonl").write_text("".join(f'{{"r": {r}, "n": 1}}\n' for r in (1, 2, 0.5, 3)))
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rewards", tmp_path / "rewards.jsonl")
    recipe = ps.Recipe(sources=[ps.Source("rewards@1")], batch=4, shuffle="none")
    parts = [ps.batch_at(recipe, step=0, registry=registry, lane=ps.Lane(k, of=4)) for k in range(4)]
    assert [(part["r"].dtype, part["r"].item()) for part in parts] == [
        ("f8", 1),
        ("f8", 2),
        ("f8", 0.5),
        ("f8", 3),
    ]
    assert {part["n"].dtype for part in parts} == {np.dtype("i8")}


def test_small_sources_are_read_over_and_over(gallery: Gallery) -> None:
    recipe = gallery.recipe(ps.Source("notes@1", stages=[ps.Filter("id < 2")]), batch=7)
    batches = gallery.read(recipe, 3, threads=1)
    assert [row["id"] for batch in batches for row in rows_of(batch)].count(0) in (10, 11)
    assert batches[-1].origin(6)[0].epoch == 10
    assert plain(batches[0]["score"][0]) in (0.0, 0.25)
    assert NOTES > 2
