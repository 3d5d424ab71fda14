"""What changed in a recipe since the checkpoint that a run goes on from, in words, and how such a change is made."""

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.data import Recipe
from penstock.data.recipe.document import written
from penstock.errors import CursorForeign
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal

_SHOWN = 120
_CHANGES_MAX = 5
#: Fields that may change from a step on, as a schedule.
_SCHEDULED = {
    "batch": "batch=[…, ({step}, rows)]",
    "weights": "weights=[…, ({step}, {{name: weight}})]",
    "length": "Pack([…, ({step}, length)])",
}


def explained(problem: CursorForeign, directory: RunDirectory, recipe: Recipe, step: int) -> CursorForeign:
    """The same refusal, with what changed and the supported way."""
    before, now = _before(directory), written(recipe)
    if before is None or now is None:
        return problem
    changed = list(_changes("", before, now))
    if not changed:
        return problem
    changes = "; ".join(
        f"{name} was {_short(old)}, is {_short(new)}" for name, old, new in changed[:_CHANGES_MAX]
    )
    ways = [
        way.format(step=step)
        for field, way in _SCHEDULED.items()
        if any(field in change[0] for change in changed)
    ]
    hint = "begin another run, in another directory, and load the weights of this one into its state"
    if ways:
        hint = f"what is executed already stays as it was: change it from step {step} on, {', '.join(ways)}; or {hint}"
    return CursorForeign(
        cursor=problem.cursor, recipe=problem.recipe, reason=f"{problem.reason}: {changes}", hint=hint
    )


def _changes(place: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """What differs, as deep down as both have the same shape; schedules as wholes."""
    if isinstance(before, dict) and isinstance(now, dict) and place.rpartition(".")[2] not in _SCHEDULED:
        for name in sorted({*before, *now}):
            yield from _changes(f"{place}.{name}".lstrip("."), before.get(name), now.get(name))
    elif place.endswith(("stages", "sources")) and len(before or ()) == len(now or ()):
        for number, pair in enumerate(zip(before, now, strict=True)):
            yield from _changes(f"{place}[{number}]", *pair)
    elif before != now:
        yield place, before, now


def _before(directory: RunDirectory) -> dict[str, Any] | None:
    """The recipe of the newest life that got as far as its first step, if it is kept as a file."""
    starts: dict[int, str] = {}
    known = ""
    for entry in journal.read(directory.path):
        if entry.kind == "start":
            starts[entry.incarnation] = entry.facts.get("recipe", "")
        elif entry.kind in ("restore", "commit"):
            known = starts.get(entry.incarnation, known)
    path = directory.recipe(known) if known else None
    if path is None or not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
