"""Stages: what happens to rows between the shard and the batch, as plain frozen values.

Whatever decides order (a filter's verdict, a length in tokens) is measured once per version and kept; a stage only says
what is measured and with which parameters. A stage's document is part of the recipe's digest.
"""

from inspect import signature
from pathlib import Path
from typing import Any

from penstock.data.recipe.names import suggestion
from penstock.data.stages.chat import Chat
from penstock.data.stages.filter import Filter
from penstock.data.stages.grammar import check_stages
from penstock.data.stages.map import Map
from penstock.data.stages.shape import LENGTH_MAX, Pack, Pad, Truncate, until
from penstock.data.stages.tokenize import Tokenize
from penstock.errors import RecipeInvalid
from penstock.registry.tokenize.template import is_template

__all__ = [
    "KINDS",
    "LENGTH_MAX",
    "Chat",
    "Filter",
    "Map",
    "Pack",
    "Pad",
    "Stage",
    "Tokenize",
    "Truncate",
    "check_stages",
    "stage_of",
    "until",
]

Stage = Filter | Map | Tokenize | Chat | Truncate | Pack | Pad
KINDS: dict[str, type[Stage]] = {
    "filter": Filter,
    "tokenize": Tokenize,
    "pack": Pack,
    "chat": Chat,
    "map": Map,
    "truncate": Truncate,
    "pad": Pad,
}


def stage_of(document: dict[str, Any], *, folder: Path) -> Stage:
    """A stage from its table in a recipe file; paths in it are relative to the file."""
    fields = dict(document)
    kind = fields.pop("kind", None)
    if kind is None:
        reason = f"a stage has no kind, only {', '.join(fields) or 'nothing'}"
        raise RecipeInvalid(field="stages", reason=reason, hint=f"known are {', '.join(KINDS)}")
    if not isinstance(kind, str) or kind not in KINDS:
        reason = f"unknown stage {kind!r:.100}"
        raise RecipeInvalid(field="stages", reason=reason, hint=suggestion(kind, KINDS))
    known = signature(KINDS[kind]).parameters
    for name in fields:
        if name not in known:
            reason = f"unknown field {name!r}"
            raise RecipeInvalid(field=f"stage {kind}", reason=reason, hint=suggestion(name, known))
    for name in ("tokenizer", "template"):
        path = fields.get(name)
        if isinstance(path, str) and path and not is_template(path):
            fields[name] = str(folder / path)
    try:
        return KINDS[kind](**fields)
    except TypeError as reason:
        raise RecipeInvalid(
            field=f"stage {kind}", reason=str(reason).partition(") ")[2] or str(reason)
        ) from reason
