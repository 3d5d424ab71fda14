"""Datasets as pages show them: names, versions, schema, shards, and the graph of what came from what.

Pure readings of the registry; no HTTP. Every list has a stated upper size, with what was left out counted.
"""

import msgspec

from penstock.errors import PenstockError
from penstock.registry import Registry, Version
from penstock.registry.lineage import Lineage
from penstock.view.web.content.cells import safe
from penstock.view.web.site import Site
from penstock.view.wire.dataset_answers import (
    DatasetLine,
    DatasetList,
    LineageGraph,
    LineagePlace,
    ShardLine,
    ShardPage,
    VersionDetail,
    VersionList,
    VersionSummary,
)

DATASETS_MAX = 500
VERSIONS_MAX = 500
SHARDS_MAX = 200
FIELDS_MAX = 500
PLACES_MAX = 100


def list_datasets(site: Site, search: str = "") -> DatasetList:
    """The newest version of every dataset whose name has all words of ``search``; one that cannot be read says why."""
    registry = site.registry
    words = search.lower().split()
    names = [name for name in registry.datasets() if all(word in name.lower() for word in words)]
    return {
        "registry": safe(registry.url.removeprefix("file://")),
        "datasets": [_dataset(registry, name) for name in names[:DATASETS_MAX]],
        "left_out": max(0, len(names) - DATASETS_MAX),
        "command": site.command("data list"),
    }


def _dataset(registry: Registry, name: str) -> DatasetLine:
    try:
        newest = registry.resolve(name)
        return {"name": name, **summary(newest), "tags": registry.tags(name)}
    except PenstockError as problem:
        return {"name": name, "problem": safe(str(problem))}


def list_versions(site: Site, name: str) -> VersionList:
    """All versions of a dataset, newest first."""
    registry = site.registry
    versions = registry.versions(name)[::-1]
    return {
        "name": name,
        "versions": [summary(version) for version in versions[:VERSIONS_MAX]],
        "tags": registry.tags(name),
        "left_out": max(0, len(versions) - VERSIONS_MAX),
        "command": site.command(f"data list {name}"),
    }


def summary(version: Version) -> VersionSummary:
    """A version in one line."""
    return {
        "address": version.address,
        "number": version.number,
        "digest": version.digest,
        "format": version.manifest.format,
        "rows": version.rows,
        "bytes": version.bytes,
        "shards": len(version.manifest.shards),
        "fields": len(version.schema),
        "created": version.record.created,
        "note": safe(version.about.note[:500]),
        "derived": bool(version.about.derived_from),
    }


def describe_version(site: Site, version: Version) -> VersionDetail:
    """A version without its rows."""
    tags = [tag for tag, number in site.registry.tags(version.name).items() if number == version.number]
    return {
        **summary(version),
        "name": version.name,
        "tags": tags,
        "owner": safe(version.about.owner[:500]),
        "licence": safe(version.about.licence[:500]),
        "roots": [safe(root) for root in version.roots[:20]],
        "skipped": len(version.manifest.skipped),
        "schema": [
            {"name": safe(field.name), "kind": field.kind, "optional": field.optional}
            for field in version.schema[:FIELDS_MAX]
        ],
        "fields_left_out": max(0, len(version.schema) - FIELDS_MAX),
        "command": site.command(f"data show {version.address}"),
        "rows_command": site.command(f"data rows {version.address}"),
    }


def list_shards(version: Version, start: int) -> ShardPage:
    """Shards from a place on, with the rows that each holds."""
    shards = version.manifest.shards
    first = 0
    for shard in shards[:start]:
        first += shard.rows
    lines: list[ShardLine] = []
    for shard in shards[start : start + SHARDS_MAX]:
        document = msgspec.to_builtins(shard)
        lines.append(
            {
                "name": safe(shard.name),
                "rows": shard.rows,
                "bytes": shard.bytes,
                "digest": shard.digest,
                "first": first,
                "copied": bool(document.get("derived")),
            }
        )
        first += shard.rows
    return {"shards": lines, "start": start, "of": len(shards)}


def describe_lineage(site: Site, lineage: Lineage) -> LineageGraph:
    """The graph around a version: places with their distance (parents negative), and arrows between them."""
    places: dict[str, LineagePlace] = {}
    arrows: list[tuple[str, str]] = []
    left_out = _gather(lineage, 0, places, arrows)
    for child in lineage.children:
        if len(places) >= PLACES_MAX:
            left_out += 1
            continue
        places.setdefault(child, {"address": child, "digest": "", "level": 1, "known": True})
        arrows.append((lineage.address, child))
    return {
        "places": list(places.values()),
        "arrows": arrows,
        "left_out": left_out,
        "at": lineage.address,
        "command": site.command(f"data lineage {lineage.address}"),
    }


def _gather(
    lineage: Lineage, level: int, places: dict[str, LineagePlace], arrows: list[tuple[str, str]]
) -> int:
    known = places.get(lineage.address)
    if known is None and len(places) >= PLACES_MAX:
        return 1
    if known is None:
        own = not lineage.address.startswith("b3:")
        places[lineage.address] = {
            "address": lineage.address,
            "digest": lineage.digest,
            "level": level,
            "known": own,
        }
    else:
        known["level"] = min(known["level"], level)
    left_out = 0
    for parent in lineage.parents:
        missing = _gather(parent, level - 1, places, arrows)
        left_out += missing
        if parent.address in places and (parent.address, lineage.address) not in arrows:
            arrows.append((parent.address, lineage.address))
    return left_out
