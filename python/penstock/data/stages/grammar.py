"""In which order stages make sense.

Filters and maps come first, in any order. Then what makes tokens (tokenize or chat, one of them), then truncate, then one
of pack and pad, and last of all random maps.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.data.stages.map import Map
from penstock.errors import RecipeInvalid

#: Stages of one place exclude each other, except those of the first and the last.
_PLACES = {"filter": 0, "map": 0, "tokenize": 1, "chat": 1, "truncate": 2, "pack": 3, "pad": 3}
_RANDOM = 4
_NAMES = ("filter and map", "tokenize or chat", "truncate", "pack or pad", "random map")


class _Staged(Protocol):
    @property
    def kind(self) -> str: ...


def check_stages(stages: Sequence[_Staged], alias: str) -> None:
    """That the stages of a source stand in an order that makes sense."""
    places = [_place(stage) for stage in stages]
    shown = " → ".join(_name(stage) for stage in stages)
    for before, stage, at, last in zip(stages, stages[1:], places[1:], places, strict=False):
        if at < last:
            reason = f"{alias} has {shown}, where {_name(stage)} comes after {_name(before)}"
            raise RecipeInvalid(field="stages", reason=reason, hint=f"the order is {', then '.join(_NAMES)}")
        if at == last and at not in (0, _RANDOM):
            reason = f"{alias} has {shown}"
            hint = f"leave one out: there is at most one {_NAMES[at]}"
            raise RecipeInvalid(field="stages", reason=reason, hint=hint)


def _place(stage: _Staged) -> int:
    return _RANDOM if isinstance(stage, Map) and stage.random else _PLACES[stage.kind]


def _name(stage: _Staged) -> str:
    return "random map" if isinstance(stage, Map) and stage.random else stage.kind
