"""How the tokens of a version are stored: their type, the length of fixed rows, and shards as the Rust side opens them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import RecipeInvalid
from penstock.formats.shard_bytes import source_of
from penstock.registry import Version
from penstock.registry.layout import layout_of_first, layouts_of

if TYPE_CHECKING:
    from penstock._rust.plan import ShardValues


def stored_dtype(tokens: Version) -> np.dtype[Any]:
    """The numpy type of a version's tokens."""
    # Token versions are ours and have one type; files of others are looked at one by one.
    ours = tokens.manifest.format == "tokens"
    dtypes = {
        np.dtype(layout.dtype) for layout in ([layout_of_first(tokens)] if ours else layouts_of(tokens))
    }
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


def row_length(alias: str, tokens: Version, dtype: np.dtype[Any]) -> int:
    """Tokens of a row of a source that is not packed."""
    if tokens.manifest.format != "npy":
        hint = "add a Pack stage: these rows have lengths of their own"
        raise RecipeInvalid(field="stages", reason=f"{alias} is not packed", hint=hint)
    sizes = {layout.fixed[1] for layout in layouts_of(tokens) if layout.fixed is not None}
    if len(sizes) != 1:
        raise RecipeInvalid(field="sources", reason=f"the arrays of {alias} have rows of different lengths")
    return sizes.pop() // dtype.itemsize


def fixed_lengths(tokens: Version, itemsize: int) -> "np.ndarray[Any, np.dtype[np.uint32]] | None":
    """Tokens of each row of array files, whose rows are alike: no index has to be read for that. None for other files."""
    if tokens.manifest.format != "npy":
        return None
    bytes_of_rows = [layout.fixed[1] for layout in layouts_of(tokens) if layout.fixed is not None]
    rows = [shard.rows for shard in tokens.manifest.shards]
    return np.repeat(np.array(bytes_of_rows, dtype=np.int64) // itemsize, rows).astype(np.uint32)


def record_shards(version: Version) -> "list[ShardValues]":
    """Samples as the Rust side plans them without reading any: rows of no bytes, in a shard that is never opened."""
    return [(Path(version.address), b"", version.digest, version.rows, (0, 0))]


def shard_descriptions(tokens: Version) -> "list[ShardValues]":
    """The shards of a version as the Rust side opens them."""
    shards = tokens.manifest.shards
    fixed = (
        [layout.fixed for layout in layouts_of(tokens)]
        if tokens.manifest.format == "npy"
        else [None] * len(shards)
    )
    descriptions: list[ShardValues] = []
    for shard, layout in zip(shards, fixed, strict=True):
        opened = tokens.open_shard(shard)
        descriptions.append((source_of(opened.raw), opened.index, opened.index_digest, shard.rows, layout))
    return descriptions
