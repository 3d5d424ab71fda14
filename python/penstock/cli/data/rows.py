"""``penstock data rows``: rows of a version."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.data.version_text import plain_row, short
from penstock.cli.escape import harmless
from penstock.cli.output import Json, command_app, print_json
from penstock.cli.registry_place import Place, open_registry
from penstock.errors import UsageError
from penstock.registry import Version
from penstock.view.bounds import Bounds, parse_bounds

#: Rows that are read at once.
_TAKEN = 1024


rows_app = command_app(
    "rows",
    "Print rows of a version.",
    examples=(
        "  penstock data rows web@3\n"
        "  penstock data rows web@3 --rows 17 --json\n"
        "  penstock data rows web@3 --rows 100:110\n"
        "  penstock data rows web@3 --rows=-5:                the last five"
    ),
)


@rows_app.default
def print_rows(
    address: str,
    *,
    rows: Annotated[
        str | None,
        Parameter(help="Rows, as A:B, A: or one number; negative counts from the end (default: 0:5)."),
    ] = None,
    start: Annotated[int, Parameter(help="First row; an older way to say --rows.")] = 0,
    count: Annotated[int, Parameter(help="How many rows; an older way to say --rows.")] = 5,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Rows as they are stored, before any stage of a recipe.

    Parameters
    ----------
    address
        Which version: web@3.
    """
    version = open_registry(registry).resolve(address)
    if rows is not None and (start, count) != (0, 5):
        raise UsageError("--rows says which rows, and so do --start and --count", hint="leave the latter out")
    if count < 1:
        return 0
    open_end = start < 0 <= start + count
    bounds = parse_bounds(rows) if rows is not None else Bounds(start, None if open_end else start + count)
    for number, row in _taken(version, range(*bounds.within(version.rows)) if version.rows or rows else ()):
        if json:
            print_json({"row": number, **plain_row(row)})
        else:
            shard, place = version.shard_of(number)
            print(harmless(f"row {number}  ({shard.name}, its row {place})"))
            for field, value in row.items():
                print(f"  {short(field)}: {short(value)}")
    return 0


def _taken(version: Version, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Rows by number, some at a time."""
    for at in range(0, len(numbers), _TAKEN):
        some = numbers[at : at + _TAKEN]
        yield from zip(some, version.take(some), strict=True)
