"""Numbers of a feed: times, shards, repeats and recurrence say what they claim."""

import math

import numpy as np
import pytest

import penstock as ps
from penstock.data.monitor.spread import uniform_shards
from penstock.data.monitor.statistics import LOOKED_EVERY, LOOKED_FIRST
from tests.data.corpus import Corpus, some_documents


def exact(sizes: list[int], count: int) -> float:
    """Shards that a uniform draw without putting back touches, by counting."""
    total = sum(sizes)
    return sum(1 - math.comb(total - size, count) / math.comb(total, count) for size in sizes)


@pytest.mark.parametrize(
    "sizes",
    [[1], [5, 5], [1, 2, 3, 40], [40] * 256, [1] * 30, [0, 7, 0]],
    ids=lambda sizes: f"{len(sizes)} of {sum(sizes)}",
)
def test_the_expectation_of_a_uniform_draw_is_right(sizes: list[int]) -> None:
    for count in {0, 1, 2, sum(sizes) // 3, sum(sizes) - 1, sum(sizes)}:
        if count <= sum(sizes):
            estimate = uniform_shards(np.array(sizes, dtype=np.float64), count)
            assert estimate == pytest.approx(exact(sizes, count), abs=2e-3)


@pytest.mark.parametrize(("shuffle", "least", "most"), [("full", 0.97, 1.03), ("none", 0.0, 0.5)])
def test_shards_of_a_batch_tell_a_good_order_from_a_bad_one(
    own: Corpus, shuffle: str, least: float, most: float
) -> None:
    own.add("web", some_documents(2000, longest=8, seed=1, empty=False), shards=40)
    recipe = own.recipe("web@1", batch=16, length=8, shuffle=shuffle)
    with own.open(recipe) as feed:
        assert (feed.statistics().shards_per_batch, feed.statistics().shards_uniform) == (0, 0)
        for _ in range(20):
            next(feed)
        statistics = feed.statistics()
    assert least <= statistics.shards_per_batch / statistics.shards_uniform <= most
    assert statistics.shards_per_batch >= 1


def test_only_some_batches_are_looked_at(corpus: Corpus) -> None:
    """Goal: statistics stay cheap. Method: the mean is that of the first batches and of every so manieth."""
    recipe = corpus.recipe("web@1", batch=2)
    with corpus.open(recipe) as feed:
        batches = [next(feed) for _ in range(LOOKED_EVERY + 2)]
        mean = feed.statistics().shards_per_batch
    looked = [*batches[:LOOKED_FIRST], batches[LOOKED_EVERY]]
    shards = [len({origin.shard for row in range(2) for origin in batch.origin(row)}) for batch in looked]
    assert mean == pytest.approx(np.mean(shards))


@pytest.mark.parametrize("lengths", [16, [(0, 16), (4, 30)]], ids=["one length", "two lengths"])
def test_epochs_count_from_the_beginning_of_the_stream(corpus: Corpus, lengths: object) -> None:
    """Goal: repeats per source, wherever the feed was opened. Method: compare with the epochs that origins name."""
    stages = [ps.Tokenize(str(corpus.tokenizer)), ps.Pack(lengths)]  # type: ignore[arg-type]
    recipe = corpus.recipe("tiny@1", "web@1", weights=[(0, {"tiny": 0.5, "web": 0.5})], stages=stages)
    with corpus.open(recipe) as feed:
        assert feed.statistics().epochs_by_source == {"tiny": 0, "web": 0}
        last = -1.0
        for _ in range(30):
            batch = next(feed)
            now = feed.statistics().epochs_by_source["tiny"]
            assert now is not None
            begun = [o.epoch for row in range(4) for o in batch.origin(row) if o.source == "tiny"]
            assert not begun or max(begun) <= now <= max(begun) + 1
            assert now >= last
            last = now
        cursor, epochs = feed.cursor, feed.statistics().epochs_by_source
    with corpus.open(recipe, cursor=cursor) as again:
        assert again.statistics().epochs_by_source == epochs


def test_times_by_stage_grow_with_the_batches(corpus: Corpus) -> None:
    with corpus.open(corpus.recipe("web@1", "code@1"), threads=2) as feed:
        for _ in range(5):
            next(feed)
        document = feed.statistics().to_json()
    assert min(document[name] for name in ("plan_s", "read_s", "digest_s")) > 0


def test_recurrence_is_found_only_when_asked_for(own: Corpus) -> None:
    """Best fit over few distinct lengths brings the same documents together; joined end to end they rarely meet again."""
    own.add("web", [[1] * length for length in range(1, 16)])
    for policy, least, most in (("fit", 0.7, 1.0), ("concat", 0.0, 0.6)):
        with own.open(own.recipe("web@1", policy=policy)) as feed:
            assert feed.statistics().pack_recurrence is None
            recurrence = feed.statistics(recurrence=True).pack_recurrence
        assert recurrence is not None
        assert least <= recurrence["web"] <= most


def test_plain_rows_have_no_neighbours_to_meet_again(own: Corpus) -> None:
    np.save(own.folder / "rows.npy", np.arange(40, dtype="u2").reshape(10, 4))
    own.registry.register("rows", own.folder / "rows.npy")
    with own.open(ps.Recipe(sources=[ps.Source("rows@1")], batch=2)) as feed:
        next(feed)
        statistics = feed.statistics(recurrence=True)
    assert statistics.pack_recurrence == {"rows": 0}
    assert statistics.epochs_by_source == {"rows": pytest.approx(0.2)}
