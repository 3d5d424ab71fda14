"""MosaicML streaming shards (MDS): a table of offsets, the columns as JSON, and one sample after another.

A plain shard is read in place, a compressed one through a plain copy made once. ``index.json`` beside the shards is a
sidecar that repeats what the shards say; it is left out. Every sample is checked when it is registered: in Rust, while
its bytes are summed, and those that are not certainly good by decoding them here.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock import _rust
from penstock.errors import FileUnusable
from penstock.formats.contract import (
    FieldKind,
    OpenShard,
    Policy,
    Progress,
    RawFile,
    Row,
    RowNumbers,
    Scanned,
)
from penstock.formats.lines.compression import packing_of, unpacked_head
from penstock.formats.lines.plain_copy import scan_unpacked
from penstock.formats.row_check import RowCheck
from penstock.formats.samples.mds_columns import Columns, ColumnsUnusable
from penstock.formats.scan_files import as_raw, read_long
from penstock.formats.shard_bytes import KnownRows, details_of, gather, open_file, scan_known, silent

_CONFIG_BYTES_MAX = 1 << 20
#: Compressions without a signature of their own, or whose beginning says too little; known by the name.
_BY_NAME = {".mds.br": "brotli", ".mds.bz2": "bz2", ".mds.snappy": "snappy"}
_VERSION = 2
#: The index of a dataset without samples, which has nothing else in it.
_NO_SHARDS = re.compile(rb'\s*\{\s*"shards":\s*\[\s*\],\s*"version":\s*\d+\s*\}\s*')


class Mds:
    """The format ``mds``: one row per sample of a shard."""

    name = "mds"
    suffixes: Sequence[str] = (".mds", ".mds.zstd", ".mds.zst", ".mds.gz", *_BY_NAME)

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """The columns stand as JSON where the number of samples and the first offset say; or it is the sidecar."""
        if _is_sidecar(raw):
            return b'"column_encodings"' in head or _NO_SHARDS.fullmatch(head) is not None
        packing = _packing(raw.name, head)
        if raw.name.endswith(tuple(_BY_NAME)):
            return True
        inside = unpacked_head(raw, head)
        if len(inside) < 12:
            return False
        start, end = _config_range(inside)
        if not 0 < end - start <= _CONFIG_BYTES_MAX:
            return False
        if packing != "plain" and end > len(inside):
            return ".mds." in raw.name
        config = raw.read(start, end - start) if packing == "plain" else inside[start:end]
        return config.startswith(b"{") and b'"column_encodings"' in config

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """All but index.json, and not the compressed twin of a shard that is there plain."""
        names = {raw.name for raw in raws}
        return [
            raw
            for raw in raws
            if not _is_sidecar(raw)
            and not (".mds." in raw.name and f"{raw.name.rpartition('.mds.')[0]}.mds" in names)
        ]

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """The table, the columns and every sample are checked."""
        packing = _packing(raw.name, raw.read(0, 16))
        if packing == "plain":
            return _scan_plain(raw, policy, folder / "index.arrow", progress, raw.url)
        if packing == "snappy":
            raise FileUnusable(
                path=raw.url,
                reason="a snappy shard has to be unpacked in one piece",
                hint="unpack it, or write it with zstd, gz, bz2 or br",
            )
        return scan_unpacked(
            raw,
            packing,
            policy,
            folder,
            progress,
            lambda copy, index: _scan_plain(as_raw(copy), policy, index, silent, raw.url),
        )

    def open(self, shard: OpenShard) -> "MdsRows":
        """Rows are byte ranges of samples."""
        return MdsRows(open_file(shard))


class MdsRows:
    """Rows of one MDS shard."""

    def __init__(self, file: _rust.ShardFile) -> None:
        self._file = file
        details = details_of(file)
        self._columns = Columns(details["names"], details["encodings"])

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust, decoded here."""
        decode = self._columns.decode
        return [decode(sample) for sample in gather(self._file, rows)]


class _Config(msgspec.Struct):
    """The JSON in a shard."""

    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[int | None]
    format: str = "mds"
    version: int = _VERSION


def _is_sidecar(raw: RawFile) -> bool:
    return raw.name.rpartition("/")[2] == "index.json"


def _packing(name: str, head: bytes) -> str:
    detected = packing_of(head)
    if detected != "plain":
        return detected
    return next((packing for suffix, packing in _BY_NAME.items() if name.endswith(suffix)), "plain")


def _config_range(head: bytes) -> tuple[int, int]:
    """Where the JSON is: after the table, up to the first sample."""
    count, first = np.frombuffer(head, dtype="<u4", count=2).tolist()
    return 4 * (count + 2), first


def _scan_plain(raw: RawFile, policy: Policy, index: Path, progress: Progress, label: str) -> Scanned:
    offsets, columns = _layout(raw, label)
    schema = [FieldKind(name, kind) for name, kind in columns.kinds()]
    details: dict[str, Any] = {"names": columns.names, "encodings": columns.encodings}
    known = KnownRows(
        rows=len(offsets) - 1,
        schema=schema,
        offsets=offsets[:-1].astype(np.uint64),
        lengths=np.diff(offsets).astype(np.uint32),
        details=details,
        label=label,
        mds_columns=columns.promises(),
    )
    result = scan_known("mds", raw, policy, index, progress, known)
    if not len(result.doubtful):
        return result
    check = RowCheck("mds", raw, result, label)
    refused = check.run(policy, columns.problem, result.doubtful)
    return check.without(refused, policy, schema, details) if refused else result


def _layout(raw: RawFile, label: str) -> "tuple[np.ndarray[Any, np.dtype[np.int64]], Columns]":
    """The table of offsets and the columns, each held against the other and the size of the file."""
    if raw.size_bytes < 12:
        raise FileUnusable(path=label, reason=f"{raw.size_bytes} bytes are too few for an MDS shard")
    start, end = _config_range(raw.read(0, 8))
    count = start // 4 - 2
    if count == 0:
        raise FileUnusable(path=label, reason="the shard has no samples")
    if not start < end <= raw.size_bytes or end - start > _CONFIG_BYTES_MAX:
        reason = f"for {count:,} samples the columns would stand from byte {start:,} to {end:,} of {raw.size_bytes:,}"
        raise FileUnusable(path=label, reason=reason, hint="it is cut off, or no MDS shard")
    offsets = np.frombuffer(read_long(raw, 4, start - 4), dtype="<u4").astype(np.int64)
    if offsets[-1] != raw.size_bytes:
        reason = f"its table ends at byte {offsets[-1]:,}, the file at {raw.size_bytes:,}"
        raise FileUnusable(path=label, reason=reason, hint="it is cut off, or was written to after its end")
    backwards = np.flatnonzero(np.diff(offsets) < 0)
    if len(backwards):
        raise FileUnusable(path=label, reason=f"sample {backwards[0]} ends before it begins")
    return offsets, _columns(raw.read(start, end - start), label)


def _columns(text: bytes, label: str) -> Columns:
    try:
        config = msgspec.json.decode(text, type=_Config)
        if config.format != "mds" or config.version != _VERSION:
            reason = f"format {config.format!r} version {config.version} is not mds version {_VERSION}"
            raise ColumnsUnusable(reason)
        if len(config.column_names) != len(config.column_encodings):
            raise ColumnsUnusable("names and encodings of columns are not equally many")
        columns = Columns(config.column_names, config.column_encodings)
        if columns.sizes != config.column_sizes:
            raise ColumnsUnusable(f"sizes of columns are {config.column_sizes}, not {columns.sizes}")
    except (msgspec.MsgspecError, ColumnsUnusable) as reason:
        hint = getattr(reason, "hint", None)
        raise FileUnusable(path=label, reason=f"its columns: {reason}", hint=hint) from reason
    return columns
