"""TFRecord: length, sum, data, sum. Rows are the features of ``tf.train.Example``, or ``{"data": bytes}``.

A plain file is read in place, a gzip one through a plain copy made once. Every record's own sums are checked when the
file is registered, and every Example is parsed.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

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
from penstock.formats.samples.tf_example import DATA, ExampleRows, ExampleSurvey, is_example
from penstock.formats.scan_files import as_raw
from penstock.formats.shard_bytes import choices, gather, open_file, scanned, silent, source_of, steps

_HEAD_BYTES = 12
_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8


class TfRecord:
    """The format ``tfrecord``: one row per record."""

    name = "tfrecord"
    suffixes: Sequence[str] = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """The first length has its sum."""
        return _has_sum(unpacked_head(raw, head)) or _has_sum(_zlib_head(head))

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Both sums of every record are checked, and every Example is parsed."""
        head = raw.read(0, 1 << 10)
        packing = packing_of(head)
        if packing == "plain":
            if _has_sum(_zlib_head(head)):
                raise FileUnusable(
                    path=raw.url,
                    reason="it is compressed with zlib, which cannot be told from other bytes for certain",
                    hint="write it with gzip, or uncompressed",
                )
            return _scan_plain(raw, policy, folder / "index.arrow", progress, raw.url)
        return scan_unpacked(
            raw,
            packing,
            policy,
            folder,
            progress,
            lambda copy, index: _scan_plain(as_raw(copy), policy, index, silent, raw.url),
        )

    def open(self, shard: OpenShard) -> "RecordRows":
        """Rows are byte ranges of data."""
        return RecordRows(open_file(shard), shard.schema)


class RecordRows:
    """Rows of one TFRecord shard."""

    def __init__(self, file: _rust.ShardFile, schema: list[FieldKind]) -> None:
        self._file = file
        # The rule of registration, on the same record.
        first = gather(file, _first_row())[0]
        self._examples = ExampleRows(schema) if is_example(bytes(first)) else None

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust, parsed here."""
        records = gather(self._file, rows)
        if self._examples is None:
            return [{DATA: bytes(record)} for record in records]
        return [self._examples.row(record) for record in records]


def _first_row() -> RowNumbers:
    import numpy as np

    return np.zeros(1, dtype=np.uint64)


def _scan_plain(raw: RawFile, policy: Policy, index: Path, progress: Progress, label: str) -> Scanned:
    result = scanned(
        _rust.scan_rows(
            "tfrecord",
            source_of(raw),
            index,
            shard=label,
            choices=choices(policy),
            progress=steps(progress),
        ),
        index,
    )
    check = RowCheck("tfrecord", raw, result, label)
    if not is_example(check.row(0)):
        return replace(result, schema=[FieldKind(DATA, "bytes")])
    survey = ExampleSurvey(mixed=policy.mixed)
    refused = check.run(policy, survey.problem)
    if refused:
        return check.without(refused, policy, survey.schema())
    return replace(result, schema=survey.schema())


def _has_sum(head: bytes) -> bool:
    if len(head) < _HEAD_BYTES:
        return False
    return bool(struct.unpack("<I", head[8:_HEAD_BYTES])[0] == _masked_sum(head[:8]))


def _zlib_head(head: bytes) -> bytes:
    if head[:1] != b"\x78":
        return b""
    try:
        return zlib.decompressobj().decompress(head, _HEAD_BYTES)
    except zlib.error:
        return b""


def _masked_sum(data: bytes) -> int:
    """TensorFlow's masked crc32c; for the eight bytes of a length, so speed does not matter."""
    total = 0xFFFFFFFF
    for byte in data:
        total = _table()[(total ^ byte) & 0xFF] ^ (total >> 8)
    total ^= 0xFFFFFFFF
    return (((total >> 15) | (total << 17)) + _MASK) & 0xFFFFFFFF


@cache
def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table
