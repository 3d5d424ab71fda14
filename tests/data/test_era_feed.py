"""Feeds over eras: the same batches whenever eras were measured, and nothing waits for an era that it does not need."""

import dataclasses
import itertools
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import _rust
from penstock.data import Cursor, Feed
from penstock.data.eras.cut import EraSizes
from penstock.data.eras.lookahead import begun_at, eras_ahead
from penstock.data.feed.feed import batch_of, cursor_at
from penstock.data.feed.options import ReadOptions
from penstock.data.feed.prefetch import count_steps
from penstock.data.plan.plan import Plan, prepare
from penstock.errors import CorruptShard, CursorForeign, RecipeInvalid, SourceEmpty
from tests.data.corpus import Corpus, Whole, assert_once, language, some_documents, whole
from tests.data.token_maps import noisy

#: A file is one slice here, and eras have 1, 2, 4, 4, … of them.
SIZES = EraSizes(slice_bytes=8000, first_bytes=3000, most_bytes=12_000)
FILES = 14
BATCH = 12


def fresh(folder: Path, *, files: int = FILES) -> Corpus:
    """A corpus of which nothing is measured: ``web`` of many files, ``code`` of a few with longer documents."""
    corpus = Corpus(folder)
    corpus.add("web", some_documents(300, longest=60, seed=1), shards=files)
    corpus.add("code", some_documents(60, longest=200, seed=2), shards=3)
    return corpus


def eras_recipe(corpus: Corpus, *sources: Any, **fields: Any) -> ps.Recipe:
    """A recipe that is measured era by era; ``web`` alone unless sources are given."""
    return corpus.recipe(*(sources or ("web",)), **{"batch": BATCH, "measure": "eras"} | fields)


def plan_of(corpus: Corpus, recipe: ps.Recipe, **options: Any) -> Plan:
    """The recipe with small eras."""
    return prepare(recipe, corpus.registry, sizes=SIZES, **options)


def read(
    plan: Plan, steps: int | None = None, *, threads: int = 2, cursor: Cursor | None = None
) -> list[Whole]:
    """Whole steps by one lane; all of a stream that ends."""
    with Feed(plan, ps.Lane(), cursor=cursor, options=ReadOptions(threads=threads)) as feed:
        batches = feed if steps is None else itertools.islice(feed, steps)
        return [whole([batch]) for batch in batches]


def measured_eras(plan: Plan) -> list[int]:
    """The eras of the first source that are measured and planned."""
    growing = plan.prepared[0].growing
    assert growing is not None
    return [number for number in range(len(growing.eras)) if growing.find(number) is not None]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, ps.Recipe, list[Whole]]:
    """A mixture that was read through two epochs, so that everything is measured, and what was read."""
    corpus = fresh(tmp_path_factory.mktemp("measured"))
    web = ps.Source("web", stages=[ps.Filter("lang != 'fr'")])
    recipe = eras_recipe(
        corpus, web, "code", weights=[(0, {"web": 0.6, "code": 0.4}), (20, {"web": 0.9, "code": 0.1})]
    )
    plan = plan_of(corpus, recipe)
    steps = read(plan, 110)
    assert len(measured_eras(plan)) == len(plan.prepared[0].growing.eras) > 4
    return corpus, recipe, steps


@pytest.mark.parametrize(("lanes", "threads"), list(itertools.product([1, 2, 4], [0, 1, 3])))
def test_lanes_threads_and_resumes_change_nothing(
    measured: tuple[Corpus, ps.Recipe, list[Whole]], tmp_path: Path, lanes: int, threads: int
) -> None:
    """Goal: D1 and D2 with eras. Method: the same stream, with everything measured and with nothing measured, by lanes that
    open at several steps, in and after the first epoch."""
    corpus, recipe, expected = measured
    unmeasured = fresh(tmp_path)
    for plan, first, count in (
        (plan_of(corpus, recipe), 0, 30),
        (plan_of(corpus, recipe), 95, 15),
        (plan_of(unmeasured, recipe), 7, 20),
        (plan_of(unmeasured, recipe), 60, 40),
    ):
        cursor = None if first == 0 else cursor_of(plan, first)
        feeds = [
            Feed(plan, ps.Lane(k, of=lanes), cursor=cursor, options=ReadOptions(threads=threads))
            for k in range(lanes)
        ]
        try:
            steps = [whole([next(feed) for feed in feeds]) for _ in range(count)]
        finally:
            for feed in feeds:
                feed.close()
        assert steps == expected[first : first + count], (first, lanes, threads)


def cursor_of(plan: Plan, step: int) -> Cursor:
    """A cursor as a checkpoint keeps it."""
    return Cursor.from_json(cursor_at(plan, step).to_json())


def test_the_first_batch_needs_the_first_era_and_no_more_than_two_are_measured_ahead(tmp_path: Path) -> None:
    """Goal: nobody waits for a terabyte. Method: look at what is measured when the first batch is there, and when
    the lookahead has nothing more to do."""
    corpus = fresh(tmp_path)
    plan = plan_of(corpus, eras_recipe(corpus))
    messages: list[str] = []
    delivered, third = threading.Event(), threading.Event()

    def watch(what: str, done: int, total: int) -> None:
        messages.append(what)
        if what.startswith("measuring era 2 "):
            # The second era cannot be finished before the first batch was delivered.
            assert delivered.wait(60)
        if what.startswith("measuring era 3 ") and done == total:
            third.set()

    with Feed(dataclasses.replace(plan, watch=watch), ps.Lane(), options=ReadOptions(threads=0)) as feed:
        next(feed)
        assert measured_eras(plan) == [0]
        delivered.set()
        assert third.wait(60)
        next(feed)
    assert measured_eras(plan) == [0, 1, 2]
    assert set(messages) == {f"measuring era {number} of web" for number in (1, 2, 3)}


def test_the_lookahead_counts_eras_from_the_one_that_is_read() -> None:
    assert [eras_ahead([], wanted) for wanted in (0, 1)] == [-1, -1]
    assert [eras_ahead([3, 0, 2, 2], wanted) for wanted in (0, 1, 3, 4, 5, 6, 7, 8)] == [
        3,
        3,
        3,
        1,
        1,
        0,
        0,
        -1,
    ]
    assert eras_ahead([0, 0], 0) == -1
    assert [begun_at(4, start) for start in (0, 0.3, 0.99)] == [[0, 1, 2, 3], [1, 2, 3, 0], [3, 0, 1, 2]]
    assert begun_at(0, 0.5) == []


@pytest.mark.parametrize("seed", range(4))
def test_any_corpus_is_read_whole_and_the_same_again(own: Corpus, seed: int) -> None:
    """Goal: nothing is lost at the edges of slices, eras, filters and splits. Method: random corpora, cuts and packings; read one epoch
    while it is measured; every document once; the same batches when all is measured."""
    draws = random.Random(seed)
    documents = some_documents(draws.randint(1, 150), longest=draws.choice([3, 40, 150]), seed=seed)
    documents.append([7, 7])
    own.add("docs", documents, shards=draws.randint(1, 6))
    sizes = EraSizes(
        slice_bytes=draws.randint(200, 3000), first_bytes=draws.randint(1, 3000), most_bytes=6000
    )
    split = draws.choice(["all", "train"])
    stages = [ps.Filter("id % 5 != 1")] if draws.random() < 0.5 else []
    source = ps.Source("docs", epochs=1, stages=stages, split=split, held_share=0.2)
    fields = {"policy": draws.choice(["concat", "fit"]), "shuffle": draws.choice(["full", "local", "none"])}
    recipe = eras_recipe(own, source, exhaustion="pad", batch=4, length=draws.choice([3, 16, 64]), **fields)
    plan = prepare(recipe, own.registry, sizes=sizes)
    with Feed(plan, ps.Lane(), options=ReadOptions(threads=2)) as feed:
        batches = list(feed)
    held = np.frombuffer(_rust.held_out(plan.prepared[0].version.digest, len(documents), 0.2), dtype=np.uint8)
    kept = {
        row: document
        for row, document in enumerate(documents)
        if (not stages or row % 5 != 1) and (split == "all" or not held[row])
    }
    assert_once(own.trace(batches), "docs", 0, kept)
    assert [whole([batch]) for batch in batches] == read(
        prepare(recipe, own.registry, sizes=sizes), threads=0
    )


def test_every_document_comes_once_per_epoch(tmp_path: Path) -> None:
    corpus = fresh(tmp_path)
    source = ps.Source("web", epochs=2, stages=[ps.Filter("lang == 'en'")])
    recipe = eras_recipe(corpus, source, exhaustion="pad")
    with Feed(plan_of(corpus, recipe), ps.Lane(), options=ReadOptions(threads=2)) as feed:
        delivered = corpus.trace(feed)
    kept = {row: doc for row, doc in enumerate(corpus.documents["web"]) if language(row) == "en"}
    for epoch in (0, 1):
        assert_once(delivered, "web", epoch, kept)
    assert {epoch for _, epoch, _ in delivered} == {0, 1}


@pytest.mark.parametrize("exhaustion", ["stop", "drop", "pad"])
def test_the_end_is_the_same_when_it_was_not_known(tmp_path: Path, exhaustion: str) -> None:
    """Goal: limits on epochs are exact. Method: read to the end while everything is measured, and again afterwards."""
    corpus = fresh(tmp_path)
    sources = ps.Source("web", weight=0.7, epochs=1), ps.Source("code", weight=0.3, epochs=2)
    plan = plan_of(corpus, eras_recipe(corpus, *sources, exhaustion=exhaustion, length=48))
    grown = read(plan)
    assert grown == read(plan, threads=0)
    assert len(grown) > 10
    with Feed(plan, ps.Lane()) as feed:
        assert count_steps(feed) == len(grown)
    last = grown[-1].step
    assert read(plan, cursor=cursor_of(plan, last)) == grown[-1:]
    assert read(plan, cursor=cursor_of(plan, last + 1)) == []


def test_batch_at_measures_what_it_needs(measured: tuple[Corpus, ps.Recipe, list[Whole]]) -> None:
    corpus, recipe, expected = measured
    plan = plan_of(corpus, recipe)
    for step in (0, 33, 101):
        assert whole([batch_of(plan, step, ps.Lane())]) == expected[step]


def test_skips_and_statistics_work_as_ever(measured: tuple[Corpus, ps.Recipe, list[Whole]]) -> None:
    corpus, recipe, expected = measured
    plan = plan_of(corpus, recipe, skips=ps.Skips(steps=((2, 5),), samples=()))
    with Feed(plan, ps.Lane(), options=ReadOptions(threads=1)) as feed:
        steps = [whole([next(feed)]) for _ in range(4)]
        statistics = feed.statistics()
    assert steps == [expected[step] for step in (0, 1, 5, 6)]
    assert (statistics.batches, sum(statistics.rows_by_source.values())) == (4, 4 * BATCH)


def damaged(corpus: Corpus, plan: Plan, era: int) -> None:
    """Change a letter in a file of an era."""
    growing = plan.prepared[0].growing
    assert growing is not None
    shard, _ = growing.version.shard_of(growing.eras[era].slices[0].first)
    path = corpus.folder / "web" / shard.name
    path.write_bytes(path.read_bytes().replace(b'"text": "', b'"text": "9', 1))


@pytest.mark.parametrize("threads", [0, 2])
def test_a_later_era_that_fails_is_an_error_at_the_step_that_needs_it(tmp_path: Path, threads: int) -> None:
    """Goal: damage far away stops nobody before it. Method: damage a file of era 3; steps up to the end of era 2 come."""
    whole_corpus = fresh(tmp_path / "good")
    good = plan_of(whole_corpus, eras_recipe(whole_corpus))
    expected = read(good, 60)
    packs = [era.packs for number in range(3) if (era := good.prepared[0].growing.find(number)) is not None]
    corpus = fresh(tmp_path / "bad")
    plan = plan_of(corpus, eras_recipe(corpus))
    damaged(corpus, plan, 3)
    before = sum(packs) // BATCH
    with Feed(plan, ps.Lane(), options=ReadOptions(threads=threads)) as feed:
        assert [whole([next(feed)]) for _ in range(before)] == expected[:before]
        for _ in range(2):
            with pytest.raises(CorruptShard, match="jsonl"):
                next(feed)
        assert feed.cursor.step == before


def test_eras_without_survivors_are_passed_over_and_a_source_of_none_is_an_error(tmp_path: Path) -> None:
    corpus = fresh(tmp_path)
    few = ps.Source("web", epochs=1, stages=[ps.Filter("id >= 150 and id < 160")])
    recipe = eras_recipe(corpus, few, shuffle="none", exhaustion="pad")
    with Feed(plan_of(corpus, recipe), ps.Lane(), options=ReadOptions(threads=1)) as feed:
        assert_once(
            corpus.trace(feed), "web", 0, {row: corpus.documents["web"][row] for row in range(150, 160)}
        )
    nothing = eras_recipe(corpus, ps.Source("web", stages=[ps.Filter("id < 0")]))
    with (
        Feed(plan_of(corpus, nothing), ps.Lane(), options=ReadOptions(threads=1)) as feed,
        pytest.raises(SourceEmpty, match="web"),
    ):
        next(feed)


def test_cursors_of_eras_and_of_all_are_told_apart(measured: tuple[Corpus, ps.Recipe, list[Whole]]) -> None:
    corpus, recipe, _ = measured
    plan = plan_of(corpus, recipe)
    cursor = cursor_of(plan, 5)
    assert len(cursor.to_json()) < 1024
    with pytest.raises(CursorForeign):
        Feed(prepare(dataclasses.replace(recipe, measure="all"), corpus.registry), ps.Lane(), cursor=cursor)
    # Other sizes are another order too.
    with pytest.raises(CursorForeign):
        Feed(prepare(recipe, corpus.registry), ps.Lane(), cursor=cursor)


def test_seeds_share_what_was_measured(measured: tuple[Corpus, ps.Recipe, list[Whole]]) -> None:
    corpus, recipe, expected = measured
    plan = plan_of(corpus, dataclasses.replace(recipe, seed=99))
    assert len(measured_eras(plan)) == len(plan.prepared[0].growing.eras)
    assert read(plan, 3) != expected[:3]


def test_what_cannot_be_is_refused(corpus: Corpus) -> None:
    with pytest.raises(RecipeInvalid, match="measure"):
        corpus.recipe("web", measure="never")
    stages = [ps.Tokenize(str(corpus.tokenizer)), ps.Pack([(0, 16), (10, 32)])]
    with pytest.raises(RecipeInvalid, match="eras"):
        corpus.recipe("web", measure="eras", stages=stages)
    drawn = [*corpus.stages(16), ps.Map(noisy, random=True)]
    for stages, refusal in ((drawn, "random maps"), (drawn[:1], "not packed")):
        recipe = corpus.recipe("web", measure="eras", stages=stages)
        with pytest.raises(RecipeInvalid, match=refusal):
            ps.open(recipe, registry=corpus.registry)


def test_measure_is_part_of_the_digest_only_when_it_is_eras(corpus: Corpus) -> None:
    plain, eras = corpus.recipe("web"), corpus.recipe("web", measure="eras")
    assert plain.digest == corpus.recipe("web", measure="all").digest != eras.digest
    assert "measure" not in plain.document()
