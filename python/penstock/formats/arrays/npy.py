"""A numpy array in a .npy file: rows of its first axis, ``{"array": …}``. Fortran order is read through a copy."""

from collections.abc import Sequence
from pathlib import Path

from penstock.formats.arrays.array_rows import ArrayRows, Column, from_dtype, open_columns, scan_columns
from penstock.formats.arrays.npy_header import MAGIC, plain_chunks, read_header
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Scanned
from penstock.formats.lines.compression import demand_room
from penstock.formats.scan_files import as_raw
from penstock.formats.shard_bytes import KnownRows, scan_known, silent

#: What the one array of a .npy is called.
FIELD = "array"


class Npy:
    """The format ``npy``: one row per item of the first axis."""

    name = "npy"
    suffixes: Sequence[str] = (".npy",)

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It begins with numpy's signature."""
        return head.startswith(MAGIC)

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """The header is held against the size of the file; values are only summed."""
        index = folder / "index.arrow"
        header = read_header(raw, 0, raw.size_bytes, raw.url)
        if not header.fortran:
            return _scan_plain(raw, policy, index, progress, raw.url)
        demand_room(raw, policy, folder, growth=1.0)
        copy, copy_index = folder / "copy", folder / "copy-index.arrow"
        with copy.open("wb") as out:
            out.writelines(plain_chunks(raw, header))
        rows = _scan_plain(as_raw(copy), policy, copy_index, silent, raw.url)
        known = KnownRows(rows=rows.rows, schema=rows.schema)
        original = scan_known("npy.fortran", raw, policy, index, progress, known)
        original.derived, original.derived_index = copy, copy_index
        return original

    def open(self, shard: OpenShard) -> ArrayRows:
        """Rows are found by arithmetic."""
        return open_columns(shard)


def _scan_plain(raw: RawFile, policy: Policy, index: Path, progress: Progress, label: str) -> Scanned:
    header = read_header(raw, 0, raw.size_bytes, label)
    column = Column(FIELD, from_dtype(header.dtype), header.shape, header.data_at)
    return scan_columns("npy", raw, [column], policy, index, progress, label)
