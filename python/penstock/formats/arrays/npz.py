"""Numpy arrays in a .npz: rows of the first axis of all its arrays, ``{name: array}``.

Arrays that are stored as they are (``np.savez``) are read in place, inside the zip. If any is compressed or in Fortran
order, all are read through a copy, a .npz whose arrays are stored.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import FileUnusable
from penstock.formats.arrays.array_rows import ArrayRows, Column, from_dtype, open_columns, scan_columns
from penstock.formats.arrays.npy_header import NpyHeader, plain_chunks, read_header
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Scanned
from penstock.formats.lines.compression import demand_room
from penstock.formats.scan_files import as_raw
from penstock.formats.shard_bytes import CheckedIO, KnownRows, scan_known, silent

_SIGNATURE = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<26xHH")
_CHUNK_BYTES = 1 << 20
_ENCRYPTED = 1
#: Copies are the same whenever they are made.
_NO_DATE = (1980, 1, 1, 0, 0, 0)
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
)


class Npz:
    """The format ``npz``: one row per item of the first axis of all arrays."""

    name = "npz"
    suffixes: Sequence[str] = (".npz",)

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It is a zip whose first member is a .npy."""
        if not head.startswith(_SIGNATURE) or len(head) < _LOCAL_HEADER.size:
            return False
        length = _LOCAL_HEADER.unpack_from(head)[0]
        return head[_LOCAL_HEADER.size :][:length].endswith(b".npy")

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """The zip's own sums, the headers and the sizes are checked."""
        index = folder / "index.arrow"
        columns = _columns(raw, raw.url)
        if columns is not None:
            return scan_columns("npz", raw, columns, policy, index, progress)
        copy, copy_index = folder / "copy", folder / "copy-index.arrow"
        _copy(raw, policy, copy)
        copy_file = as_raw(copy)
        columns = _columns(copy_file, raw.url)
        assert columns is not None, "the copy's arrays are stored"
        rows = scan_columns("npz", copy_file, columns, policy, copy_index, silent, raw.url)
        known = KnownRows(rows=rows.rows, schema=rows.schema)
        original = scan_known("npz.packed", raw, policy, index, progress, known)
        original.derived, original.derived_index = copy, copy_index
        return original

    def open(self, shard: OpenShard) -> ArrayRows:
        """Rows are found by arithmetic."""
        return open_columns(shard)


@contextmanager
def _opened(raw: RawFile, label: str) -> Iterator[zipfile.ZipFile]:
    """The zip; whatever is wrong with it is said in our words."""
    try:
        with zipfile.ZipFile(io.BufferedReader(CheckedIO(raw, raw.size_bytes), _CHUNK_BYTES)) as archive:
            names = archive.namelist()
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise FileUnusable(path=label, reason=f"there are two members {twice!r}")
            yield archive
    except _UNREADABLE as reason:
        raise FileUnusable(path=label, reason=f"it is a damaged zip: {reason}") from reason


def _columns(raw: RawFile, label: str) -> list[Column] | None:
    """Where each array is, or nothing if one of them cannot be read in place. Every stored byte is checked."""
    columns = []
    with _opened(raw, label) as archive:
        for member in archive.infolist():
            _demand_array(member, label)
            if member.compress_type != zipfile.ZIP_STORED:
                return None
            _check_sum(archive, member)
            header = _header(raw, member, label)
            if header.fortran:
                return None
            name = member.filename.removesuffix(".npy")
            columns.append(Column(name, from_dtype(header.dtype), header.shape, header.data_at))
    return columns


def _demand_array(member: zipfile.ZipInfo, label: str) -> None:
    if not member.filename.endswith(".npy"):
        raise FileUnusable(
            path=label, reason=f"its members must be arrays, but {member.filename!r} is not one"
        )
    if member.flag_bits & _ENCRYPTED:
        raise FileUnusable(path=label, reason=f"its member {member.filename!r} is encrypted")


def _check_sum(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    with archive.open(member) as stream:
        # Ends with the member; a wrong sum is raised at its end.
        while stream.read(_CHUNK_BYTES):
            pass


def _header(raw: RawFile, member: zipfile.ZipInfo, label: str) -> NpyHeader:
    """The member's own header in the zip says where it begins; the directory's may have other extra fields."""
    local = raw.read(member.header_offset, _LOCAL_HEADER.size)
    start = member.header_offset + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(local))
    return read_header(raw, start, start + member.file_size, f"{label} ({member.filename})")


def _copy(raw: RawFile, policy: Policy, copy: Path) -> None:
    """The same arrays, stored, with contiguous rows."""
    with _opened(raw, raw.url) as archive:
        needed = sum(member.file_size for member in archive.infolist())
        demand_room(raw, policy, copy.parent, growth=1.01 * needed / raw.size_bytes)
        with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as out:
            for member in archive.infolist():
                _demand_array(member, raw.url)
                plain = copy.with_name("member")
                with archive.open(member) as stream, plain.open("wb") as file:
                    while chunk := stream.read(_CHUNK_BYTES):
                        file.write(chunk)
                inside = as_raw(plain)
                header = read_header(inside, 0, inside.size_bytes, f"{raw.url} ({member.filename})")
                with out.open(zipfile.ZipInfo(member.filename, _NO_DATE), "w", force_zip64=True) as into:
                    for piece in plain_chunks(inside, header):
                        into.write(piece)
                plain.unlink()
