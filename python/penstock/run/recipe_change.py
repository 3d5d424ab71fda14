"""What changed in a recipe since the checkpoint that a run goes on from, in words, and how such a change is made."""

from typing import Any

import msgspec

from penstock.data import Recipe
from penstock.data.written import written
from penstock.errors import CursorForeign
from penstock.run import journal
from penstock.run.directory import RunDirectory

_SHOWN = 120
#: Fields that may change from a step on, as a schedule.
_SCHEDULED = {
    "batch": "batch=[…, ({step}, rows)]",
    "weights": "weights=[…, ({step}, {{name: weight}})]",
    "stages": "Pack([…, ({step}, length)])",
}


def explained(problem: CursorForeign, directory: RunDirectory, recipe: Recipe, step: int) -> CursorForeign:
    """The same refusal, with what changed and the supported way."""
    before, now = _before(directory), written(recipe)
    if before is None or now is None:
        return problem
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if not changed:
        return problem
    told = "; ".join(f"{name} was {_short(before.get(name))}, is {_short(now.get(name))}" for name in changed)
    ways = [_SCHEDULED[name].format(step=step) for name in changed if name in _SCHEDULED]
    later = (
        f"what is executed already stays as it was: change it from step {step} on, {', '.join(ways)}; "
        if ways
        else ""
    )
    hint = (
        f"{later}or begin another run, in another directory, and load the weights of this one into its state"
    )
    return CursorForeign(
        cursor=problem.cursor, recipe=problem.recipe, reason=f"{problem.reason}: {told}", hint=hint
    )


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
