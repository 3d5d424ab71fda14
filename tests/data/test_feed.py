"""D1, D2: what stands at a position follows from the recipe alone, whatever lanes, threads and resumes there were.

The hard case is read throughout: filters, packing of both kinds, three sources of which one has a stage of its own and one
has three samples, weights that change twice in the middle of a period, and a batch that grows.
"""

import functools
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.feed.feed import cursor_at
from penstock.errors import FeedClosed
from tests.data.corpus import (
    Corpus,
    Delivered,
    Whole,
    assert_once,
    epochs_of,
    language,
    read_lanes,
    same,
    whole,
)

LANES = (1, 2, 3, 4, 6, 8)
THREADS = (0, 1, 3, 8)
POLICIES = ("concat", "fit")
STEPS = 16


def hard(corpus: Corpus, policy: str, **changes: Any) -> ps.Recipe:
    """The hard case; rows of 32 tokens, so that many documents are longer."""
    sources = [
        ps.Source("web@1", stages=[ps.Filter("lang == 'en'")]),
        ps.Source("code@1"),
        ps.Source("tiny@1"),
    ]
    weights = [
        (0, {"web": 0.6, "code": 0.3, "tiny": 0.1}),
        (5, {"web": 0.2, "code": 0.7, "tiny": 0.1}),
        (9, {"web": 0.5, "code": 0.5 - 1e-6, "tiny": 1e-6}),
    ]
    stages = [ps.Filter("id != 7"), *corpus.stages(32, policy)]
    fields = {"batch": [(0, 24), (4, 48), (11, 72)], "weights": weights, "stages": stages}
    return corpus.recipe(*sources, **(fields | changes))


@functools.cache
def uninterrupted(folder: str, policy: str) -> tuple[Whole, ...]:
    """One lane, no threads, no resume: what everything else must be equal to."""
    corpus = Corpus.again(folder)
    return tuple(whole([batch]) for batch in corpus.read(hard(corpus, policy), STEPS))


@pytest.mark.parametrize(("lanes", "threads", "policy"), list(itertools.product(LANES, THREADS, POLICIES)))
def test_lanes_and_threads_change_nothing(corpus: Corpus, lanes: int, threads: int, policy: str) -> None:
    """Goal: D2. Method: resume once, at a step of the case's own, and compare tokens, boundaries and digests."""
    resume = random.Random(f"{lanes} {threads} {policy}").randrange(1, STEPS - 1)
    recipe = hard(corpus, policy)
    first, cursor = read_lanes(corpus, recipe, None, lanes, threads, resume)
    second, _ = read_lanes(corpus, recipe, cursor, lanes, threads, STEPS - resume)
    assert tuple(map(whole, first + second)) == uninterrupted(str(corpus.folder), policy)


LIVES = st.lists(
    st.tuples(st.sampled_from(LANES), st.sampled_from(THREADS), st.integers(0, 5)), min_size=1, max_size=5
)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(lives=LIVES, policy=st.sampled_from(POLICIES))
def test_any_number_of_resumes_with_other_lanes_changes_nothing(
    corpus: Corpus, lives: list[tuple[int, int, int]], policy: str
) -> None:
    """Goal: elastic resume is exact. Method: any sequence of lives, each with its own lanes, threads and length."""
    recipe, cursor, read = hard(corpus, policy), None, []
    for lanes, threads, steps in lives:
        batches, cursor = read_lanes(corpus, recipe, cursor, lanes, threads, min(steps, STEPS - len(read)))
        read += map(whole, batches)
    assert tuple(read) == uninterrupted(str(corpus.folder), policy)[: len(read)]


def survivors(corpus: Corpus) -> dict[str, dict[int, list[int]]]:
    """What the filters of the hard case leave."""
    left = {name: dict(enumerate(corpus.documents[name])) for name in ("web", "code", "tiny")}
    left["web"] = {row: document for row, document in left["web"].items() if language(row) == "en"}
    return {name: {row: doc for row, doc in rows.items() if row != 7} for name, rows in left.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_fifty_resumes_lose_and_repeat_nothing(corpus: Corpus, policy: str) -> None:
    """Goal: 0 lost, 0 repeated. Method: trace every token of fifty lives back to its document, by origin."""
    draws = random.Random(5)
    recipe, cursor, delivered, steps = hard(corpus, policy), None, None, 0
    for _ in range(51):
        count, lanes, threads = draws.randint(1, 3), draws.choice([1, 1, 2, 3]), draws.choice([0, 2])
        batches, cursor = read_lanes(corpus, recipe, cursor, lanes, threads, count)
        delivered = corpus.trace([batch for step in batches for batch in step], delivered)
        steps += count
    assert delivered is not None
    expected = survivors(corpus)
    complete = {source: epochs_of(delivered, source) for source in expected}
    assert min(complete.values()) >= 3
    for source, epochs in complete.items():
        for epoch in range(epochs):
            assert_once(delivered, source, epoch, expected[source])
    assert_never_twice(delivered)


def assert_never_twice(delivered: Delivered) -> None:
    """Nothing was delivered twice in one epoch, complete or not."""
    for key, spans in delivered.items():
        spans.sort()
        assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans)), key


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_say_truly_what_they_are_made_of(corpus: Corpus, policy: str) -> None:
    """Goal: segments, positions, loss_mask and cu_seqlens are four views of one thing. Method: rebuild all from origins."""
    recipe = hard(corpus, policy)
    for lane in (ps.Lane(), ps.Lane(2, of=3)):
        for batch in corpus.read(recipe, 6, lane=lane):
            rows, length = batch["tokens"].shape
            ends, padding = [0], 0
            for row in range(rows):
                segments, positions, mask = [0] * length, [0] * length, [0] * length
                used = 0
                for number, origin in enumerate(batch.origin(row), start=1):
                    at, end = origin.row_span
                    assert at == used
                    used = end
                    segments[at:end] = [number] * (end - at)
                    positions[at:end] = range(end - at)
                    mask[at:end] = [1] * (end - at)
                    ends.append(row * length + end)
                positions[used:] = range(length - used)
                padding += length - used
                assert batch["tokens"][row, used:].tolist() == [0] * (length - used)
                ends += [(row + 1) * length] * (used < length)
                assert batch["segments"][row].tolist() == segments
                assert batch["positions"][row].tolist() == positions
                assert batch["loss_mask"][row].tolist() == mask
            assert batch["cu_seqlens"].tolist() == ends
            assert batch.padding == padding
            assert batch["cu_seqlens"].dtype == batch["segments"].dtype == "int32"
            assert set(batch) == {"tokens", "cu_seqlens", "segments", "positions", "loss_mask"}


def test_fit_cuts_only_what_is_longer_than_a_row(corpus: Corpus) -> None:
    batches = corpus.read(hard(corpus, "fit"), STEPS)
    for batch in batches:
        for row in range(len(batch["tokens"])):
            for origin in batch.origin(row):
                document = corpus.documents[origin.source][origin.sample]
                start, stop = origin.token_span
                assert (start, stop) == (0, len(document)) or len(document) > 32
                assert start % 32 == 0


def test_an_origin_leads_to_the_bytes_of_the_sample(corpus: Corpus) -> None:
    """Goal: from a token to its text. Method: read the shard's bytes, tokenise them again, compare the span."""
    import json

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(corpus.tokenizer))
    batch = ps.batch_at(hard(corpus, "concat"), step=6, registry=corpus.registry)
    sources = set()
    for row in range(-len(batch["tokens"]), 0):
        for origin in batch.origin(row):
            assert origin.byte_range is not None
            first, stop = origin.byte_range
            path = corpus.folder / origin.source / origin.shard
            sample = json.loads(path.read_bytes()[first:stop])
            assert sample["id"] == origin.sample
            assert sample == dict(corpus.registry.resolve(origin.version)[origin.sample])
            again = tokenizer.encode(sample["text"]).ids[slice(*origin.token_span)]
            assert batch["tokens"][row, slice(*origin.row_span)].tolist() == again
            assert origin.to_json()["sample"] == origin.sample
            sources.add(origin.source)
    assert sources == {"web", "code", "tiny"}


@pytest.mark.parametrize("policy", POLICIES)
def test_batch_at_is_the_batch_of_the_feed(corpus: Corpus, policy: str) -> None:
    recipe = hard(corpus, policy)
    for lane in (ps.Lane(), ps.Lane(1, of=4)):
        batches = corpus.read(recipe, STEPS, lane=lane, threads=2)
        for step in (0, 3, 4, 9, 15):
            again = ps.batch_at(recipe, step=step, lane=lane, registry=corpus.registry)
            assert same(again, batches[step])
            assert (again.step, again.padding) == (step, batches[step].padding)
            assert again.origin(0) == batches[step].origin(0)


def test_far_steps_cost_what_near_ones_do(corpus: Corpus) -> None:
    """D5, as far as a small corpus shows it: a step after 10^15 rows is read, by a feed and alone, and is the same."""
    recipe = hard(corpus, "concat")
    far = 10**13
    one = ps.batch_at(recipe, step=far, registry=corpus.registry)
    cursor = cursor_at(corpus.open(recipe).plan, far)
    (other,) = corpus.read(recipe, 1, cursor=cursor)
    assert same(one, other)
    corpus.trace([one])


def test_batches_stay_as_they_are_while_the_feed_goes_on(corpus: Corpus) -> None:
    """Buffers are reused only when nobody refers to them: kept batches are compared after many others were made."""
    recipe = hard(corpus, "concat")
    with corpus.open(recipe, threads=3) as feed:
        kept = [next(feed) for _ in range(3)]
        views = [batch["tokens"] for batch in kept]
        copies = [view.copy() for view in views]
        del kept
        for _ in range(200):
            next(feed)
    assert all((view == copy).all() for view, copy in zip(views, copies, strict=True))
    with pytest.raises(ValueError, match="read-only"):
        views[0][0, 0] = 1


def test_statistics_count_what_was_delivered(corpus: Corpus) -> None:
    with corpus.open(hard(corpus, "concat"), lane=ps.Lane(1, of=2), threads=2) as feed:
        batches = [next(feed) for _ in range(10)]
        statistics = feed.statistics()
    rows = sum(len(batch["tokens"]) for batch in batches)
    by_source = dict.fromkeys(("web", "code", "tiny"), 0)
    for batch in batches:
        for row in range(len(batch["tokens"])):
            by_source[batch.origin(row)[0].source] += 1
    real = sum(int(batch["loss_mask"].sum()) for batch in batches)
    assert (statistics.batches, statistics.rows, statistics.tokens) == (10, rows, real)
    assert statistics.rows_by_source == by_source
    assert statistics.padding_share == pytest.approx(1 - real / (rows * 32))
    assert statistics.bytes == rows * 32 * 2
    assert 0 <= statistics.wait_p50_s <= statistics.wait_p99_s
    assert statistics.to_json()["rows"] == rows


def test_a_stream_that_ends_says_so_again_and_again(corpus: Corpus) -> None:
    recipe = corpus.recipe(ps.Source("tiny@1", epochs=1), batch=1, length=32)
    for threads in (0, 2):
        with corpus.open(recipe, threads=threads) as feed:
            assert [batch.step for batch in feed] == [0, 1, 2, 3]
            for _ in range(3):
                with pytest.raises(StopIteration):
                    next(feed)
            after = feed.cursor
        with corpus.open(recipe, cursor=after, threads=threads) as feed, pytest.raises(StopIteration):
            next(feed)
    with pytest.raises(FeedClosed, match="ends before step 4"):
        ps.batch_at(recipe, step=4, registry=corpus.registry)
