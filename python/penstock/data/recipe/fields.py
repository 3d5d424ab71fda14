"""Chosen fields of records: read from a recipe, and held against what a version has."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import RecipeInvalid
from penstock.registry import Version

_HINT = 'fields = ["obs", "reward"]'


def read_fields(value: Any) -> tuple[str, ...] | None:
    """Fields as a recipe has them: names, each once, in an order that says nothing; None for all."""
    if value is None:
        return None
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise RecipeInvalid(field="fields", reason=f"must be a list of names, got {value!r:.100}", hint=_HINT)
    names = list(value)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise RecipeInvalid(
            field="fields", reason=f"must be names of fields, each once, got {names!r:.100}", hint=_HINT
        )
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise RecipeInvalid(field="fields", reason=f"{twice!r} is named twice")
    return tuple(sorted(names))


def check_fields(fields: tuple[str, ...], version: Version) -> None:
    """That a version has the fields that are chosen of it."""
    known = [field.name for field in version.schema]
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise RecipeInvalid(field="fields", reason=f"{version.address} has no field {name!r}", hint=hint)
