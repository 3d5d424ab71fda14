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
            {**_plain(source, without=("stages",)), "stages": [_stage(each) for each in source.stages]}
            for source in recipe.sources
        ],
        "stages": [_stage(each) for each in recipe.stages],
    }
    try:
        again = recipe_of(document, folder=Path())
    except (PenstockError, TypeError, ValueError):
        return None
    return document if again.digest == recipe.digest else None


def _stage(stage: Stage) -> dict[str, Any]:
    found = {"kind": stage.kind, **_plain(stage)}
    if "lengths" in found:
        # What a stage makes of its length; it is given as this.
        found["length"] = found.pop("lengths")
    if isinstance(stage, Map):
        # By its place, which another process can import; a program's own functions have none.
        found["function"] = stage.name if stage.called.__module__ != "__main__" else ""
    for name in _PATHS:
        given = found.get(name)
        if isinstance(given, str) and given and not is_template(given):
            found[name] = str(Path(given).resolve())
    return found


def _plain(given: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields that differ from what they are unless given, lists for tuples."""
    found = {each.name: getattr(given, each.name) for each in fields(given) if each.name not in without}
    defaults = {each.name: each.default for each in fields(given)}
    return {name: _listed(value) for name, value in found.items() if value != defaults[name]}


def _listed(value: Any) -> Any:
    if isinstance(value, Ramp):
        return _listed(value.plain())
    if isinstance(value, tuple | list):
        return [_listed(each) for each in value]
    return {key: _listed(each) for key, each in value.items()} if isinstance(value, dict) else value
