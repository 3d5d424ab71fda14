"""``penstock data show`` and ``lineage``: one version, what it came from and what was made from it."""

from penstock.cli.data.version_text import version_document
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.cli.registry_place import Place, open_registry
from penstock.registry import Registry, Version
from penstock.registry.lineage import Lineage
from penstock.report.quantities import size as as_size

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
    derivatives = _derivatives_of(opened, version)
    if json:
        tokenised = [{"address": derivative, "note": note} for derivative, note in derivatives]
        print_json(version_document(version) | ({"tokenised": tokenised} if derivatives else {}))
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
        **{f"tokenised as {derivative}": note for derivative, note in derivatives},
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


def _derivatives_of(registry: Registry, version: Version) -> list[tuple[str, str]]:
    """What tokenising a version made, with what is noteworthy about it."""
    names = [name for name in registry.listed_datasets() if name.startswith(f"{version.name}/tokens-")]
    versions = [candidate for name in names for candidate in registry.versions(name)]
    return [
        (candidate.address, candidate.about.note)
        for candidate in versions
        if version.digest in candidate.about.derived_from
    ]


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
