"""``penstock data diff``: what differs between two versions."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json
from penstock.cli.registry_place import Place, open_registry

diff_app = command_app(
    "diff",
    "Compare two versions: schema, shards, rows.",
    examples="  penstock data diff web@2 web@3\n  penstock data diff web@2 web@3 --no-rows --json",
)


@diff_app.default
def print_difference(
    before: str,
    after: str,
    *,
    rows: Annotated[bool, Parameter(help="Compare rows too, reading the shards that differ.")] = True,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Exit code 0 when they are equal, 1 when they differ.

    Parameters
    ----------
    before
        One version: web@2.
    after
        The other: web@3.
    """
    difference = open_registry(registry).diff(before, after, rows=rows)
    if json:
        print_json(difference.to_json())
        return 0 if difference.equal else 1
    print_facts(
        {
            "versions": f"{difference.before} → {difference.after}",
            "fields added": ", ".join(difference.fields_added),
            "fields removed": ", ".join(difference.fields_removed),
            "fields changed": ", ".join(
                f"{name}: {a} → {b}" for name, (a, b) in difference.fields_changed.items()
            ),
            "shards added": ", ".join(difference.shards_added),
            "shards removed": ", ".join(difference.shards_removed),
            "shards changed": ", ".join(difference.shards_changed),
            "shards equal": difference.shards_equal,
            "rows added": "" if difference.rows_added is None else f"{difference.rows_added:,}",
            "rows removed": "" if difference.rows_removed is None else f"{difference.rows_removed:,}",
            "rows changed": "" if difference.rows_changed is None else f"{difference.rows_changed:,}",
        }
    )
    return 0 if difference.equal else 1
