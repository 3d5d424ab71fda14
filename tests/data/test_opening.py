"""Opening with what people have at hand: paths, texts, names; and plain words for what cannot be meant."""

import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import CursorForeign, PenstockError, RecipeInvalid, UsageError
from tests.data.corpus import Corpus, same


@pytest.mark.parametrize(
    ("fields", "field", "hint"),
    [
        ({"sources": "web"}, "sources", 'Source("web")'),
        ({"sources": ["web"]}, "sources", 'Source("web")'),
        ({"sources": ps.Source("web")}, "sources", 'Source("web")'),
        ({"sources": None}, "sources", 'Source("web")'),
        ({"sources": [ps.Source("web")], "stages": ps.Pack(3)}, "stages", "stages=[Pack"),
        ({"sources": [ps.Source("web")], "stages": "pack"}, "stages", "stages=[Pack"),
        ({"sources": [ps.Source("web")], "stages": [ps.Pack]}, "stages", "stages=[Pack"),
        ({"sources": [ps.Source("web")], "stages": [{"kind": "pack"}]}, "stages", "stages=[Pack"),
    ],
    ids=str,
)
def test_what_is_no_list_of_sources_or_stages_is_said(fields: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(RecipeInvalid) as raised:
        ps.Recipe(batch=4, **fields)
    assert raised.value.field == field
    assert hint in str(raised.value.hint)


def test_the_stages_of_a_source_are_a_list_too() -> None:
    with pytest.raises(RecipeInvalid, match="must be a list"):
        ps.Source("web", stages=ps.Pack(3))  # type: ignore[arg-type]


def test_a_registry_may_be_given_by_its_place(corpus: Corpus) -> None:
    recipe = corpus.recipe("web")
    expected = corpus.read(recipe, 2)
    for place in (corpus.folder / "registry", str(corpus.folder / "registry")):
        with ps.open(recipe, registry=place, threads=0) as feed:
            assert all(same(next(feed), batch) for batch in expected)
        assert same(ps.batch_at(recipe, step=1, registry=place), expected[1])
    with pytest.raises(UsageError, match="must be a Registry"):
        ps.open(recipe, registry=5)  # type: ignore[arg-type]


def test_a_cursor_may_be_given_as_its_text(corpus: Corpus) -> None:
    recipe = corpus.recipe("web")
    with corpus.open(recipe) as feed:
        next(feed)
        text = feed.cursor.to_json()
        following = next(feed)
    for cursor in (text, text.encode()):
        with corpus.open(recipe, cursor=cursor) as feed:
            assert same(next(feed), following)
    for wrong in ("text", "", "{}", "\udcff", 7, {"step": 1}):
        with pytest.raises(CursorForeign):
            corpus.open(recipe, cursor=wrong)


def test_a_path_opens_the_recipe_file(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        'batch = 4\nseed = 17\n[[sources]]\nname = "web"\n'
        f'[[stages]]\nkind = "tokenize"\ntokenizer = "{corpus.tokenizer}"\n[[stages]]\nkind = "pack"\nlength = 16\n'
    )
    expected = corpus.read(corpus.recipe("web"), 1)[0]
    for place in (path, str(path)):
        with ps.open(place, registry=corpus.registry, threads=0) as feed:
            assert same(next(feed), expected)
        assert same(ps.batch_at(place, step=0, registry=corpus.registry), expected)
    with pytest.raises(RecipeInvalid, match="cannot read"):
        ps.open(tmp_path / "absent.toml", registry=corpus.registry)
    for wrong in (None, 5, {"batch": 4}):
        with pytest.raises(PenstockError, match="must be a Recipe"):
            ps.open(wrong, registry=corpus.registry)  # type: ignore[arg-type]


def test_lanes_skips_and_threads_that_are_none_are_said(corpus: Corpus) -> None:
    recipe = corpus.recipe("web")
    wrong: list[dict[str, Any]] = [
        {"lane": 0},
        {"lane": (0, 2)},
        {"skips": [1]},
        {"threads": "2"},
        {"stall_s": "soon"},
    ]
    for options in wrong:
        with pytest.raises(PenstockError):
            ps.open(recipe, registry=corpus.registry, **options)
    with pytest.raises(UsageError, match="must be a Lane"):
        ps.batch_at(recipe, step=0, lane=0, registry=corpus.registry)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [None, "1", 2.5, [1], True, -1, 2**70])
def test_a_step_a_lane_and_texts_of_another_kind_are_said(corpus: Corpus, step: Any) -> None:
    recipe = corpus.recipe("web@1")
    with pytest.raises(RecipeInvalid, match="step: must be a whole number from 0 on"):
        ps.batch_at(recipe, step=step, registry=corpus.registry)
    with pytest.raises(RecipeInvalid, match="lane: must be"):
        ps.Lane(step)
    if not isinstance(step, str):
        with pytest.raises(RecipeInvalid, match="file: must be the path of a recipe"):
            ps.Recipe.load(step)
        with pytest.raises(CursorForeign, match="it must be text"):
            ps.Cursor.from_json(step)


def test_the_ending_of_a_recipe_may_be_in_capitals(corpus: Corpus, tmp_path: Path) -> None:
    document = {"batch": 2, "sources": [{"name": "web@1"}], "stages": [{"kind": "pack", "length": 8}]}
    (tmp_path / "R.JSON").write_text(json.dumps(document))
    assert ps.Recipe.load(tmp_path / "R.JSON").batch == ((0, 2),)


def test_numbers_of_numpy_are_weights_like_others() -> None:
    import numpy as np

    half, plain = np.float64(0.5), 0.5
    recipes = [
        ps.Recipe(
            sources=[ps.Source("web", weight=weight, split="train", held_share=weight), ps.Source("code")],
            batch=4,
            weights=[(0, {"web": weight}), (5, ps.Ramp({"code": weight}, until=9))],
        )
        for weight in (half, plain)
    ]
    assert recipes[0].digest == recipes[1].digest
