"""Whatever is misspelt in a recipe, or of another kind than it should be, is said by name, and nothing is ignored."""

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from penstock import errors
from penstock.data.recipe.recipe import recipe_of

Place = tuple[str | int, ...]
DOCUMENTS: dict[str, dict[str, Any]] = {
    "tokens": {
        "seed": 17,
        "batch": [[0, 8], [20, 16]],
        "weights": [
            [0, {"web": 0.7, "code": 0.3}],
            [10, {"to": {"web": 0.5, "code": 0.5}, "until": 90, "shape": "steps", "every": 5}],
        ],
        "shuffle": "local",
        "exhaustion": "drop",
        "undecodable": "mask",
        "undecodable_max": 5,
        "measure": "all",
        "registry": "registry",
        "sources": [
            {
                "name": "web@1",
                "alias": "web",
                "weight": 1.0,
                "epochs": 2,
                "split": "train",
                "held_share": 0.1,
                "stages": [{"kind": "filter", "expression": "lang == 'en'"}],
            },
            {"name": "code@1"},
        ],
        "stages": [
            {
                "kind": "tokenize",
                "tokenizer": "tokenizer.json",
                "field": "text",
                "special_in_text": "token",
                "bos": 1,
                "eos": "<eos>",
            },
            {"kind": "truncate", "length": 100},
            {"kind": "pack", "length": 128, "policy": "fit", "separator": 1},
        ],
    },
    "chat": {
        "batch": 8,
        "sources": [{"name": "web"}],
        "stages": [
            {
                "kind": "chat",
                "tokenizer": "tokenizer.json",
                "template": "chat.jinja",
                "field": "messages",
                "train_on": ["assistant"],
                "tools": "tools",
                "date": "2024-01-01",
                "variables": {},
                "special_in_text": "token",
            },
            {"kind": "pad", "length": 64},
        ],
    },
    "records": {
        "batch": 8,
        "fields": ["a"],
        "sources": [{"name": "web", "fields": ["a", "b"]}],
        "stages": [{"kind": "map", "function": "json:dumps"}],
    },
}
#: A value of every kind that TOML and JSON have, and some that are out of every range.
VALUES = [True, -1, 1.5, "x", "64", [], {}, float("nan"), 10**30, [1], [[1]], {"a": 1}, [None], "\0"]
#: Fields whose values are words of ours.
WORDS = (
    "shuffle",
    "exhaustion",
    "undecodable",
    "measure",
    "split",
    "policy",
    "kind",
    "special_in_text",
    "shape",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "<eos>": 1, "a": 2}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    return folder


def places(document: Any, above: Place = ()) -> Iterator[Place]:
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


def at(document: Any, place: Place) -> Any:
    for key in place:
        document = document[key]
    return document


def misspelt(word: str) -> list[str]:
    swapped = word[1] + word[0] + word[2:]
    return [word + word[-1], word.upper(), swapped, f"{word} ", f"{word}s"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_misspelt_field_is_refused_with_the_one_that_was_meant(name: str, folder: Path) -> None:
    document = DOCUMENTS[name]
    for place in places(document):
        key = place[-1]
        if not isinstance(key, str):
            continue
        for word in misspelt(key):
            changed = copy.deepcopy(document)
            table = at(changed, place[:-1])
            table[word] = table.pop(key)
            with pytest.raises(errors.RecipeInvalid) as caught:
                recipe_of(changed, folder=folder)
            said = f"{caught.value} {caught.value.hint}"
            # Without its kind nothing is known of a stage; without `to` a ramp is a table of weights.
            expected = "kind" if key == "kind" else "unknown source" if key == "to" else "did you mean"
            assert expected in said, (place, word, said)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_misspelt_word_is_refused_with_those_there_are(name: str, folder: Path) -> None:
    document = DOCUMENTS[name]
    for place in places(document):
        if place[-1] not in WORDS:
            continue
        meant = at(document, place)
        for word in misspelt(meant):
            changed = copy.deepcopy(document)
            at(changed, place[:-1])[place[-1]] = word
            with pytest.raises(errors.RecipeInvalid) as caught:
                recipe_of(changed, folder=folder)
            assert meant in f"{caught.value} {caught.value.hint}", (place, word)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_value_of_another_kind_is_an_error_of_ours_or_another_recipe(name: str, folder: Path) -> None:
    """Goal: nothing is ignored and nothing ends in a bare error. Method: put every kind of value in every place."""
    document = DOCUMENTS[name]
    digest = recipe_of(copy.deepcopy(document), folder=folder).digest
    accepted = 0
    for place in places(document):
        # What these say is no part of a stream, or overridden by the schedule of weights and by the source's own fields.
        if set(place) & {"registry", "undecodable_max", "weight"} or place[:1] == ("fields",):
            continue
        for value in VALUES:
            changed = copy.deepcopy(document)
            if at(changed, place) == value:
                continue
            at(changed, place[:-1])[place[-1]] = copy.deepcopy(value)
            try:
                changed_recipe = recipe_of(changed, folder=folder)
            except errors.RecipeInvalid:
                continue
            accepted += 1
            assert changed_recipe.digest != digest, (place, value)
            assert not isinstance(value, bool), (place, value)
    assert accepted > 0


def test_templates_are_utf_8_whatever_the_locale(folder: Path) -> None:
    """Goal: the same tokens everywhere. Method: a process whose locale has no characters beyond ASCII."""
    text = "<｜User｜>{{ messages[0].content }}"
    (folder / "wide.jinja").write_text(text, encoding="utf-8")
    program = (
        "import sys; from pathlib import Path; from penstock.registry.tokenize.template import find_template;"
        "found = find_template(Path(sys.argv[1]) / 'tokenizer.json', sys.argv[1] + '/wide.jinja');"
        "print(ascii(found.text))"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == ascii(text), done.stderr
