"""Partition folders, as Hive, Spark, Dask and pyarrow write them: ``lang=en/part-0.parquet`` has a column ``lang``.

Values are whole numbers where all of them look like some, otherwise strings; ``__HIVE_DEFAULT_PARTITION__`` is null. They are
the same for all rows of a shard, so they stand in the manifest and cost nothing to read. A column that the files
themselves have is not replaced.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from penstock.registry.manifest import Field, Manifest

Value = int | str | None

_PART = re.compile(r"([^=/.][^=/]*)=([^/]*)")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"-?\d{1,18}")


def depth_of(folders: list[str]) -> int | None:
    """Which of the folders is the first partition; None if none is."""
    return next((at for at, folder in enumerate(folders) if _PART.fullmatch(folder)), None)


def partition_of(name: str) -> dict[str, str | None]:
    """Keys and texts of the partition folders in a name."""
    partition: dict[str, str | None] = {}
    for folder in name.split("/")[:-1]:
        if (part := _PART.fullmatch(folder)) is not None:
            text = unquote(part[2])
            partition[unquote(part[1])] = None if text == _NULL else text
    return partition


def add_columns(
    manifest: Manifest, partitions: Mapping[str, Mapping[str, str | None]]
) -> tuple[Manifest, list[str]]:
    """A manifest with the columns that folders stand for (by name of shard), and what is to be said about it."""
    inside = {field.name for field in manifest.schema}
    keys = dict.fromkeys(key for values in partitions.values() for key in values)
    notes = [
        f"column {key!r} is that of the files; the folders {key}=… are not used"
        for key in keys
        if key in inside
    ]
    columns = {key: _column(key, partitions) for key in keys if key not in inside}
    if not columns:
        return manifest, notes
    shards = []
    fields = {}
    for shard in manifest.shards:
        partition = partitions.get(shard.name, {})
        values = {key: columns[key][text] for key, text in partition.items() if key in columns}
        shards.append(msgspec.structs.replace(shard, partition=values))
    for key, values_of in columns.items():
        here = [shard.partition.get(key) for shard in shards]
        kind = next((kind_of(value) for value in values_of.values() if value is not None), "null")
        fields[key] = Field(name=key, kind=kind, optional=any(value is None for value in here))
    for key in fields:
        by_folder = any(f"/{key}=" in f"/{shard.name}" for shard in shards)
        origin = f"the folders {key}=…" if by_folder else "names of files and folders"
        notes.append(f"column {key!r} comes from {origin}")
    schema = [*manifest.schema, *fields.values()]
    return msgspec.structs.replace(manifest, shards=shards, schema=schema), notes


def kind_of(value: Value) -> str:
    """The kind of a value, in the words of manifests."""
    return "int" if isinstance(value, int) else "string"


def _column(key: str, partitions: Mapping[str, Mapping[str, str | None]]) -> dict[str | None, Value]:
    texts = {values[key] for values in partitions.values() if key in values}
    said = [text for text in texts if text is not None]
    whole = bool(said) and all(_WHOLE.fullmatch(text) for text in said)
    return {text: None if text is None else int(text) if whole else text for text in texts}
