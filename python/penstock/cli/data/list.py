"""``penstock data list`` and ``derived``: what a registry holds, and what was derived from it."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.data.version_text import version_document
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.cli.registry_place import Place, open_registry
from penstock.registry import Version
from penstock.report.quantities import size as as_size

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
    selected: list[Version] = []
    for dataset_name in names:
        versions = opened.versions(dataset_name)
        selected += versions if name is not None else versions[-1:]
    tags = {dataset: {number: tag for tag, number in opened.tags(dataset).items()} for dataset in names}
    if json:
        for version in selected:
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
        for v in selected
    ]
    print_table(["version", "tag", "format", "rows", "size", "created", "note"], rows, right=["rows", "size"])
    if not selected:
        say(f"nothing is registered in {opened.url} yet: penstock data register NAME FILES…")
    return 0


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
    derived = opened.derived()
    freed = opened.prune(entry.name for entry in derived if entry.copy) if prune else 0
    if json:
        document = [{"name": d.name, "bytes": d.bytes, "used_by": d.used_by, "copy": d.copy} for d in derived]
        print_json({"derived": document, "freed_bytes": freed})
        return 0
    rows = [
        (d.name[:12], as_size(d.bytes), "copy" if d.copy else "payload", ", ".join(d.used_by) or "nobody")
        for d in derived
    ]
    print_table(["derived", "size", "what", "used by"], rows, right=["size"])
    say(f"{as_size(freed)} freed" if prune else f"{as_size(sum(d.bytes for d in derived))} in all")
    return 0
