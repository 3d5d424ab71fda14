"""Rows that change their length by schedule: nothing is lost, nothing repeated, and cursors live through the edit."""

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data import Cursor
from penstock.data.plan.plan import prepare
from penstock.errors import CursorForeign, RecipeInvalid
from tests.data.corpus import (
    Corpus,
    Delivered,
    assert_once,
    epochs_of,
    language,
    read_lanes,
    same,
    some_documents,
    whole,
)

Lengths = list[tuple[int, int]]
#: From 16 to longer to shorter, the second change while the rest of the first is still being read.
LENGTHS: Lengths = [(0, 16), (5, 24), (7, 8), (30, 40)]
STEPS = 60


def changing(corpus: Corpus, lengths: Any = LENGTHS, policy: str = "concat", **changes: Any) -> ps.Recipe:
    """Three sources, one filtered, weights and batch that change too, and a length that does."""
    sources = [
        ps.Source("web@1", stages=[ps.Filter("lang == 'en'")]),
        ps.Source("code@1"),
        ps.Source("tiny@1"),
    ]
    weights = [(0, {"web": 0.5, "code": 0.5}), (6, {"web": 0.2, "code": 0.6, "tiny": 0.2})]
    stages = [ps.Tokenize(str(corpus.tokenizer)), ps.Pack(lengths, policy)]
    fields: dict[str, Any] = {"batch": [(0, 12), (6, 24)], "weights": weights, "stages": stages}
    return corpus.recipe(*changes.pop("sources", sources), **(fields | changes))


def survivors(corpus: Corpus) -> dict[str, dict[int, list[int]]]:
    """What is to be read of each source."""
    left = {name: dict(enumerate(corpus.documents[name])) for name in ("web", "code", "tiny")}
    left["web"] = {row: document for row, document in left["web"].items() if language(row) == "en"}
    return left


def assert_every_epoch_is_whole(delivered: Delivered, expected: dict[str, dict[int, list[int]]]) -> None:
    for source, documents in expected.items():
        for epoch in range(epochs_of(delivered, source)):
            assert_once(delivered, source, epoch, documents)


@pytest.mark.parametrize("policy", ["concat", "fit"])
@pytest.mark.parametrize("shuffle", ["full", "local", "none"])
def test_changes_lose_and_repeat_nothing(corpus: Corpus, policy: str, shuffle: str) -> None:
    """Goal: a schedule of lengths is exact. Method: trace every token of several epochs across three changes."""
    batches = corpus.read(changing(corpus, policy=policy, shuffle=shuffle), STEPS)
    for batch in batches:
        due = [length for step, length in LENGTHS if step <= batch.step][-1]
        assert batch["tokens"].shape[1] == due == batch["segments"].shape[1]
    delivered = corpus.trace(batches)
    assert min(epochs_of(delivered, source) for source in ("web", "code", "tiny")) >= 1
    assert_every_epoch_is_whole(delivered, survivors(corpus))


@pytest.mark.parametrize(
    ("lanes", "threads", "resume"), [(1, 3, 5), (2, 0, 6), (3, 2, 7), (4, 8, 30), (6, 1, 8)]
)
def test_lanes_threads_and_resumes_change_nothing(
    corpus: Corpus, lanes: int, threads: int, resume: int
) -> None:
    recipe = changing(corpus)
    first, cursor = read_lanes(corpus, recipe, None, lanes, threads, resume)
    second, _ = read_lanes(corpus, recipe, cursor, lanes, threads, 35 - resume)
    assert list(map(whole, first + second)) == [whole([batch]) for batch in corpus.read(recipe, 35)]
    at = ps.batch_at(recipe, step=31, registry=corpus.registry)
    assert same(at, corpus.read(recipe, 32)[31])


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    gaps=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 40)), max_size=4),
    first=st.integers(1, 40),
    policy=st.sampled_from(["concat", "fit"]),
    epochs=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    share=st.floats(0.1, 0.9),
)
def test_a_limit_on_epochs_counts_them_across_changes(
    corpus: Corpus,
    gaps: list[tuple[int, int]],
    first: int,
    policy: str,
    epochs: tuple[int, int],
    share: float,
) -> None:
    """Goal: `epochs=n` delivers every token n times, whatever the lengths. Method: any schedule and mixture, read to its end."""
    lengths, step = [(0, first)], 0
    for gap, length in gaps:
        step += gap
        lengths.append((step, length))
    limits = dict(zip(("one", "two"), epochs, strict=True))
    sources = [ps.Source("tiny@1", alias=alias, epochs=limit) for alias, limit in limits.items()]
    weights = [(0, {"one": share, "two": 1 - share})]
    stages = [ps.Tokenize(str(corpus.tokenizer)), ps.Pack(lengths, policy)]
    recipe = corpus.recipe(*sources, batch=1, weights=weights, stages=stages, exhaustion="drop")
    delivered = corpus.trace(corpus.read(recipe))
    for alias, limit in limits.items():
        assert {epoch for name, epoch, _ in delivered if name == alias} == set(range(limit))
        for epoch in range(limit):
            assert_once(delivered, alias, epoch, dict(enumerate(corpus.documents["tiny"])))


def test_sources_that_run_out_leave_at_the_same_row_as_ever(corpus: Corpus) -> None:
    """A source that is spent before a change stays spent; one that is not gets the rest of its epoch and no more."""
    sources = [ps.Source("tiny@1", epochs=1), ps.Source("code@1", epochs=2), ps.Source("web@1")]
    weights = [(0, {"tiny": 0.3, "code": 0.4, "web": 0.3})]
    recipe = changing(corpus, sources=sources, weights=weights, exhaustion="drop")
    delivered = corpus.trace(corpus.read(recipe, 2 * STEPS))
    assert {epoch for name, epoch, _ in delivered if name == "tiny"} == {0}
    assert {epoch for name, epoch, _ in delivered if name == "code"} == {0, 1}
    assert_once(delivered, "tiny", 0, dict(enumerate(corpus.documents["tiny"])))
    assert_once(delivered, "code", 1, dict(enumerate(corpus.documents["code"])))


def test_a_change_that_the_stream_never_comes_to_is_no_change(corpus: Corpus) -> None:
    sources = [ps.Source("tiny@1", epochs=1)]
    fields: dict[str, Any] = {"sources": sources, "weights": (), "batch": 2}
    plain, edited = (changing(corpus, lengths, **fields) for lengths in (16, [(0, 16), (1000, 8)]))
    one, other = corpus.read(plain), corpus.read(edited)
    assert len(one) == len(other) > 0
    assert all(map(same, one, other))


def cursor_after(corpus: Corpus, recipe: ps.Recipe, steps: int) -> Cursor:
    with corpus.open(recipe) as feed:
        for _ in range(steps):
            next(feed)
        return Cursor.from_json(feed.cursor.to_json())


@pytest.mark.parametrize("step", [0, 3, 5])
def test_the_cursor_of_one_length_goes_on_with_a_change_ahead_of_it(corpus: Corpus, step: int) -> None:
    """Goal: a run may decide for longer rows while it runs. Method: resume the edited recipe from the cursor of the plain one."""
    plain, edited = changing(corpus, 16), changing(corpus)
    cursor = cursor_after(corpus, plain, step)
    before = corpus.read(plain, step)
    after = corpus.read(edited, STEPS - step, cursor=cursor)
    assert all(map(same, before + after, corpus.read(edited, STEPS)))
    assert_every_epoch_is_whole(corpus.trace(before + after), survivors(corpus))
    assert cursor_after(corpus, edited, step) == cursor


def test_a_cursor_behind_the_edit_is_refused(corpus: Corpus) -> None:
    plain, edited = changing(corpus, 16), changing(corpus)
    for cursor, recipe in (
        (cursor_after(corpus, plain, 6), edited),
        (cursor_after(corpus, edited, 6), plain),
        (cursor_after(corpus, edited, 9), changing(corpus, [(0, 16), (5, 24), (8, 8)])),
        (cursor_after(corpus, plain, 3), changing(corpus, [(0, 24), (5, 16)])),
    ):
        with pytest.raises(CursorForeign):
            corpus.open(recipe, cursor=cursor)


def test_a_schedule_that_changes_nothing_gives_the_same_batches(corpus: Corpus) -> None:
    plain, padded = changing(corpus, 16), changing(corpus, [(0, 16), (4, 16)])
    assert all(map(same, corpus.read(plain, 10), corpus.read(padded, 10)))


def test_rests_are_built_once(own: Corpus) -> None:
    """Opening again finds every table; only another count of delivered rows needs another rest."""
    own.add("web", some_documents(60, longest=30, seed=3))
    recipe = own.recipe("web@1", stages=[ps.Tokenize(str(own.tokenizer)), ps.Pack([(0, 8), (3, 12)])])
    prepare(recipe, own.registry)
    kept = sorted((own.folder / "registry").rglob("plans/*.json"))
    again = prepare(recipe, own.registry)
    assert sorted((own.folder / "registry").rglob("plans/*.json")) == kept
    assert len(kept) == 3
    (rest,) = {phase.rest for prepared in again.prepared for phase in prepared.phases} - {None}
    assert rest is not None
    assert rest.packs > 0


def test_a_registry_that_is_not_on_this_machine_gives_the_same_rows(own: Corpus) -> None:
    """Rests are built from tables that have to be fetched."""
    own.add("web", some_documents(200, longest=40, seed=1))
    elsewhere = ps.Registry("memory://test-lengths")
    elsewhere.register("web", own.folder / "web")
    stages = [ps.Tokenize(str(own.tokenizer)), ps.Pack([(0, 16), (3, 24), (6, 8)])]
    recipe = own.recipe("web@1", stages=stages)
    with ps.open(recipe, registry=elsewhere, threads=2) as feed:
        batches = [next(feed) for _ in range(12)]
    assert all(map(same, batches, own.read(recipe, 12)))


def test_tables_are_built_inside_the_registry(own: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: D6, a killed build leaves nothing elsewhere. Method: there is no other folder to leave anything in."""
    own.add("web", some_documents(60, longest=30, seed=3))
    monkeypatch.setattr(tempfile, "tempdir", str(own.folder / "nowhere"))
    own.read(own.recipe("web@1", stages=[ps.Tokenize(str(own.tokenizer)), ps.Pack([(0, 8), (3, 12)])]), 5)
    assert list((own.folder / "registry" / "work").iterdir()) == []


def test_all_sources_change_at_the_same_step(corpus: Corpus) -> None:
    tokenize = ps.Tokenize(str(corpus.tokenizer))
    sources = [
        ps.Source("web@1", stages=[tokenize, ps.Pack([(0, 8), (5, 16)])]),
        ps.Source("code@1", stages=[tokenize, ps.Pack([(0, 8), (6, 16)])]),
    ]
    with pytest.raises(RecipeInvalid) as raised:
        corpus.open(ps.Recipe(sources=sources, batch=4))
    assert "one length" in str(raised.value)
