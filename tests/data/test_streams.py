"""The edges of streams: orders, epochs, exhaustion, sources that are tiny, empty or wide, and rows that are not packed."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.data import Batch
from penstock.errors import RecipeInvalid, SourceEmpty
from tests.data.corpus import Corpus, assert_once, epochs_of, same, some_documents


def real_tokens(batches: list[Batch]) -> list[int]:
    """All tokens that are not padding, in the order of delivery."""
    return [int(token) for batch in batches for token in batch["tokens"][batch["loss_mask"].astype(bool)]]


def row_sources(batches: list[Batch]) -> list[str]:
    """The source of every row, in the order of delivery."""
    return [batch.origin(row)[0].source for batch in batches for row in range(len(batch["tokens"]))]


def order_of(batches: list[Batch]) -> list[tuple[int, int]]:
    """Samples and where they were cut, in the order of delivery."""
    origins = [o for batch in batches for row in range(len(batch["tokens"])) for o in batch.origin(row)]
    return [(origin.sample, origin.token_span[0]) for origin in origins]


@pytest.mark.parametrize("length", [1, 7, 16, 200])
def test_without_shuffling_documents_come_as_stored(corpus: Corpus, length: int) -> None:
    recipe = corpus.recipe(ps.Source("web@1", epochs=2), shuffle="none", length=length, batch=1)
    stored = [token for document in corpus.documents["web"] for token in document]
    assert real_tokens(corpus.read(recipe)) == stored * 2


def test_without_shuffling_fit_keeps_documents_whole_and_near(corpus: Corpus) -> None:
    recipe = corpus.recipe(ps.Source("web@1", epochs=1), shuffle="none", length=64, policy="fit", batch=1)
    delivered = corpus.trace(corpus.read(recipe))
    assert_once(delivered, "web", 0, dict(enumerate(corpus.documents["web"])))
    assert all(len(spans) == 1 for spans in delivered.values())


@pytest.mark.parametrize(("shuffle", "policy"), list(itertools.product(["full", "local"], ["concat", "fit"])))
def test_seeds_and_epochs_have_orders_of_their_own(corpus: Corpus, shuffle: Any, policy: str) -> None:
    orders = []
    for seed in (0, 1, 2, -1):
        source = ps.Source("web@1", epochs=1)
        recipe = corpus.recipe(source, seed=seed, shuffle=shuffle, policy=policy, batch=1)
        one = corpus.read(recipe)
        two = corpus.read(
            corpus.recipe("web@1", seed=seed, shuffle=shuffle, policy=policy, batch=1), 2 * len(one)
        )
        assert order_of(two[: len(one)]) == order_of(one)
        orders += [order_of(one), order_of(two[len(one) :])]
        assert [batch.origin(0)[0].epoch for batch in two] == [0] * len(one) + [1] * len(one)
    # seed + epoch would make epoch 1 of seed 0 the same as epoch 0 of seed 1.
    assert len({tuple(order) for order in orders}) == len(orders)
    stored = sorted(sample for sample, _ in orders[0])
    assert all(sorted({sample for sample, _ in order}) == sorted(set(stored)) for order in orders)


def test_two_sources_of_one_version_are_read_apart(corpus: Corpus) -> None:
    """Aliases of one version share its order, and each counts for itself."""
    sources = [ps.Source("tiny@1", alias="a", epochs=1), ps.Source("tiny@1", alias="b", epochs=2)]
    delivered = corpus.trace(corpus.read(corpus.recipe(*sources, exhaustion="drop", batch=1)))
    documents = dict(enumerate(corpus.documents["tiny"]))
    for alias, epoch in (("a", 0), ("b", 0), ("b", 1)):
        assert_once(delivered, alias, epoch, documents)
    assert {key[:2] for key in delivered} == {("a", 0), ("b", 0), ("b", 1)}


@pytest.mark.parametrize(("policy", "epochs"), list(itertools.product(["concat", "fit"], [1, 2])))
def test_a_stream_that_stops_stops_with_the_last_row_of_the_first_spent_source(
    corpus: Corpus, policy: str, epochs: int
) -> None:
    sources = [ps.Source("web@1", weight=3), ps.Source("code@1", weight=1, epochs=epochs)]
    batches = corpus.read(corpus.recipe(*sources, policy=policy, batch=1))
    delivered = corpus.trace(batches)
    for epoch in range(epochs):
        assert_once(delivered, "code", epoch, dict(enumerate(corpus.documents["code"])))
    assert not [key for key in delivered if key[0] == "code" and key[1] >= epochs]
    assert row_sources(batches)[-1] == "code"
    shares = Counter(row_sources(batches))
    assert shares["web"] == pytest.approx(3 * shares["code"], rel=0.1)


@pytest.mark.parametrize(("policy", "epochs"), list(itertools.product(["concat", "fit"], [1, 2])))
def test_a_stream_that_drops_reads_every_source_to_its_end(corpus: Corpus, policy: str, epochs: int) -> None:
    sources = [
        ps.Source("web@1", weight=5, epochs=1),
        ps.Source("code@1", weight=1, epochs=epochs),
        ps.Source("tiny@1", weight=1e-6, epochs=2),
    ]
    batches = corpus.read(corpus.recipe(*sources, policy=policy, exhaustion="drop", batch=1))
    delivered = corpus.trace(batches)
    for name, count in (("web", 1), ("code", epochs), ("tiny", 2)):
        assert {key[1] for key in delivered if key[0] == name} == set(range(count))
        for epoch in range(count):
            assert_once(delivered, name, epoch, dict(enumerate(corpus.documents[name])))


def test_what_does_not_fill_a_step_is_not_delivered_by_any_lane(corpus: Corpus) -> None:
    single = corpus.read(corpus.recipe(ps.Source("code@1", epochs=1), batch=1))
    recipe = corpus.recipe(ps.Source("code@1", epochs=1), batch=12)
    for lanes in (1, 2, 3, 4):
        counts = [len(corpus.read(recipe, lane=ps.Lane(k, of=lanes))) for k in range(lanes)]
        assert counts == [len(single) // 12] * lanes
    assert len(single) % 12


def test_weights_that_change_at_the_moment_of_exhaustion(corpus: Corpus) -> None:
    """The source is spent at the very step at which the weights take it away: nothing is lost, nothing stops."""
    alone = len(corpus.read(corpus.recipe(ps.Source("tiny@1", epochs=1), batch=1)))
    sources = [ps.Source("tiny@1", epochs=1), ps.Source("code@1", epochs=1)]
    weights = [(0, {"tiny": 1.0}), (alone, {"code": 1.0})]
    batches = corpus.read(corpus.recipe(*sources, weights=weights, batch=1))
    delivered = corpus.trace(batches)
    for name in ("tiny", "code"):
        assert_once(delivered, name, 0, dict(enumerate(corpus.documents[name])))
    assert row_sources(batches) == ["tiny"] * alone + ["code"] * (len(batches) - alone)


def test_a_tiny_weight_has_its_share_and_not_more(tmp_path: Path) -> None:
    """Goal: no positive weight vanishes. Method: two million rows of one token, weights 1 and 1e-6."""
    registry = ps.Registry(tmp_path / "registry")
    for name in ("large", "small"):
        np.save(tmp_path / f"{name}.npy", np.arange(1000, dtype=np.uint16).reshape(1000, 1))
        registry.register(name, tmp_path / f"{name}.npy")
    sources = [ps.Source("large@1", weight=1), ps.Source("small@1", weight=1e-6)]
    recipe = ps.Recipe(sources=sources, batch=500_000)
    with ps.open(recipe, registry=registry, threads=2) as feed:
        shares = []
        for _ in range(4):
            next(feed)
            shares.append(feed.statistics().rows_by_source["small"])
    assert shares[-1] in (2, 3)
    assert all(abs(count - 0.5 * (step + 1)) <= 1 for step, count in enumerate(shares))


def test_a_source_of_three_samples_is_read_over_and_over(corpus: Corpus) -> None:
    batches = corpus.read(corpus.recipe("tiny@1", batch=64, length=32), 10)
    delivered = corpus.trace(batches)
    assert epochs_of(delivered, "tiny") > 100
    for epoch in range(epochs_of(delivered, "tiny")):
        assert_once(delivered, "tiny", epoch, dict(enumerate(corpus.documents["tiny"])))


@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_a_single_short_document_fills_a_batch_of_any_size(own: Corpus, policy: str) -> None:
    own.add("one", [[5, 6, 7]])
    for batch in own.read(own.recipe("one@1", length=8, batch=5, policy=policy), 3):
        assert batch["tokens"].tolist() == [[5, 6, 7, 0, 0, 0, 0, 0]] * 5
        assert batch.padding == 25
    (batch,) = own.read(own.recipe("one@1", length=1, batch=1, policy=policy), 1)
    assert batch["tokens"].shape == (1, 1)
    assert batch["cu_seqlens"].tolist() == [0, 1]


@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_documents_of_exactly_a_row_are_neither_cut_nor_padded(own: Corpus, policy: str) -> None:
    own.add("exact", [[n] * 8 for n in range(40)])
    batches = own.read(own.recipe(ps.Source("exact@1", epochs=1), length=8, batch=1, policy=policy))
    assert len(batches) == 40
    assert sum(batch.padding for batch in batches) == 0
    assert sorted(int(batch["tokens"][0, 0]) for batch in batches) == list(range(40))


@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_documents_many_times_longer_than_a_row(own: Corpus, policy: str) -> None:
    own.add("long", some_documents(5, longest=999, seed=4, empty=False))
    delivered = own.trace(
        own.read(own.recipe(ps.Source("long@1", epochs=1), length=3, batch=1, policy=policy))
    )
    assert_once(delivered, "long", 0, dict(enumerate(own.documents["long"])))


def test_a_source_of_which_nothing_is_left_is_an_error_at_open(own: Corpus) -> None:
    own.add("web", some_documents(20, longest=9))
    own.add("blank", [[], [], []])
    for expression in ("id > 100", "lang == 'xx'", "False"):
        source = ps.Source("web@1", stages=[ps.Filter(expression)])
        with pytest.raises(SourceEmpty) as raised:
            own.open(own.recipe(source))
        assert raised.value.rows == 20
        assert raised.value.hint
    with pytest.raises(SourceEmpty):
        own.open(own.recipe("blank@1"))
    # Rows are left, but none of them has a token.
    half = own.add("half", [[], [], [1, 2]])
    with pytest.raises(SourceEmpty):
        own.open(own.recipe(ps.Source(half, stages=[ps.Filter("id < 2")])))
    # One empty source is an error even where others would do.
    with pytest.raises(SourceEmpty):
        own.open(own.recipe("web@1", "blank@1"))


def test_filters_one_after_the_other_are_filters_joined(corpus: Corpus) -> None:
    apart = [ps.Filter("id > 20"), ps.Filter("lang == 'en'")]
    joined = [ps.Filter("id > 20 and lang == 'en'")]
    one, other = (
        corpus.read(corpus.recipe(ps.Source("web@1", stages=stages), batch=8), 20)
        for stages in (apart, joined)
    )
    assert all(same(*pair) for pair in zip(one, other, strict=True))


def arrays(tmp_path: Path, name: str, *parts: np.ndarray[Any, Any]) -> ps.Registry:
    (tmp_path / name).mkdir()
    for number, part in enumerate(parts):
        np.save(tmp_path / name / f"{number}.npy", part)
    registry = ps.Registry(tmp_path / "registry")
    registry.register(name, tmp_path / name)
    return registry


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i2", "i4", "i8"])
def test_rows_of_arrays_come_in_their_stored_type(tmp_path: Path, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, 0, 1, 100, info.max, info.max - 1], dtype=dtype)
    rows = values[np.arange(30 * 8).reshape(30, 8) % 6]
    registry = arrays(tmp_path, "rows", rows[:10], rows[10:])
    recipe = ps.Recipe(sources=[ps.Source("rows@1", epochs=1)], batch=6, shuffle="none")
    with ps.open(recipe, registry=registry) as feed:
        batches = list(feed)
    tokens = np.concatenate([batch["tokens"] for batch in batches])
    assert tokens.dtype == np.dtype(dtype)
    assert np.array_equal(tokens, rows)
    assert batches[0]["cu_seqlens"].tolist() == list(range(0, 49, 8))
    assert batches[2].origin(1)[0].shard == "1.npy"
    assert batches[2].origin(1)[0].sample == 13


@pytest.mark.parametrize("shuffle", ["full", "local"])
def test_shuffled_rows_of_arrays_are_each_read_once_an_epoch(tmp_path: Path, shuffle: Any) -> None:
    registry = arrays(tmp_path, "rows", np.arange(600, dtype="u2").reshape(150, 4))
    recipe = ps.Recipe(sources=[ps.Source("rows@1", epochs=2)], batch=10, shuffle=shuffle)
    with ps.open(recipe, registry=registry) as feed:
        firsts = np.concatenate([batch["tokens"][:, 0] for batch in feed])
    assert sorted(firsts[:150]) == sorted(firsts[150:]) == list(range(0, 600, 4))
    assert firsts[:150].tolist() != firsts[150:].tolist()


def test_narrow_and_wide_sources_share_a_batch(own: Corpus) -> None:
    """Tokens of two bytes beside tokens of four: the batch has four, and numbers stay what they are."""
    own.add("web", some_documents(30, longest=40, seed=9, empty=False))
    wide = np.arange(100_000, 100_000 + 80, dtype="u4").reshape(10, 8)
    np.save(own.folder / "wide.npy", wide)
    own.registry.register("wide", own.folder / "wide.npy")
    sources = [ps.Source("web@1", stages=own.stages(8)), ps.Source("wide@1", stages=[ps.Pack(8)])]
    batches = own.read(own.recipe(*sources, stages=[], batch=6), 20)
    own.documents["wide"] = wide.tolist()
    own.trace(batches)
    assert {batch["tokens"].dtype for batch in batches} == {np.dtype("u4")}
    assert set(row_sources(batches)) == {"web", "wide"}


def test_types_that_cannot_be_joined_are_refused(tmp_path: Path) -> None:
    """Rows of two types have equally many bytes here, so reading them as one would give wrong tokens."""
    registry = arrays(tmp_path, "mixed", np.zeros((5, 8), "u2"), np.zeros((5, 4), "u4"))
    for stages in ([], [ps.Pack(8)]):
        with pytest.raises(RecipeInvalid, match="uint16 and uint32"):
            ps.open(ps.Recipe(sources=[ps.Source("mixed@1")], batch=1, stages=stages), registry=registry)
    arrays(tmp_path, "signed", np.zeros((5, 8), "i2"))
    arrays(tmp_path, "wide", np.zeros((5, 8), "u4"))
    with pytest.raises(RecipeInvalid, match="int16, which cannot be joined"):
        ps.open(ps.Recipe(sources=[ps.Source("signed@1"), ps.Source("wide@1")], batch=1), registry=registry)
    arrays(tmp_path, "real", np.zeros((5, 8), "f4"))
    with pytest.raises(RecipeInvalid, match="whole numbers"):
        ps.open(ps.Recipe(sources=[ps.Source("real@1")], batch=1), registry=registry)


@pytest.mark.parametrize("shuffle", ["full", "local", "none"])
def test_sources_of_several_blocks_are_read_once_an_epoch(own: Corpus, shuffle: Any) -> None:
    """Blocks have 4,096 documents or more; here there are two of them, each with a padded end."""
    own.add("many", some_documents(9_000, longest=7, seed=8), shards=3)
    recipe = own.recipe(ps.Source("many@1", epochs=1), shuffle=shuffle, batch=1, length=16)
    delivered = own.trace(own.read(recipe, threads=2))
    assert_once(delivered, "many", 0, dict(enumerate(own.documents["many"])))
