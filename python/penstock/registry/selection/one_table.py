"""Whether the files that a folder or a pattern led to hold rows of one kind.

A description in JSON (``stats.json``, ``config.json``) beside rows is one object with fields of its own: it is left out. Files
that share no field at all are tables of their own, and taking them together is a question. Columns that some files lack are
said, since a table with an `id` beside another with an `id` looks like one of two parts.
"""

from collections.abc import Collection, Iterator, Sequence

from penstock.errors import TablesMixed
from penstock.formats.detection import ending_of
from penstock.registry.scan.scan import ShardScan

DESCRIBES = "one object, with no field of the rows beside it"
#: Every file of these has all of its columns, so one that is missing is missing in all of its rows.
_WITH_COLUMNS = ("csv", "tsv", "parquet", "arrow")
_NAMES_SHOWN = 3


def descriptions(scans: Sequence[ShardScan]) -> list[ShardScan]:
    """The files of JSON that are one object without any field of the rows in other files."""
    fields = {field.name for scan in scans if scan.shard.rows > 1 for field in scan.schema}
    if not fields:
        return []
    return [
        scan
        for scan in scans
        if scan.shard.rows == 1
        and ending_of(scan.shard.name).split(".")[1:2] == ["json"]
        and fields.isdisjoint(field.name for field in scan.schema)
    ]


def refuse_strangers(scans: Sequence[ShardScan]) -> None:
    """That no file is a table of its own: all must be joined by fields that they share."""
    tables = [(scan.shard.name, {field.name for field in scan.schema}) for scan in scans if scan.schema]
    joined: set[str] = set(tables[0][1]) if tables else set()
    apart = tables[1:]
    # Every turn joins a file at least, or is the last.
    while apart:
        near = [fields for _, fields in apart if not joined.isdisjoint(fields)]
        apart = [(name, fields) for name, fields in apart if joined.isdisjoint(fields)]
        if not near:
            (shard, ours), (other_shard, theirs) = tables[0], apart[0]
            raise TablesMixed(
                shard=shard, fields=sorted(ours), other_shard=other_shard, other_fields=sorted(theirs)
            )
        joined.update(*near)


def missing_columns(scans: Sequence[ShardScan], format_name: str) -> list[str]:
    """One line for each column that some files of a table lack."""
    if format_name not in _WITH_COLUMNS:
        return []
    names = dict.fromkeys(field.name for scan in scans for field in scan.schema)
    having = {scan.shard.name: {field.name for field in scan.schema} for scan in scans}
    return list(_lines(names, having))


def _lines(columns: Collection[str], having: dict[str, set[str]]) -> Iterator[str]:
    lacking: dict[tuple[str, ...], list[str]] = {}
    for column in columns:
        files = tuple(name for name, fields in having.items() if column not in fields)
        if files:
            lacking.setdefault(files, []).append(column)
    for files, missing in lacking.items():
        shown = ", ".join(map(repr, missing[:_NAMES_SHOWN])) + (" …" if len(missing) > _NAMES_SHOWN else "")
        noun = "column" if len(missing) == 1 else "columns"
        yield f"{noun} {shown} missing in {len(files):,} of {len(having):,} files ({files[0]})"
