"""Weights by formula: every step has the shares of its place on the ramp, nothing is lost, and cursors live through edits."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.data import Batch, Cursor
from penstock.data.recipe.document import written
from penstock.errors import CursorForeign, RecipeInvalid
from tests.data.corpus import Corpus, assert_once, epochs_of, read_lanes, same, whole

SHAPES: dict[str, dict[str, Any]] = {
    "linear": {"shape": "linear"},
    "cosine": {"shape": "cosine"},
    "steps": {"shape": "steps", "every": 5},
}
START = {"web": 0.9, "code": 0.1}
END = {"web": 0.1, "code": 0.9}


def ramped(corpus: Corpus, shape: str = "linear", *later: Any, **fields: Any) -> ps.Recipe:
    """Fixed weights, a ramp from step 10 to step 50, and what comes later."""
    weights = [(0, START), (10, ps.Ramp(END, until=50, **SHAPES[shape])), *later]
    return corpus.recipe("web@1", "code@1", **({"batch": 20, "weights": weights} | fields))


def by_source(batch: Batch) -> Counter[str]:
    return Counter(batch.origin(row)[0].source for row in range(20))


def share(shape: str, step: int) -> float:
    """The share of code at a step, the slow way."""
    import math

    x = min(max((step - 10) / 40, 0), 1)
    part = {
        "linear": x,
        "cosine": (1 - math.cos(math.pi * x)) / 2,
        "steps": x if x == 1 else (step - 10) // 5 * 5 / 40,
    }
    return 0.1 + 0.8 * max(part[shape], 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_step_has_the_shares_of_its_place_on_the_ramp(corpus: Corpus, shape: str) -> None:
    recipe = ramped(corpus, shape)
    batches = corpus.read(recipe, 70)
    drawn = 0.0
    for batch in batches[10:50]:
        code = by_source(batch)["code"]
        drawn += code - 20 * share(shape, batch.step)
        # The shares of a step go from its first row to its last.
        assert abs(code - 20 * share(shape, batch.step)) < 3.5, (batch.step, code)
        assert abs(recipe.weights_at(batch.step)["code"] - share(shape, batch.step)) < 1e-4
    assert abs(drawn) < 12
    assert recipe.weights_at(9) == pytest.approx(START)
    assert recipe.weights_at(50) == recipe.weights_at(10**9) == pytest.approx(END)


@pytest.mark.parametrize("shape", SHAPES)
def test_ramps_lose_and_repeat_nothing_and_resume_anywhere(corpus: Corpus, shape: str) -> None:
    """Goal: D1, D2 and no sample lost through ramps, one of them broken off. Method: trace every token of every epoch that
    ended; read again from cursors inside the ramps with other numbers of lanes and threads."""
    back = ps.Ramp({"web": 1.0, "code": 0.2}, until=80, shape="cosine")
    recipe = ramped(corpus, shape, (35, back), batch=[(0, 12), (30, 24)])
    batches = corpus.read(recipe, 220)
    delivered = corpus.trace(batches)
    for source in ("web", "code"):
        documents = dict(enumerate(corpus.documents[source]))
        assert epochs_of(delivered, source) > 0
        for epoch in range(epochs_of(delivered, source)):
            assert_once(delivered, source, epoch, documents)
    cursor = None
    at = 0
    for lanes, threads, steps in ((3, 0, 11), (2, 1, 9), (4, 0, 17), (1, 2, 5)):
        read_steps, cursor = read_lanes(corpus, recipe, cursor, lanes, threads, steps)
        for of_step in read_steps:
            assert whole(of_step) == whole([batches[at]])
            at += 1


def test_opening_anywhere_is_reading_on(corpus: Corpus) -> None:
    recipe = ramped(corpus, "cosine")
    batches = corpus.read(recipe, 60)
    for step in (0, 10, 11, 29, 49, 50, 59):
        assert same(ps.batch_at(recipe, step=step, registry=corpus.registry), batches[step])


def test_a_cursor_inside_a_ramp_names_the_ramp(corpus: Corpus) -> None:
    """Goal: a recipe that is equal up to a step accepts its cursors, and no other does."""
    recipe = ramped(corpus)
    with corpus.open(recipe) as feed:
        cursors = [(feed.cursor, next(feed)) for _ in range(40)]
    at = {cursor.step: (cursor, batch) for cursor, batch in cursors}
    frozen = ramped(corpus, "linear", (30, {"web": 1.0}))
    other_end = corpus.recipe(
        "web@1", "code@1", batch=20, weights=[(0, START), (10, ps.Ramp({"web": 1.0}, until=50))]
    )
    longer = corpus.recipe("web@1", "code@1", batch=20, weights=[(0, START), (10, ps.Ramp(END, until=51))])
    for step in (5, 10):
        for edited in (frozen, other_end, longer):
            with corpus.open(edited, cursor=at[step][0]) as feed:
                first = next(feed)
                assert same(first, at[step][1]) or step == 10
    for step in (11, 20, 30):
        with corpus.open(frozen, cursor=at[step][0]) as feed:
            assert same(next(feed), at[step][1]) or step == 30
        for edited in (other_end, longer, ramped(corpus, "cosine")):
            with pytest.raises(CursorForeign):
                corpus.open(edited, cursor=at[step][0])
    with pytest.raises(CursorForeign):
        corpus.open(frozen, cursor=at[31][0])


def test_a_ramp_may_begin_with_the_sources_own_weights(corpus: Corpus) -> None:
    sources = [ps.Source("web@1", weight=3.0), ps.Source("code@1", weight=1.0)]
    recipe = corpus.recipe(*sources, batch=20, weights=[(0, ps.Ramp({"code": 1.0}, until=40))])
    assert recipe.weights_at(0) == {"web": 0.75, "code": 0.25}
    assert recipe.weights_at(20) == pytest.approx({"web": 0.375, "code": 0.625})
    lighter = corpus.recipe("web@1", "code@1", batch=20, weights=recipe.weights)
    assert lighter.digest != recipe.digest
    assert by_source(corpus.read(recipe, 41)[40]) == {"code": 20}


def test_a_spent_source_leaves_a_ramp(corpus: Corpus) -> None:
    sources = [ps.Source("web@1", epochs=1), ps.Source("code@1")]
    weights = [(0, ps.Ramp({"web": 1.0}, until=500))]
    recipe = corpus.recipe(*sources, batch=4, exhaustion="drop", weights=weights)
    delivered = corpus.trace(corpus.read(recipe, 400))
    assert_once(delivered, "web", 0, dict(enumerate(corpus.documents["web"])))
    assert epochs_of(delivered, "web") == 0


TOML = """
batch = 20
weights = [
    [0, {{ web = 0.9, code = 0.1 }}],
    [10, {{ to = {{ web = 0.1, code = 0.9 }}, until = 50, {shape} }}],
]
[[sources]]
name = "web@1"
[[sources]]
name = "code@1"
"""


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_says_the_same(tmp_path: Path, shape: str) -> None:
    fields = ", ".join(
        f'{name} = "{v}"' if isinstance(v, str) else f"{name} = {v}" for name, v in SHAPES[shape].items()
    )
    (tmp_path / "recipe.toml").write_text(TOML.format(shape=fields))
    weights = [(0, START), (10, ps.Ramp(END, until=50, **SHAPES[shape]))]
    recipe = ps.Recipe(sources=[ps.Source("web@1"), ps.Source("code@1")], batch=20, weights=weights)
    loaded = ps.Recipe.load(tmp_path / "recipe.toml")
    assert loaded == recipe
    assert loaded.digest == recipe.digest
    again = written(recipe)
    assert again is not None
    assert again["weights"][1][1]["until"] == 50


@pytest.mark.parametrize(
    ("ramp", "words"),
    [
        ({"to": {"web": 1.0}, "until": 5}, "ends at step 5"),
        ({"to": {"web": 1.0}, "until": 20.0}, "must end at a step"),
        ({"to": {"web": 1.0}}, "until"),
        ({"to": {"web": 1.0}, "until": 20, "shape": "square"}, "unknown ramp 'square'"),
        ({"to": {"web": 1.0}, "until": 20, "shape": "steps"}, "every 0 steps"),
        ({"to": {"web": 1.0}, "until": 20, "every": 3}, "every 3 steps"),
        ({"to": {"web": 0.0}, "until": 20}, "no source has a weight"),
        ({"to": {"wob": 1.0}, "until": 20}, "unknown source 'wob'"),
        ({"to": {"web": -1.0}, "until": 20}, "weight of web"),
        ({"to": {"web": 1.0}, "until": 20, "form": "cosine"}, "form"),
    ],
    ids=str,
)
def test_ramps_that_make_no_sense_are_refused(ramp: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeInvalid, match=words):
        ps.Recipe(sources=[ps.Source("web")], batch=4, weights=[(0, {"web": 1.0}), (10, ramp)])


def test_a_source_may_be_called_to(corpus: Corpus) -> None:
    recipe = ps.Recipe(sources=[ps.Source("web", alias="to")], batch=4, weights=[(0, {"to": 2.0})])
    assert recipe.weights_at(0) == {"to": 1.0}


def test_plain_schedules_have_the_digests_they_had() -> None:
    sources = [ps.Source("web@3"), ps.Source("code@1")]
    weights = [
        (0, {"web": 0.7, "code": 0.3}),
        (
            5000,
            {
                "web": 0.5,
                "code": 0.5,
            },
        ),
    ]
    recipe = ps.Recipe(sources=sources, batch=64, seed=17, weights=weights)
    assert recipe.document()["weights"] == [(0, {"web": 0.7, "code": 0.3}), (5000, {"web": 0.5, "code": 0.5})]
    assert recipe.weight_schedule == tuple(recipe.document()["weights"])


def test_a_million_changes_open_at_any_step(corpus: Corpus) -> None:
    """Goal: D5 holds for ramps. Method: what is at a step of a ramp of a million steps is there at once, from a cursor too."""
    weights = [
        (0, ps.Ramp(END, until=1_000_000, shape="steps", every=1)),
        (999_000, ps.Ramp(START, until=2_000_000)),
    ]
    recipe = corpus.recipe("web@1", "code@1", batch=20, weights=weights)
    for step in (0, 500_000, 998_999, 1_500_000, 5_000_000):
        batch = ps.batch_at(recipe, step=step, registry=corpus.registry)
        expected = recipe.weights_at(step)["code"] * 20
        assert abs(by_source(batch)["code"] - expected) < 4, step
        with corpus.open(recipe) as feed, corpus.open(recipe, cursor=_cursor_at(feed, step)) as later:
            assert same(next(later), batch)


def _cursor_at(feed: Any, step: int) -> Cursor:
    from penstock.data.feed.feed import cursor_at

    return cursor_at(feed.plan, step)
