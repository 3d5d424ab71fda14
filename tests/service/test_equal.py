"""What comes from a service is what a local feed gives, bit for bit: batches, cursors, origins, ends and statistics."""

import itertools
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.data import Batch, Cursor
from penstock.errors import CursorForeign, FeedClosed, RecipeInvalid, TooManyUndecodable, UsageError
from tests.data.corpus import Corpus, same
from tests.data.gallery import Gallery
from tests.data.record_maps import decoded, fragile, shapeless
from tests.data.token_maps import noisy
from tests.service.servers import address_of, serving

FIELDS = ("tokens", "cu_seqlens", "segments", "positions", "loss_mask")


def alike(one: Batch, other: Batch) -> bool:
    """Every field, digest and origin."""
    fields = all(np.array_equal(one[name], other[name]) for name in FIELDS)
    rows = range(0, len(one["tokens"]), 3)
    return fields and same(one, other) and all(one.origin(row) == other.origin(row) for row in rows)


@pytest.mark.parametrize("lane", [(0, 1), (2, 3), (5, 8)])
def test_batches_cursors_and_origins_are_those_of_a_local_feed(corpus: Corpus, lane: tuple[int, int]) -> None:
    """Goal: bits equal. Method: 200 steps across changes of weights, batch and length, with skips; every cursor is compared."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    skips = ps.Skips(steps=((3, 5), (29, 31)), samples=(("web", 3), ("code", 2), ("code", 7)))
    chosen = ps.Lane(lane[0], of=lane[1])
    with (
        serving(corpus.registry, recipe, skips=skips) as server,
        corpus.open(recipe, lane=chosen, skips=skips) as local,
        ps.open(address_of(server), lane=chosen) as remote,
    ):
        for step in range(200):
            one, other = next(local), next(remote)
            assert (one.step, one.digest) == (other.step, other.digest)
            assert local.cursor == remote.cursor
            assert step % 20 or alike(one, other)
        mine, theirs = local.statistics(), remote.statistics()
        names = (
            "rows",
            "tokens",
            "bytes",
            "padding_share",
            "rows_by_source",
            "epochs_by_source",
            "shards_uniform",
        )
        assert {name: getattr(mine, name) for name in names} == {
            name: getattr(theirs, name) for name in names
        }
        assert server.statistics()["batches_sent"] >= 200


def test_ramps_and_crops_are_served_as_they_are_read(corpus: Corpus) -> None:
    weights = [(0, {"web": 0.9, "code": 0.1}), (5, ps.Ramp({"code": 1.0}, until=25, shape="cosine"))]
    recipe = corpus.recipe("web@1", "code@1", batch=12, policy="crop", weights=weights)
    with (
        serving(corpus.registry, recipe) as server,
        corpus.open(recipe) as local,
        ps.open(address_of(server)) as remote,
    ):
        for step in range(35):
            one, other = next(local), next(remote)
            assert one.digest == other.digest
            assert local.cursor == remote.cursor
            assert step % 10 or alike(one, other)
        assert local.statistics().epochs_by_source == remote.statistics().epochs_by_source


def test_a_cursor_of_either_opens_the_other(corpus: Corpus) -> None:
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    with serving(corpus.registry, recipe) as server:
        with corpus.open(recipe, lane=ps.Lane(1, of=4)) as local:
            first = [next(local).digest for _ in range(35)]
            cursor = Cursor.from_json(local.cursor.to_json())
            rest = [next(local).digest for _ in range(10)]
        with ps.open(address_of(server), lane=ps.Lane(1, of=4), cursor=cursor) as remote:
            assert [next(remote).digest for _ in range(10)] == rest
        with ps.open(address_of(server), lane=ps.Lane(1, of=4)) as remote:
            assert [next(remote).digest for _ in range(35)] == first
            between = remote.cursor
        with corpus.open(recipe, lane=ps.Lane(1, of=4), cursor=between) as local:
            assert [next(local).digest for _ in range(10)] == rest
        with corpus.open(corpus.recipe("web@1")) as other:
            next(other)
            foreign = other.cursor
        with pytest.raises(CursorForeign):
            ps.open(address_of(server), cursor=foreign)


def test_the_end_is_the_end_and_stays(corpus: Corpus) -> None:
    recipe = corpus.recipe(ps.Source("web@1", epochs=1), length=64, batch=6)
    expected = [batch.digest for batch in corpus.read(recipe)]
    with serving(corpus.registry, recipe) as server, ps.open(address_of(server)) as remote:
        assert [batch.digest for batch in remote] == expected
        assert next(remote, None) is None
        assert next(remote, None) is None
        assert remote.has_step(len(expected) - 1)
        assert not remote.has_step(len(expected))


def test_a_lane_that_steps_cannot_be_dealt_to_is_refused_at_opening(corpus: Corpus) -> None:
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    with serving(corpus.registry, recipe) as server:
        with pytest.raises(RecipeInvalid, match="24 rows cannot be dealt to 5 lanes"):
            ps.open(address_of(server), lane=ps.Lane(0, of=5))
        with pytest.raises(UsageError, match="registry"):
            ps.open(address_of(server), registry=corpus.registry)
        feed = ps.open(address_of(server))
        feed.close()
        with pytest.raises(FeedClosed):
            next(feed)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """Samples that are no tokens."""
    return Gallery.make(tmp_path_factory.mktemp("gallery"))


def test_records_come_as_a_local_feed_gives_them(gallery: Gallery) -> None:
    """Goal: what Python finishes travels exactly. Method: pictures decoded by a map, all fields of two lanes."""
    recipe = ps.Recipe(sources=(ps.Source("pictures"),), batch=8, seed=3, stages=(ps.Map(decoded),))
    with serving(gallery.registry, recipe) as server:
        for lane in (ps.Lane(0, of=2), ps.Lane(1, of=2)):
            with (
                ps.open(recipe, registry=gallery.registry, lane=lane) as local,
                ps.open(address_of(server), lane=lane) as remote,
            ):
                for one, other in itertools.islice(zip(local, remote, strict=True), 12):
                    assert (one.digest, one.step, list(one)) == (other.digest, other.step, list(other))
                    assert np.array_equal(one["image"], other["image"])
                    assert one["key"] == other["key"]
                    assert one.origin(1) == other.origin(1)
                assert local.cursor == remote.cursor
                assert remote.statistics().rows == local.statistics().rows


def test_masked_samples_are_counted_by_the_client_and_too_many_are_an_error(gallery: Gallery) -> None:
    """Goal: a server keeps nothing about clients. Method: the limit on undecodable samples is met by each client on its own."""
    stages, source = (ps.Map(fragile),), (ps.Source("notes"),)
    recipe = ps.Recipe(sources=source, batch=10, stages=stages, undecodable="mask", undecodable_max=2)
    with serving(gallery.registry, recipe) as server:
        for _ in range(2):
            with ps.open(address_of(server)) as remote, pytest.raises(TooManyUndecodable) as raised:
                list(remote)
            with (
                ps.open(recipe, registry=gallery.registry) as local,
                pytest.raises(TooManyUndecodable) as own,
            ):
                list(local)
            assert (str(raised.value), vars(raised.value)) == (str(own.value), vars(own.value))


def test_an_exception_of_the_server_is_raised_with_its_class_and_fields(gallery: Gallery) -> None:
    recipe = ps.Recipe(sources=(ps.Source("notes"),), batch=10, stages=(ps.Map(shapeless),))
    with serving(gallery.registry, recipe) as server, ps.open(address_of(server)) as remote:
        with ps.open(recipe, registry=gallery.registry) as local, pytest.raises(ps.PenstockError) as own:
            next(local)
        with pytest.raises(type(own.value)) as raised:
            next(remote)
        assert vars(raised.value) | {"__notes__": 0} == vars(own.value) | {"__notes__": 0}
        assert str(raised.value) == str(own.value)
        assert any("127.0.0.1" in note for note in raised.value.__notes__)


def test_random_maps_of_tokens_come_as_a_local_feed_gives_them(corpus: Corpus) -> None:
    stages = [ps.Tokenize(str(corpus.tokenizer)), ps.Pack(16), ps.Map(noisy, random=True)]
    recipe = corpus.recipe("web@1", stages=stages, batch=6)
    with serving(corpus.registry, recipe) as server, ps.open(address_of(server)) as remote:
        for one in corpus.read(recipe, 8):
            assert alike(one, next(remote))


def test_eras_are_measured_by_the_server(tmp_path: Path) -> None:
    """Goal: sources that grow are served too. Method: nothing is measured before; compare with a local feed afterwards."""
    from tests.data.corpus import some_documents

    own = Corpus(tmp_path)
    own.add("web", some_documents(120, longest=60, seed=4), shards=2)
    recipe = own.recipe(ps.Source("web", epochs=1), measure="eras", length=32)
    with serving(own.registry, recipe) as server, ps.open(address_of(server)) as remote:
        digests = [batch.digest for batch in remote]
    assert digests == [batch.digest for batch in own.read(recipe)]
    assert len(digests) > 5


@pytest.mark.parametrize("framework", ["penstock.torch", "penstock.jax"])
def test_loaders_take_a_service(corpus: Corpus, framework: str) -> None:
    """Goal: a loader cannot tell. Method: loop, save, load, go on; compare digests with a local feed's."""
    loader = import_module(framework).loader
    recipe = corpus.recipe(ps.Source("web@1", epochs=1), length=32, batch=8)
    expected = [batch.digest for batch in corpus.read(recipe)]
    with serving(corpus.registry, recipe) as server:
        with loader(ps.open(address_of(server))) as batches:
            first = [batch.digest for batch in itertools.islice(batches, 5)]
            state = batches.state_dict()
            assert len(batches) == len(expected)
        with loader(ps.open(address_of(server))) as batches:
            batches.load_state_dict(state)
            assert first + [batch.digest for batch in batches] == expected
