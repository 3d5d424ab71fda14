"""ArrayRecord, through Google's ``array_record``: rows are the features of ``tf.train.Example``, or ``{"data": bytes}``.

The library opens the file itself, so our checks cannot stand between it and the disk. Instead the whole file is held
against its registered sums before its first use by a process, and again whenever its time or size has changed; a
remote file is read through its checked bytes into a local copy first. Whatever changes after that and keeps the file's
time is left to the library's own hashes of chunks, whose complaint becomes ours.
"""

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock import _rust
from penstock.errors import CorruptShard, FileEmpty, FileUnusable, ObjectMissing, UsageError
from penstock.formats.bad_rows import BadRows
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
from penstock.formats.samples.tf_example import DATA, ExampleRows, ExampleSurvey, is_example
from penstock.formats.scan_files import fetch
from penstock.formats.shard_bytes import KnownRows, check_all, details_of, open_file, scan_known

#: The first block header and signature chunk of every Riegeli file, which ArrayRecord is made of.
_SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9"
    "0000000000000000e19f13c0e9b1c37273000000000000000000000000000000"
)
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_SCAN_RECORDS = 64
_TRIES = 3

#: Files found whole by this process: place and index -> the stamp they had.
_WHOLE: dict[tuple[str, str], tuple[int, ...]] = {}


class ArrayRecord:
    """The format ``arrayrecord``: one row per record."""

    name = "arrayrecord"
    suffixes: Sequence[str] = (".array_record", ".arrayrecord")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It begins as every Riegeli file does."""
        return head.startswith(_SIGNATURE)

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every record is read through the library, which checks its hashes, and every Example is parsed."""
        path = raw.path or fetch(raw, raw.size_bytes, folder / "download")
        reader = _reader(path, raw.url)
        count = reader.num_records()
        if count == 0:
            raise FileEmpty(path=raw.url, reason="it has no records")
        bad = BadRows(raw.url, policy)
        examples = is_example(_records(reader, [0], raw.url)[0])
        survey = ExampleSurvey(mixed=policy.mixed) if examples else None
        for first in range(0, count, _SCAN_RECORDS):
            numbers = range(first, min(count, first + _SCAN_RECORDS))
            for number, record in zip(numbers, _records(reader, numbers, raw.url), strict=True):
                reason = _problem(record, survey, policy)
                if reason is not None:
                    bad.add(number + 1, 0, reason)
        skipped = [line.line - 1 for line in bad.found]
        if len(skipped) == count:
            raise FileUnusable(path=raw.url, reason=f"all of its {count:,} records are bad")
        known = KnownRows(
            rows=count - len(skipped),
            schema=survey.schema() if survey else [FieldKind(DATA, "bytes")],
            details={"examples": examples, "skipped": skipped},
        )
        result = scan_known("arrayrecord", raw, policy, folder / "index.arrow", progress, known)
        result.skipped = bad.found
        return result

    def open(self, shard: OpenShard) -> "ArrayRecordRows":
        """Rows are found by the library."""
        return ArrayRecordRows(shard)


class ArrayRecordRows:
    """Rows of one ArrayRecord shard."""

    def __init__(self, shard: OpenShard) -> None:
        file = open_file(shard)
        details = details_of(file)
        self._shard = shard
        self._examples = ExampleRows(shard.schema) if details["examples"] else None
        # A record that was left out shifts those after it by one.
        self._skipped = np.asarray(details["skipped"], dtype=np.int64) - np.arange(len(details["skipped"]))
        self._lock = threading.Lock()
        self._reader: Any = None
        self._stamp: tuple[int, ...] | None = None
        self._path = shard.raw.path or self._fetched(file)

    def _fetched(self, file: _rust.ShardFile) -> Path:
        """A copy whose every byte has matched its sum; it goes away with this reader."""
        folder = tempfile.mkdtemp(prefix="penstock-arrayrecord-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return fetch(file, self._shard.raw.size_bytes, Path(folder) / "shard")

    def take(self, rows: RowNumbers) -> list[Row]:
        """Read by the library from a file that is as registered, before and after."""
        wanted = rows.astype(np.int64)
        numbers = (wanted + np.searchsorted(self._skipped, wanted, side="right")).tolist()
        for _ in range(_TRIES):
            reader, stamp = self._whole()
            try:
                records = reader.read(numbers)
            except RuntimeError as reason:
                raise self._damage(str(reason)) from reason
            if _stamp(self._path) == stamp:
                break
        else:
            raise self._damage("it changes while it is read")
        if self._examples is None:
            return [{DATA: record} for record in records]
        return [self._examples.row(record) for record in records]

    def _whole(self) -> tuple[Any, tuple[int, ...]]:
        """A reader of a file that is as registered, and the stamp it had when that was seen."""
        with self._lock:
            stamp = _stamp(self._path)
            if self._reader is not None and stamp is not None and stamp == self._stamp:
                return self._reader, stamp
            key = (str(self._path), self._shard.index_digest)
            if stamp is None:
                raise self._damage("the file is gone")
            if _WHOLE.get(key) != stamp:
                if self._shard.raw.path is not None and self._damages():
                    raise self._damage("it was damaged for a moment")
                _WHOLE[key] = stamp
            try:
                self._reader = _reader(self._path, self._shard.label)
            except FileUnusable as reason:
                raise self._damage(reason.reason) from reason
            self._stamp = stamp
            return self._reader, stamp

    def _damages(self) -> list[tuple[str, int, str]]:
        try:
            return check_all(self._shard.raw, self._shard.index, self._shard.index_digest)
        except ObjectMissing:
            return [(self._shard.label, 0, "the file is gone")]

    def _damage(self, otherwise: str) -> CorruptShard:
        """The first place that is not as registered; if there is none, what the library said."""
        for _, offset, reason in self._damages():
            return CorruptShard(shard=self._shard.label, offset=offset, reason=reason)
        return CorruptShard(shard=self._shard.label, offset=0, reason=otherwise)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    # A program can set the time of the last write back, but not that of the last change.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _reader(path: Path, label: str) -> Any:
    try:
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError as reason:
        raise UsageError(
            "reading ArrayRecord files needs the package array_record", hint="pip install array_record"
        ) from reason
    try:
        reader = ArrayRecordReader(str(path), _OPTIONS)
    except RuntimeError as reason:
        raise FileUnusable(path=label, reason=f"array_record cannot open it: {reason}") from reason
    if not reader.ok():
        raise FileUnusable(
            path=label,
            reason="array_record finds no footer that it can read",
            hint="it is cut off, or a Riegeli file that ArrayRecordWriter did not write",
        )
    return reader


def _records(reader: Any, numbers: Iterable[int], label: str) -> list[bytes]:
    try:
        records: list[bytes] = reader.read(list(numbers))
    except RuntimeError as reason:
        raise FileUnusable(path=label, reason=f"array_record cannot read it: {reason}") from reason
    return records


def _problem(record: bytes, survey: ExampleSurvey | None, policy: Policy) -> str | None:
    if len(record) > policy.row_bytes_max:
        return f"the record has {len(record):,} bytes, at most {policy.row_bytes_max:,} are allowed"
    return survey.problem(record) if survey else None
