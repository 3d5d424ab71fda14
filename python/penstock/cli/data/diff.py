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
    found = open_registry(registry).diff(before, after, rows=rows)
    if json:
        print_json(found.to_json())
        return 0 if found.equal else 1
    print_facts(
        {
            "versions": f"{found.before} → {found.after}",
            "fields added": ", ".join(found.fields_added),
            "fields removed": ", ".join(found.fields_removed),
            "fields changed": ", ".join(
                f"{name}: {a} → {b}" for name, (a, b) in found.fields_changed.items()
            ),
            "shards added": ", ".join(found.shards_added),
            "shards removed": ", ".join(found.shards_removed),
            "shards changed": ", ".join(found.shards_changed),
            "shards equal": found.shards_equal,
            "rows added": "" if found.rows_added is None else f"{found.rows_added:,}",
            "rows removed": "" if found.rows_removed is None else f"{found.rows_removed:,}",
            "rows changed": "" if found.rows_changed is None else f"{found.rows_changed:,}",
        }
    )
    return 0 if found.equal else 1
