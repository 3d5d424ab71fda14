"""D3: a cursor is small and names what it depends on; a foreign or tampered one is refused, an edit ahead of it is not."""

import dataclasses
import json
from typing import Any

import pytest

import penstock as ps
from penstock.data import Cursor
from penstock.data.feed.cursor import BYTES_MAX
from penstock.errors import CursorForeign
from tests.data.corpus import Corpus, assert_once, epochs_of, language, same, some_documents, write_tokenizer

AT = 6


def mixed(corpus: Corpus, **changes: Any) -> ps.Recipe:
    """Two sources, one filtered, weights that change before and after the cursor's step."""
    sources = [ps.Source("web@1", stages=[ps.Filter("lang == 'en'")]), ps.Source("code@1")]
    weights = [
        (0, {"web": 0.7, "code": 0.3}),
        (4, {"web": 0.2, "code": 0.8}),
        (9, {"web": 0.5, "code": 0.5}),
    ]
    fields: dict[str, Any] = {"weights": weights, "batch": [(0, 12), (3, 24), (8, 36)]}
    return corpus.recipe(*changes.pop("sources", sources), **(fields | changes))


def cursor_of(corpus: Corpus, recipe: ps.Recipe, step: int = AT) -> Cursor:
    with corpus.open(recipe) as feed:
        for _ in range(step):
            next(feed)
        return Cursor.from_json(feed.cursor.to_json())


def test_a_cursor_is_small_and_the_same_however_it_was_reached(corpus: Corpus) -> None:
    recipe = mixed(corpus)
    texts = set()
    for threads in (0, 3):
        with corpus.open(recipe, threads=threads) as feed:
            [next(feed) for _ in range(AT)]
            texts.add(feed.cursor.to_json())
    with corpus.open(recipe, cursor=cursor_of(corpus, recipe, 2), lane=ps.Lane(1, of=3)) as feed:
        [next(feed) for _ in range(AT - 2)]
        texts.add(feed.cursor.to_json())
    (text,) = texts
    assert len(text.encode()) < BYTES_MAX == 1024
    assert Cursor.from_json(text).to_json() == Cursor.from_json(text.encode()).to_json() == text
    assert Cursor.from_json(text).step == AT
    assert Cursor.from_json(text).position == 3 * 12 + 3 * 24


def test_the_cursor_of_a_large_step_is_small_too(corpus: Corpus) -> None:
    many = {f"source{n}": 1.0 for n in range(60)}
    sources = [ps.Source("tiny@1", alias=alias) for alias in many]
    recipe = corpus.recipe(*sources, batch=1 << 20, weights=[(n, many) for n in range(50)])
    far = dataclasses.replace(cursor_of(corpus, recipe, 0), step=(1 << 41) - 1, position=(1 << 61) - 1)
    assert len(far.to_json()) < 1024


def test_every_changed_character_is_noticed(corpus: Corpus) -> None:
    text = cursor_of(corpus, mixed(corpus)).to_json()
    for place, letter in enumerate(text):
        other = "0" if letter != "0" else "1"
        with pytest.raises(CursorForeign):
            Cursor.from_json(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "5",
        '"x"',
        "{}",
        '{"form":1}',
        b"\xff\xfe",
        "x" * 2000,
        "{" * 500,
        " " * 100_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_what_is_no_cursor_is_refused(text: Any) -> None:
    with pytest.raises(CursorForeign) as raised:
        Cursor.from_json(text)
    assert raised.value.hint


def test_fields_that_were_added_or_taken_away_are_refused(corpus: Corpus) -> None:
    document = json.loads(cursor_of(corpus, mixed(corpus)).to_json())
    for name in document.keys() - {"skips"}:
        with pytest.raises(CursorForeign):
            Cursor.from_json(json.dumps({key: value for key, value in document.items() if key != name}))
    for more in (
        {"form": 2},
        {"step": 7},
        {"step": "6"},
        {"step": -1},
        {"step": True},
        {"position": 1.5},
        {"more": 1},
    ):
        with pytest.raises(CursorForeign):
            Cursor.from_json(json.dumps(document | more))


@pytest.mark.parametrize(
    "forged",
    [{"step": 5}, {"step": 7}, {"position": 0}, {"prefix": "b3:00"}, {"plan": "b3:00"}, {"skips": "b3:00"}],
    ids=lambda forged: next(iter(forged)),
)
def test_a_cursor_that_was_put_together_by_hand_is_refused(corpus: Corpus, forged: dict[str, Any]) -> None:
    """Its check is right, since anybody can compute it; what it claims is not."""
    recipe = mixed(corpus)
    with pytest.raises(CursorForeign):
        corpus.open(recipe, cursor=dataclasses.replace(cursor_of(corpus, recipe), **forged))


@pytest.mark.parametrize("number", [-1, 1 << 64, 1.5, "6", None, True])
def test_places_that_are_none_are_refused(corpus: Corpus, number: Any) -> None:
    cursor = cursor_of(corpus, mixed(corpus))
    for name in ("step", "position"):
        with pytest.raises(CursorForeign, match="whole numbers of 64 bits from 0 on, got"):
            dataclasses.replace(cursor, **{name: number})


def foreign(corpus: Corpus, what: str) -> ps.Recipe:
    web, code = mixed(corpus).sources
    before = [(0, {"web": 0.7, "code": 0.3}), (5, {"web": 0.2, "code": 0.8})]
    other = write_tokenizer(corpus.folder / "other.json", first=3)
    changes: dict[str, dict[str, Any]] = {
        "seed": {"seed": 18},
        "shuffle": {"shuffle": "local"},
        "version": {
            "sources": [ps.Source("web@1", alias="web", stages=web.stages), ps.Source("tiny@1", alias="code")]
        },
        "filter": {"sources": [ps.Source("web@1", stages=[ps.Filter("lang == 'de'")]), code]},
        "no filter": {"sources": [ps.Source("web@1"), code]},
        "tokenizer": {"stages": [ps.Tokenize(str(other)), ps.Pack(16)]},
        "length": {"length": 17},
        "policy": {"policy": "fit"},
        "batch before the position": {"batch": [(0, 12), (2, 24)]},
        "first batch": {"batch": [(0, 24)]},
        "weights before the position": {"weights": before},
        "weights of the last step before": {
            "weights": [*mixed(corpus).weights[:2], (AT - 1, {"web": 0.5, "code": 0.5})]
        },
        "batch of the last step before": {"batch": [(0, 12), (3, 24), (AT - 1, 36)]},
        "order of sources": {"sources": [code, web]},
        "limit on epochs": {"sources": [ps.Source("web@1", stages=web.stages, epochs=9), code]},
        "exhaustion": {"exhaustion": "drop"},
        "alias": {
            "sources": [ps.Source("web@1", alias="net", stages=web.stages), code],
            "weights": [(0, {"net": 0.7, "code": 0.3}), (4, {"net": 0.2, "code": 0.8})],
        },
    }
    return mixed(corpus, **changes[what])


@pytest.mark.parametrize(
    "what",
    [
        "seed",
        "shuffle",
        "version",
        "filter",
        "no filter",
        "tokenizer",
        "length",
        "policy",
        "batch before the position",
        "first batch",
        "weights before the position",
        "weights of the last step before",
        "batch of the last step before",
        "order of sources",
        "limit on epochs",
        "exhaustion",
        "alias",
    ],
)
def test_the_cursor_of_another_recipe_is_refused(corpus: Corpus, what: str) -> None:
    with pytest.raises(CursorForeign) as raised:
        corpus.open(foreign(corpus, what), cursor=cursor_of(corpus, mixed(corpus)))
    assert raised.value.cursor != raised.value.recipe
    assert raised.value.hint


def test_a_new_version_under_the_same_tag_is_another_recipe(own: Corpus) -> None:
    """What a name stood for is part of the cursor, so moving the name cannot move the data under a run."""
    own.add("web", some_documents(30, longest=20, seed=5))
    own.registry.tag("web@1", "gold")
    recipe = own.recipe("web@gold")
    cursor = cursor_of(own, recipe)
    own.add("web", some_documents(31, longest=20, seed=6))
    assert same(own.read(recipe, 1, cursor=cursor)[0], own.read(recipe, AT + 1)[AT])
    own.registry.tag("web@2", "gold")
    with pytest.raises(CursorForeign):
        own.open(recipe, cursor=cursor)


def edits(corpus: Corpus, what: str) -> ps.Recipe:
    web, code = mixed(corpus).sources
    past = [(0, {"web": 0.7, "code": 0.3}), (4, {"web": 0.2, "code": 0.8})]
    tiny = ps.Source("tiny@1")
    with_tiny = [*past, (AT, {"web": 0.4, "code": 0.4, "tiny": 0.2})]
    changes: dict[str, dict[str, Any]] = {
        "weights": {"weights": [*past, (AT, {"web": 0.9, "code": 0.1})]},
        "weights later": {"weights": [*past, (AT + 2, {"web": 0.9, "code": 0.1})]},
        "no later weights": {"weights": past},
        "batch": {"batch": [(0, 12), (3, 24), (AT, 60)]},
        "no later batch": {"batch": [(0, 12), (3, 24)]},
        "source added": {"sources": [web, code, tiny], "weights": with_tiny},
        "source added in front": {"sources": [tiny, web, code], "weights": with_tiny},
        "source dropped": {"weights": [*past, (AT, {"web": 1.0})]},
    }
    return mixed(corpus, **changes[what])


@pytest.mark.parametrize(
    "what",
    [
        "weights",
        "weights later",
        "no later weights",
        "batch",
        "no later batch",
        "source added",
        "source added in front",
        "source dropped",
    ],
)
def test_an_edit_ahead_of_the_cursor_loses_and_repeats_nothing(corpus: Corpus, what: str) -> None:
    """Goal: mixtures are edited mid-run. Method: go on with the edited recipe until every source that is left has
    finished two epochs; before, across and after the edit each document is delivered once per epoch."""
    before, after = mixed(corpus), edits(corpus, what)
    batches = corpus.read(before, AT)
    cursor = cursor_of(corpus, before)
    more = corpus.read(after, 100, cursor=cursor)
    assert [batch.step for batch in more] == list(range(AT, AT + 100))
    delivered = corpus.trace([*batches, *more])
    kept = {
        "web": {row: doc for row, doc in enumerate(corpus.documents["web"]) if language(row) == "en"},
        "code": dict(enumerate(corpus.documents["code"])),
        "tiny": dict(enumerate(corpus.documents["tiny"])),
    }
    for source in ["web", "code", "tiny"]:
        for epoch in range(epochs_of(delivered, source)):
            assert_once(delivered, source, epoch, kept[source])
    assert epochs_of(delivered, "web") >= 2
    # The edited recipe is the same stream from its beginning, too.
    assert all(same(*pair) for pair in zip(batches, corpus.read(after, AT), strict=True))
