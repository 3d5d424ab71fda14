"""The command that compares: diff."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.checkpoint.byte_progress import bytes_progress
from penstock.cli.checkpoint.checkpoint_text import short, titled
from penstock.cli.checkpoint.place import choose_readable, open_checkpoints
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.report.quantities import size as as_size
from penstock.state.inspect.difference import Change, Difference, Still, difference
from penstock.state.inspect.piece_reader import Reader

_NAMES_SHOWN = 20

diff_app = command_app(
    "diff",
    "Compare two checkpoints: which tensors changed and by how much, and what stood still.",
    examples=(
        "  penstock checkpoint diff runs/7b 1000 2000 --top 10\n"
        "  penstock checkpoint diff runs/7b latest latest --other runs/7b-again --json"
    ),
)


@diff_app.default
def print_difference(
    place: str,
    before: str,
    after: str,
    *,
    other: Annotated[
        str | None, Parameter(help="The place of the second checkpoint, if it is another one.")
    ] = None,
    top: Annotated[int, Parameter(help="How many changed tensors to show, the largest changes first.")] = 30,
    json: Json = False,
) -> int:
    """Exit code 0 when they are equal, 1 when they differ. What has equal hashes is not read.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    before
        A step, latest, or number=N of the list.
    after
        Another one.
    """
    with open_checkpoints(place) as opened, open_checkpoints(other or place) as others:
        first, second = choose_readable(opened, before), choose_readable(others, after)
    title = f"comparing {titled(first)} and {titled(second)}"
    with bytes_progress(title, quiet=json) as tell:
        comparison = difference(
            Reader(first.manifest, first.store), Reader(second.manifest, second.store), tell
        )
    if json:
        print_json({"before": first.to_json(), "after": second.to_json(), **comparison.to_json(top)})
    else:
        _print(comparison, top)
    return 0 if comparison.nothing else 1


def _print(comparison: Difference, top: int) -> None:
    if comparison.changes:
        changes = [_row(change) for change in comparison.changes[:top]]
        heads = ["tensor", "type", "elements changed", "relative change", "largest change"]
        print_table(heads, changes, right=heads[2:])
        if len(comparison.changes) > top:
            say(f"and {len(comparison.changes) - top} tensors more that changed (--top)")
    rows = [("added", name, "") for name in comparison.added[:_NAMES_SHOWN]]
    rows += [("removed", name, "") for name in comparison.removed[:_NAMES_SHOWN]]
    rows += [("value", name, f"{short(a)} → {short(b)}") for name, (a, b) in _some(comparison.values)]
    rows += [("entry", name, f"{short(a)} → {short(b)}") for name, (a, b) in _some(comparison.entries)]
    if rows:
        print_table(["", "name", ""], rows)
    _print_still("moments that stood still while their parameter moved", comparison.stale)
    _print_still("parameters that stood still while their moment moved", comparison.unmoved)
    say(
        f"{len(comparison.changes)} tensors changed, {comparison.equal} are equal ({comparison.equal_by_hash} known by their hashes), "
        f"{len(comparison.added)} added, {len(comparison.removed)} removed; {as_size(comparison.bytes_read)} read"
    )


def _row(change: Change) -> tuple[str, str, str, str, str]:
    kinds = change.dtypes[0] if change.dtypes[0] == change.dtypes[1] else " → ".join(change.dtypes)
    if not change.comparable:
        shapes = " → ".join("×".join(map(str, shape)) or "scalar" for shape in change.shapes)
        return change.name, f"{kinds} {shapes}", "", "", ""
    relative = "from zero" if change.relative is None else f"{change.relative:.3e}"
    return change.name, kinds, f"{change.share:.2%}", relative, f"{change.greatest:.3e}"


def _some(pairs: dict[str, tuple[object, object]]) -> list[tuple[str, tuple[object, object]]]:
    return list(pairs.items())[:_NAMES_SHOWN]


def _print_still(title: str, stills: list[Still]) -> None:
    if not stills:
        return
    print_table([title, "parameter"], [(still.moment, still.parameter) for still in stills[:_NAMES_SHOWN]])
    if len(stills) > _NAMES_SHOWN:
        say(f"and {len(stills) - _NAMES_SHOWN} more (--json shows all)")
