"""A recipe as plain values that make the same recipe again, for a file beside what was made with it."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from penstock.data.recipe.recipe import Recipe, recipe_of
from penstock.data.recipe.weights import Ramp
from penstock.data.stages import Map, Stage
from penstock.errors import PenstockError
from penstock.registry.tokenize.template import is_template

_PATHS = ("tokenizer", "template")


def written(recipe: Recipe) -> dict[str, Any] | None:
    """Plain values from which ``recipe_of`` makes a recipe of the same digest; None if there are none, as with a program's own functions."""
    document = {
        **_plain(recipe, without=("sources", "stages")),
        "sources": [
            {**_plain(source, without=("stages",)), "stages": [_stage(stage) for stage in source.stages]}
            for source in recipe.sources
        ],
        "stages": [_stage(stage) for stage in recipe.stages],
    }
    try:
        again = recipe_of(document, folder=Path())
    except (PenstockError, TypeError, ValueError):
        return None
    return document if again.digest == recipe.digest else None


def _stage(stage: Stage) -> dict[str, Any]:
    document = {"kind": stage.kind, **_plain(stage)}
    if "lengths" in document:
        # What a stage makes of its length; it is given as this.
        document["length"] = document.pop("lengths")
    if isinstance(stage, Map):
        # By its place, which another process can import; a program's own functions have none.
        document["function"] = stage.name if stage.called.__module__ != "__main__" else ""
    for name in _PATHS:
        path = document.get(name)
        if isinstance(path, str) and path and not is_template(path):
            document[name] = str(Path(path).resolve())
    return document


def _plain(instance: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields that differ from what they are unless given, lists for tuples."""
    values = {
        field.name: getattr(instance, field.name) for field in fields(instance) if field.name not in without
    }
    defaults = {field.name: field.default for field in fields(instance)}
    return {name: _listed(value) for name, value in values.items() if value != defaults[name]}


def _listed(value: Any) -> Any:
    if isinstance(value, Ramp):
        return _listed(value.plain())
    if isinstance(value, tuple | list):
        return [_listed(item) for item in value]
    return {key: _listed(item) for key, item in value.items()} if isinstance(value, dict) else value
