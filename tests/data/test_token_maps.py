"""Random maps on tokens: a pure function of position, of whole samples, with lengths that were planned."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.data.maps.rows import generator
from penstock.errors import RecipeInvalid, SampleUndecodable, TooManyUndecodable
from tests.data.corpus import Corpus, read_lanes, same, whole
from tests.data.test_measured import write_chats
from tests.data.token_maps import beheaded, halves, huge, noisy, picky, rolled, thinned
from tests.data.token_maps import same as unchanged
from tests.registry.chats import CHATML, write_bytes_tokenizer

SEED = 17


def drawn(
    corpus: Corpus, *maps: ps.Map, shape: Any, sources: Any = ("web@1", "code@1"), **fields: Any
) -> ps.Recipe:
    """A recipe whose tokens go through random maps last of all."""
    stages = [ps.Tokenize(str(corpus.tokenizer)), *shape, *maps]
    return corpus.recipe(*sources, stages=stages, **fields)


def expected_tokens(
    corpus: Corpus, origin: Any, maps: list[tuple[int, Any]], document: list[int]
) -> list[int]:
    """What the maps make of a whole document, said in plain numpy."""
    version = corpus.registry.resolve(origin.version).digest
    tokens: Any = np.array(document, dtype=np.uint16)
    for place, function in maps:
        tokens = np.asarray(function(tokens, generator(SEED, version, origin.epoch, origin.sample, place)))
    return [int(token) for token in tokens]


@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_a_map_that_changes_nothing_changes_no_digest(corpus: Corpus, policy: Any) -> None:
    pack = [ps.Pack(16, policy)]
    plain = corpus.read(drawn(corpus, shape=pack), 6)
    mapped = corpus.read(drawn(corpus, ps.Map(unchanged, random=True), shape=pack), 6)
    assert all(same(*pair) for pair in zip(plain, mapped, strict=True))
    assert all(np.array_equal(a["loss_mask"], b["loss_mask"]) for a, b in zip(plain, mapped, strict=True))


@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_rows_hold_parts_of_whole_mapped_samples(corpus: Corpus, policy: Any) -> None:
    """Goal: a map sees whole samples, also where a row has a part. Method: documents far longer than rows, compared one by one."""
    maps = [ps.Map(rolled, random=True), ps.Map(noisy, random=True)]
    cut = 0
    for batch in corpus.read(drawn(corpus, *maps, shape=[ps.Pack(16, policy)], batch=12), 8):
        for row in range(12):
            for origin in batch.origin(row):
                document = corpus.documents[origin.source][origin.sample]
                mapped = expected_tokens(corpus, origin, [(2, rolled), (3, noisy)], document)
                (start, stop), (at, end) = origin.token_span, origin.row_span
                assert batch["tokens"][row, at:end].tolist() == mapped[start:stop]
                cut += stop - start < len(document)
    assert cut > 20


def test_lanes_threads_and_resumes_change_nothing(corpus: Corpus) -> None:
    recipe = drawn(
        corpus,
        ps.Map(noisy, random=True),
        shape=[ps.Pack(32, "fit")],
        batch=[(0, 12), (4, 24)],
        weights=[(0, {"web": 0.7, "code": 0.3}), (3, {"web": 0.2, "code": 0.8})],
    )
    expected = [whole([batch]) for batch in corpus.read(recipe, 8)]
    for lanes, threads in itertools.product((1, 2, 4), (0, 1, 3)):
        first, cursor = read_lanes(corpus, recipe, None, lanes, threads, 3)
        second, _ = read_lanes(corpus, recipe, cursor, 3, 1, 5)
        assert [whole(batches) for batches in first + second] == expected
    assert whole([ps.batch_at(recipe, step=6, registry=corpus.registry)]) == expected[6]


def test_lengths_that_change_by_schedule_change_no_sample(corpus: Corpus) -> None:
    """Goal: maps know nothing of rows. Method: rows grow twice; parts of samples are compared, and with a declared length too."""
    grown = [ps.Pack([(0, 16), (3, 32), (5, 8)], "fit")]
    plain = corpus.read(drawn(corpus, shape=grown, batch=12), 8)
    mapped = corpus.read(drawn(corpus, ps.Map(unchanged, random=True), shape=grown, batch=12), 8, threads=2)
    assert all(same(*pair) for pair in zip(plain, mapped, strict=True))
    assert {batch["tokens"].shape[1] for batch in mapped} == {16, 32, 8}
    for batch in corpus.read(
        drawn(corpus, ps.Map(thinned, random=True, length_max=24), shape=grown, batch=12), 8
    ):
        for row in range(12):
            for origin in batch.origin(row):
                mapped_tokens = expected_tokens(
                    corpus, origin, [(2, thinned)], corpus.documents[origin.source][origin.sample]
                )
                (start, stop), (at, end) = origin.token_span, origin.row_span
                part = mapped_tokens[start:stop]
                assert batch["tokens"][row, at:end].tolist() == part + [0] * (end - at - len(part))


def test_what_counts_of_chats_stays_where_it_is(own: Corpus, tmp_path: Path) -> None:
    """A map keeps lengths, so the mask of the loss stays; a map that changes them would undo it and is refused."""
    write_chats(tmp_path / "chats")
    own.registry.register("chats", tmp_path / "chats")
    tokenizer = write_bytes_tokenizer(tmp_path / "bytes.json")
    stages = [ps.Chat(str(tokenizer), CHATML), ps.Pack(64, "fit")]
    recipes = [
        ps.Recipe(sources=[ps.Source("chats@1")], batch=4, seed=SEED, stages=[*stages, *maps])
        for maps in ([], [ps.Map(unchanged, random=True)], [ps.Map(noisy, random=True)])
    ]
    plain, mapped, changed = ([*own.read(recipe, 4)] for recipe in recipes)
    for one, other, third in zip(plain, mapped, changed, strict=True):
        assert same(one, other)
        assert np.array_equal(one["loss_mask"], other["loss_mask"])
        assert np.array_equal(one["loss_mask"], third["loss_mask"])
        assert not np.array_equal(one["tokens"], third["tokens"])
    assert 0 < plain[0]["loss_mask"].mean() < 1
    declared = [*stages, ps.Map(thinned, random=True, length_max=24)]
    with pytest.raises(RecipeInvalid, match="count in the loss"):
        own.open(ps.Recipe(sources=[ps.Source("chats@1")], batch=4, stages=declared))


def test_epochs_draw_apart_and_a_source_without_maps_is_left_alone(corpus: Corpus) -> None:
    stages = [ps.Tokenize(str(corpus.tokenizer)), ps.Pack(8)]
    tiny = ps.Source("tiny@1", stages=[*stages, ps.Map(rolled, random=True)])
    recipe = corpus.recipe(tiny, ps.Source("code@1", stages=stages), stages=[], batch=32)
    seen = set()
    for batch in corpus.read(recipe, 10):
        for row in range(32):
            for origin in batch.origin(row):
                (start, stop), (at, end) = origin.token_span, origin.row_span
                tokens = batch["tokens"][row, at:end].tolist()
                if origin.source == "code":
                    assert tokens == corpus.documents["code"][origin.sample][start:stop]
                elif origin.sample == 2 and start == 0:
                    seen.add(tuple(tokens))
    assert len(seen) > 3


@pytest.mark.parametrize("keep", ["start", "end"])
def test_maps_see_samples_as_they_are_after_truncation(corpus: Corpus, keep: Any) -> None:
    recipe = drawn(corpus, ps.Map(rolled, random=True), shape=[ps.Truncate(10, keep), ps.Pack(8)], batch=16)
    for batch in corpus.read(recipe, 5):
        for row in range(16):
            for origin in batch.origin(row):
                document = corpus.documents[origin.source][origin.sample]
                first = max(0, len(document) - 10) if keep == "end" else 0
                mapped = expected_tokens(corpus, origin, [(3, rolled)], document[first : first + 10])
                (start, stop), (at, end) = origin.token_span, origin.row_span
                assert batch["tokens"][row, at:end].tolist() == mapped[start - first : stop - first]


@pytest.mark.parametrize("shape", [[ps.Pack(24, "fit", pad=7)], [ps.Pack(10, pad=7)], [ps.Pad(30, 7)]])
def test_a_declared_length_is_planned_and_what_is_left_is_padding(corpus: Corpus, shape: Any) -> None:
    """Goal: lengths may change within what was planned. Method: samples become at most 24 tokens; every one is compared."""
    recipe = drawn(corpus, ps.Map(thinned, random=True, length_max=24), shape=shape, batch=8)
    shorter = 0
    for batch in corpus.read(recipe, 6, threads=2):
        tokens, loss = batch["tokens"], batch["loss_mask"]
        for row in range(8):
            covered = np.zeros(tokens.shape[1], dtype=bool)
            for origin in batch.origin(row):
                document = corpus.documents[origin.source][origin.sample]
                mapped = expected_tokens(corpus, origin, [(2, thinned)], document)
                (start, stop), (at, end) = origin.token_span, origin.row_span
                part = mapped[start:stop]
                assert tokens[row, at:end].tolist() == part + [7] * (end - at - len(part))
                assert loss[row, at:end].tolist() == [1] * len(part) + [0] * (end - at - len(part))
                covered[at : at + len(part)] = True
                shorter += len(part) < end - at
            assert np.array_equal(batch["segments"][row] > 0, covered)
        assert batch.padding == (loss == 0).sum()
    assert shorter > 10


def test_a_declared_length_gives_the_same_batches_on_every_lane(corpus: Corpus) -> None:
    recipe = drawn(corpus, ps.Map(thinned, random=True, length_max=24), shape=[ps.Pack(32)], batch=12)
    expected = [batch.digest for batch in corpus.read(recipe, 5)]
    for lanes, threads in ((2, 1), (3, 2)):
        parts, _ = read_lanes(corpus, recipe, None, lanes, threads, 5)
        assert [whole(batches).digest for batches in parts] == expected


@pytest.mark.parametrize(
    ("function", "length_max", "reason"),
    [
        (beheaded, None, r"it gave \d+ tokens for \d+; say length_max="),
        (unchanged, 5, r"it gave \d+ tokens, but length_max is 5"),
        (huge, None, "but a token is 0 to 65535"),
        (halves, None, "float"),
        (picky, None, "KeyError"),
    ],
)
@pytest.mark.parametrize("threads", [0, 2])
def test_a_map_that_breaks_its_word_is_an_error_that_names_the_sample(
    corpus: Corpus, function: Any, length_max: int | None, reason: str, threads: int
) -> None:
    recipe = drawn(
        corpus, ps.Map(function, random=True, length_max=length_max), shape=[ps.Pack(16)], batch=64
    )
    with corpus.open(recipe, threads=threads) as feed:
        for _ in range(2):
            with pytest.raises(SampleUndecodable, match=reason) as raised:
                next(feed)
        assert feed.cursor.step == 0
    assert raised.value.version in ("web@1", "code@1")
    assert raised.value.shard.endswith(".jsonl")


@pytest.mark.parametrize("threads", [0, 2])
def test_masked_samples_keep_their_tokens_and_count_in_no_loss(corpus: Corpus, threads: int) -> None:
    fields: dict[str, Any] = {"undecodable": "mask", "batch": 16}
    recipe = drawn(corpus, ps.Map(picky, random=True), shape=[ps.Pack(16)], **fields)
    plain = corpus.read(drawn(corpus, shape=[ps.Pack(16)], batch=16), 6)
    masked = 0
    with corpus.open(recipe, threads=threads) as feed:
        for expected, batch in zip(plain, feed, strict=False):
            assert np.array_equal(batch["tokens"], expected["tokens"])
            for row in range(16):
                for origin in batch.origin(row):
                    bad = corpus.documents[origin.source][origin.sample][0] % 10 == 3
                    at, end = origin.row_span
                    assert (batch["loss_mask"][row, at:end] == (not bad)).all()
                    masked += bad
        undecodable = feed.statistics().undecodable
    assert undecodable.count == masked > 5
    assert undecodable.first[0].reason.startswith("map tests.data.token_maps:picky: KeyError")
    with pytest.raises(TooManyUndecodable):
        corpus.read(
            drawn(corpus, ps.Map(picky, random=True), shape=[ps.Pack(16)], undecodable_max=3, **fields), 6
        )


def test_lengths_that_cannot_be_planned_are_refused(corpus: Corpus) -> None:
    with pytest.raises(RecipeInvalid, match="more than 16 tokens"):
        corpus.open(drawn(corpus, ps.Map(thinned, random=True, length_max=24), shape=[ps.Pad(16)]))


def test_statistics_count_mapped_tokens(corpus: Corpus) -> None:
    recipe = drawn(corpus, ps.Map(thinned, random=True, length_max=24), shape=[ps.Pack(32)], batch=8)
    with corpus.open(recipe, threads=1) as feed:
        batches = [next(feed) for _ in range(4)]
        statistics = feed.statistics()
    assert statistics.tokens == sum(int(batch["loss_mask"].sum()) for batch in batches)
    assert statistics.tokens == 4 * 8 * 32 - sum(batch.padding for batch in batches)
