"""Which registry a command works on: the one asked for, the recipe's, the environment's, the one beside the recipe, the default."""

import json
import os
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli.main import main
from penstock.cli.registry_place import beside
from penstock.errors import RecipeInvalid, UsageError
from penstock.view.address import parse
from penstock.view.opener import Opener
from tests.view.serving import client_of, site_at

RECIPE = """
{first}
batch = 2
sources = [{{name = "web@1"}}]
"""


def make(folder: Path, word: str) -> Path:
    """A registry in which web@1 holds rows of a word."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "raw.jsonl").write_text("".join(json.dumps({"word": word, "n": n}) + "\n" for n in range(8)))
    ps.Registry(folder / "registry").register("web", folder / "raw.jsonl")
    return folder / "registry"


def word_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["data", "peek", *words, "--json"]) == 0
    word: str = json.loads(capsys.readouterr().out)["values"][0]["word"]
    return word


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Registries: ``home``, ``near`` (above the recipe), ``named`` and ``other``, and nothing in the environment."""
    for name in ("home", "near", "named", "other"):
        make(tmp_path / name, name)
    (tmp_path / "near/recipes/deep").mkdir(parents=True)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_REGISTRY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_that_there_is_wins(
    places: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named, plain = places / "near/recipes/deep/named.toml", places / "near/recipes/deep/plain.toml"
    named.write_text(RECIPE.format(first='registry = "../../../named/registry"'))
    plain.write_text(RECIPE.format(first=""))
    alone = places / "alone.toml"
    alone.write_text(RECIPE.format(first=""))

    assert word_of(capsys, str(named), "--registry", "other/registry") == "other"
    assert word_of(capsys, str(named)) == "named"
    assert word_of(capsys, str(plain)) == "near"
    assert word_of(capsys, str(alone)) == "home"
    monkeypatch.setenv("PENSTOCK_REGISTRY", str(places / "other/registry"))
    assert word_of(capsys, str(named)) == "named"
    assert word_of(capsys, str(plain)) == "other"


@pytest.mark.parametrize("command", [["view"], ["data", "lint"], ["data", "bench", "--seconds", "0.01"]])
def test_every_command_with_a_recipe_finds_its_registry(
    places: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = places / "near/recipes/named.toml"
    recipe.write_text(RECIPE.format(first='registry = "../../named/registry"\n').replace("web@1", "only@1"))
    ps.Registry(places / "named/registry").register("only", places / "named/raw.jsonl")

    main([command[0], *command[1:2], str(recipe), *command[2:], "--json"])
    # Lint refuses records, but only once it has found them.
    said = capsys.readouterr().err
    assert said == "" or "records have no tokens" in said


def test_python_opens_a_recipe_with_the_registry_that_it_names(places: Path) -> None:
    recipe = places / "named.json"
    recipe.write_text(
        json.dumps(
            {"batch": 2, "sources": [{"name": "web@1"}], "registry": "named/registry", "shuffle": "none"}
        )
    )
    loaded = ps.Recipe.load(recipe)

    assert ps.batch_at(loaded, step=0)["word"] == ["named", "named"]
    with ps.open(loaded) as feed:
        assert next(feed)["word"] == ["named", "named"]
    with ps.open(loaded, registry=ps.Registry(places / "other/registry")) as feed:
        assert next(feed)["word"] == ["other", "other"]


def test_the_registry_is_no_part_of_what_a_recipe_is(tmp_path: Path) -> None:
    with_one, without = tmp_path / "a.toml", tmp_path / "b.toml"
    with_one.write_text(RECIPE.format(first='registry = "s3://bucket/registry"'))
    without.write_text(RECIPE.format(first=""))
    one, other = ps.Recipe.load(with_one), ps.Recipe.load(without)

    assert (one.registry, other.registry) == ("s3://bucket/registry", "")
    assert one == other
    assert one.digest == other.digest
    assert "registry" not in one.document()


@pytest.mark.parametrize("value", ["3", "[1]", "true"])
def test_a_registry_that_is_no_place_is_refused(tmp_path: Path, value: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(first=f"registry = {value}"))
    with pytest.raises(RecipeInvalid, match="registry"):
        ps.Recipe.load(recipe)


def test_a_strangers_registry_above_the_recipe_is_not_taken(tmp_path: Path) -> None:
    """Goal: nobody feeds others from /tmp/registry. Method: as root, the folder belongs to somebody else."""
    if os.getuid() != 0:
        pytest.skip("only root gives folders away")
    registry = make(tmp_path / "above", "planted")
    recipe = tmp_path / "above/mine/recipe.toml"
    recipe.parent.mkdir()
    recipe.write_text(RECIPE.format(first=""))
    assert beside(recipe) == registry

    os.chown(registry, 12345, 12345)
    assert beside(recipe) is None


def test_a_page_of_one_registry_does_not_show_batches_of_another(places: Path) -> None:
    """Goal: what a batch links to is what it was made of."""
    (places / "near/named.toml").write_text(RECIPE.format(first='registry = "../named/registry"'))
    client = client_of(site_at(places / "near"))

    answer = client.get("/api/batch", params={"address": "named.toml#step=0"})

    assert answer.status_code == 422
    assert "another registry" in answer.text
    opened = Opener(ps.Registry(places / "near/registry"), own="refuse")
    with pytest.raises(UsageError, match="another registry"):
        opened.open(parse("near/named.toml"))
