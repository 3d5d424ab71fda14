"""From scanned shards to a manifest: counts added up, and one schema, or an error that names the shards that disagree."""

from penstock.errors import SchemaMixed
from penstock.registry.manifest import FORM, Field, Manifest
from penstock.registry.scan.scan import ShardScan

_NUMBERS = {"int", "float"}


def assemble(format_name: str, scans: list[ShardScan], *, mixed: bool) -> Manifest:
    """The manifest of shards in the given order."""
    return Manifest(
        form=FORM,
        format=format_name,
        rows=sum(scan.shard.rows for scan in scans),
        bytes=sum(scan.shard.bytes for scan in scans),
        schema=merge([(scan.shard.name, scan.schema) for scan in scans], mixed=mixed),
        shards=[scan.shard for scan in scans],
        skipped=[bad for scan in scans for bad in scan.skipped],
    )


def merge(schemas: list[tuple[str, list[Field]]], *, mixed: bool) -> list[Field]:
    """Join the schemas of shards, in the order in which fields first appear.

    A field that some shards lack is optional; int and float make float; null takes the other kind and makes it optional.
    """
    kinds: dict[str, str] = {}
    optional: set[str] = set()
    first: dict[str, str] = {}
    counts: dict[str, int] = {}
    for shard, fields in schemas:
        for field in fields:
            counts[field.name] = counts.get(field.name, 0) + 1
            if field.optional or field.kind == "null":
                optional.add(field.name)
            before = kinds.get(field.name)
            joined = field.kind if before is None else _join(before, field.kind, mixed=mixed)
            if joined is None:
                other = first[field.name]
                assert before is not None
                raise SchemaMixed(
                    field=field.name, shard=shard, kind=field.kind, other_shard=other, other_kind=before
                )
            if before in (None, "null") and field.kind != "null":
                first[field.name] = shard
            kinds[field.name] = joined
            first.setdefault(field.name, shard)
    optional |= {name for name, count in counts.items() if count < len(schemas)}
    return [Field(name=name, kind=kind, optional=name in optional) for name, kind in kinds.items()]


def _join(before: str, now: str, *, mixed: bool) -> str | None:
    if before == now:
        return before
    if "null" in (before, now):
        return now if before == "null" else before
    if {before, now} == _NUMBERS:
        return "float"
    return "mixed" if mixed else None
