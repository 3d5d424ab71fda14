"""Commands that only look: list, show, rows, lineage, diff, derived."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.data.place import Place, open_registry
from penstock.cli.data.shown import plain_row, short, version_document
from penstock.cli.escape import harmless
from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.cli.output import size as as_size
from penstock.errors import UsageError
from penstock.registry import Registry, Version
from penstock.registry.lineage import Lineage
from penstock.view.bounds import Bounds, parse_bounds

#: Rows that are read at once.
_TAKEN = 1024

list_app = command_app(
    "list",
    "List datasets, or the versions of one.",
    examples="  penstock data list\n  penstock data list web",
)


@list_app.default
def list_versions(name: str | None = None, *, registry: Place = None, json: Json = False) -> int:
    """The newest version of every dataset, or all versions of one.

    Parameters
    ----------
    name
        A dataset; without one, all are listed.
    """
    opened = open_registry(registry)
    names = [name] if name is not None else opened.datasets()
    found: list[Version] = []
    for each in names:
        versions = opened.versions(each)
        found += versions if name is not None else versions[-1:]
    tags = {each: {number: tag for tag, number in opened.tags(each).items()} for each in names}
    if json:
        for version in found:
            document = version_document(version)
            del document["shards"], document["skipped"]
            print_json({**document, "tag": tags[version.name].get(version.number)})
        return 0
    rows = [
        (
            v.address,
            tags[v.name].get(v.number, ""),
            v.manifest.format,
            f"{v.rows:,}",
            as_size(v.bytes),
            v.record.created,
            v.about.note,
        )
        for v in found
    ]
    print_table(["version", "tag", "format", "rows", "size", "created", "note"], rows, right=["rows", "size"])
    if not found:
        say(f"nothing is registered in {opened.url} yet: penstock data register NAME FILES…")
    return 0


show_app = command_app(
    "show",
    "Show a version: schema, shards, places, words.",
    examples="  penstock data show web@3\n  penstock data show web@gold --json",
)


@show_app.default
def show_version(address: str, *, registry: Place = None, json: Json = False) -> int:
    """Everything that is known of a version without reading its rows.

    Parameters
    ----------
    address
        web (newest), web@3, web@gold (tag) or web@b3:4f2a (digest).
    """
    opened = open_registry(registry)
    version = opened.resolve(address)
    made = _made_from(opened, version)
    if json:
        tokenised = [{"address": each, "note": note} for each, note in made]
        print_json(version_document(version) | ({"tokenised": tokenised} if made else {}))
        return 0
    about = version.about
    facts: dict[str, object] = {
        "version": version.address,
        "digest": version.digest,
        "format": version.manifest.format,
        "rows": f"{version.rows:,}",
        "size": as_size(version.bytes),
        "created": version.record.created,
        "at": version.roots[0],
        "note": about.note,
        "owner": about.owner,
        "licence": about.licence,
        "made from": ", ".join(about.derived_from),
        "left out": f"{len(version.manifest.skipped)} bad rows" if version.manifest.skipped else "",
        **{f"tokenised as {each}": note for each, note in made},
    }
    print_table(["", ""], [(key, value) for key, value in facts.items() if value])
    print_table(
        ["field", "kind", ""], [(f.name, f.kind, "optional" if f.optional else "") for f in version.schema]
    )
    print()
    shards = version.manifest.shards
    print_table(
        ["shard", "rows", "size", "read through"],
        [
            (s.name, f"{s.rows:,}", as_size(s.bytes), "a derived copy" if s.derived else "the file itself")
            for s in shards[:20]
        ],
        right=["rows", "size"],
    )
    if len(shards) > 20:
        say(f"and {len(shards) - 20} shards more (--json lists them)")
    return 0


def _made_from(registry: Registry, version: Version) -> list[tuple[str, str]]:
    """What tokenising a version made, with what is noteworthy about it."""
    names = [name for name in registry.datasets() if name.startswith(f"{version.name}/tokens-")]
    found = [each for name in names for each in registry.versions(name)]
    return [(each.address, each.about.note) for each in found if version.digest in each.about.derived_from]


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


lineage_app = command_app(
    "lineage",
    "Show what a version came from and what was made from it.",
    examples="  penstock data lineage web@3",
)


@lineage_app.default
def print_lineage(address: str, *, registry: Place = None, json: Json = False) -> int:
    """A tree of the versions above, and a list of those below.

    Parameters
    ----------
    address
        Which version: web@3.
    """
    lineage = open_registry(registry).lineage(address)
    if json:
        print_json(lineage.to_json())
        return 0
    _print_tree(lineage, 0)
    for child in lineage.children:
        print(f"made from it: {child}")
    return 0


def _print_tree(lineage: Lineage, depth: int) -> None:
    print(f"{'  ' * depth}{'from ' if depth else ''}{lineage.address}  {lineage.digest[:15]}")
    for parent in lineage.parents:
        _print_tree(parent, depth + 1)


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


derived_app = command_app(
    "derived",
    "List derived data: copies and payloads, with their sizes.",
    examples="  penstock data derived\n  penstock data derived --prune",
)


@derived_app.default
def list_derived(
    *,
    prune: Annotated[
        bool, Parameter(negative=(), help="Delete copies; they are made again when needed.")
    ] = False,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Row-addressable copies of files that cannot be read at random, and payloads of measured columns."""
    opened = open_registry(registry)
    found = opened.derived()
    freed = opened.prune(each.name for each in found if each.copy) if prune else 0
    if json:
        document = [{"name": d.name, "bytes": d.bytes, "used_by": d.used_by, "copy": d.copy} for d in found]
        print_json({"derived": document, "freed_bytes": freed})
        return 0
    rows = [
        (d.name[:12], as_size(d.bytes), "copy" if d.copy else "payload", ", ".join(d.used_by) or "nobody")
        for d in found
    ]
    print_table(["derived", "size", "what", "used by"], rows, right=["size"])
    say(f"{as_size(freed)} freed" if prune else f"{as_size(sum(d.bytes for d in found))} in all")
    return 0
