"""How the tokens of a version are stored: their type, the length of fixed rows, and shards as the Rust side opens them."""

from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import RecipeInvalid
from penstock.formats.arrays import to_dtype
from penstock.formats.reading import details_of, open_file, source_of
from penstock.registry import Shard, Version

#: Source, index, its digest, rows, and first byte and bytes of each row where rows follow each other without gaps.
ShardParts = tuple[Any, Any, str, int, tuple[int, int] | None]


def stored_dtype(tokens: Version) -> np.dtype[Any]:
    """The numpy type of a version's tokens."""
    shards = tokens.manifest.shards
    # Token versions are ours and have one type; files of others are looked at one by one.
    looked_at = shards[:1] if tokens.manifest.format == "tokens" else shards
    dtypes = {_shard_dtype(tokens, shard) for shard in looked_at}
    if len(dtypes) > 1:
        shown = " and ".join(sorted(str(dtype) for dtype in dtypes))
        raise RecipeInvalid(
            field="sources", reason=f"{tokens.address} holds {shown}", hint="store all its arrays in one type"
        )
    (dtype,) = dtypes
    if dtype.kind not in "iu" or dtype.byteorder == ">":
        raise RecipeInvalid(
            field="sources", reason=f"{tokens.address} holds {dtype}, but tokens are whole numbers"
        )
    return dtype


def _shard_dtype(tokens: Version, shard: Shard) -> np.dtype[Any]:
    details = details_of(open_file(tokens.open_shard(shard)))
    return np.dtype(details["dtype"]) if "dtype" in details else to_dtype(_column(details)[1])


def _column(details: dict[str, Any]) -> list[Any]:
    """The one array of an array file: name, type, shape, first byte, meaning."""
    (column,) = details["columns"]
    return list(column)


def fixed_layout(tokens: Version, shard: Shard) -> tuple[int, int]:
    """First byte and bytes of each row of an array file, whose rows follow each other without gaps."""
    details = details_of(open_file(tokens.open_shard(shard)))
    _, dtype, shape, offset, _ = _column(details)
    return int(offset), int(np.prod(shape[1:], dtype=np.int64)) * to_dtype(dtype).itemsize


def row_length(alias: str, tokens: Version, dtype: np.dtype[Any]) -> int:
    """Tokens of a row of a source that is not packed."""
    if tokens.manifest.format != "npy":
        hint = "add a Pack stage: these rows have lengths of their own"
        raise RecipeInvalid(field="stages", reason=f"{alias} is not packed", hint=hint)
    sizes = {fixed_layout(tokens, shard)[1] for shard in tokens.manifest.shards}
    if len(sizes) != 1:
        raise RecipeInvalid(field="sources", reason=f"the arrays of {alias} have rows of different lengths")
    return sizes.pop() // dtype.itemsize


def record_shards(version: Version) -> list[ShardParts]:
    """Samples as the Rust side plans them without reading any: rows of no bytes, in a shard that is never opened."""
    return [(Path(version.address), b"", version.digest, version.rows, (0, 0))]


def shard_descriptions(tokens: Version) -> list[ShardParts]:
    """The shards of a version as the Rust side opens them."""
    found: list[ShardParts] = []
    for shard in tokens.manifest.shards:
        opened = tokens.open_shard(shard)
        layout = fixed_layout(tokens, shard) if tokens.manifest.format == "npy" else None
        found.append((source_of(opened.raw), opened.index, opened.index_digest, shard.rows, layout))
    return found
