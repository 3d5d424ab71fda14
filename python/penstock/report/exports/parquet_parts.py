"""A run as a folder of parquet: every execution of every step of every rank, with all columns of the step table, and what happened.

Files are replaced as a whole, and each says in its metadata what of the run is in it and the ones before it: a killed export leaves files that are whole
and goes on behind the last. The first file has every column, so readers that ask one file for the schema see all of them.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import ExportTargetTaken, ExportUnwritable
from penstock.observe.steps import UNMEASURED
from penstock.report.exports.export_bookmark import (
    ExportBookmark,
    TargetLock,
    bookmark_of,
    key_of,
    new_bookmark,
)
from penstock.report.exports.export_tally import ExportTally
from penstock.report.exports.run_look import RunLook, Stretch
from penstock.report.exports.run_moments import new_moments

KIND = "parquet"
#: Rows of a file. The last one grows to this before there is another.
ROWS_MAX = 65_536
STEPS, MOMENTS = "steps", "moments"
_META = b"penstock.export"
_NAME = re.compile(r"part-(\d{6})\.parquet")
_PARTS_MAX = 1_000_000
_MOMENTS_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("life", pa.int64()),
        ("rank", pa.int64()),
        ("step", pa.int64()),
        ("at", pa.timestamp("ns", "UTC")),
        ("text", pa.string()),
        ("facts", pa.string()),
    ]
)


class ParquetSink:
    """A folder with ``steps/`` and ``moments.parquet``."""

    def __init__(self, place: str, run: Path) -> None:
        self.folder = Path(place)
        self.steps = self.folder / STEPS
        self.tally = ExportTally()
        self._lock = TargetLock(self.folder, is_folder=True)
        self.bookmark = self._lock.or_release(lambda: self._found(run))

    def _found(self, run: Path) -> ExportBookmark:
        parts = self._parts()
        try:
            names = sorted(entry.name for entry in self.folder.iterdir())
            foreign = [name for name in names if name not in (STEPS, f"{MOMENTS}.parquet")]
            is_empty = names == [STEPS] and not any(
                not entry.name.startswith(".part-") for entry in self.steps.iterdir()
            )
            if foreign or (names and not parts and not is_empty):
                raise ExportTargetTaken(target=str(self.folder), reason=f"it holds {(foreign or names)[0]!r}")
            bookmark = self._bookmark_in(parts[-1], run) if parts else new_bookmark(run, KIND)
            self.steps.mkdir(exist_ok=True)
            for beside in self.steps.glob(".part-*"):
                # Of an export that was killed.
                beside.unlink()
        except OSError as reason:
            raise ExportUnwritable(target=str(self.folder), reason=reason.strerror or str(reason)) from reason
        return bookmark

    def write(self, look: RunLook) -> None:
        """Everything new of a look."""
        try:
            waiting: list[pa.Table] = []
            for stretch in look.stretches():
                for start in range(0, len(stretch), ROWS_MAX):
                    piece = stretch.cut(slice(start, start + ROWS_MAX))
                    waiting.append(_table(piece))
                    self.tally.steps += len(piece)
                    waiting = self._put(waiting, is_last=False)
            self._put(waiting, is_last=True)
            self._mark_lost(look)
            self._write_moments(look)
        except (OSError, pa.ArrowException) as reason:
            words = getattr(reason, "strerror", None) or str(reason)
            raise ExportUnwritable(target=str(self.folder), reason=words) from reason

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    def _parts(self) -> list[Path]:
        if not self.steps.is_dir():
            return []
        return sorted(path for path in self.steps.iterdir() if _NAME.fullmatch(path.name))

    def _bookmark_in(self, path: Path, run: Path) -> ExportBookmark:
        try:
            metadata = pq.read_schema(path).metadata or {}
        except (OSError, pa.ArrowException) as reason:
            raise ExportTargetTaken(
                target=str(path), reason=f"it is not parquet of an export: {reason}"
            ) from reason
        return bookmark_of(metadata.get(_META, b""), str(path), run, KIND)

    def _put(self, waiting: list[pa.Table], *, is_last: bool) -> list[pa.Table]:
        """Write what fills a file; with ``is_last`` the rest as well. What is left is given back."""
        rows = sum(table.num_rows for table in waiting)
        parts = self._parts()
        if not rows and (parts or not is_last):
            return waiting
        if rows < ROWS_MAX and not is_last:
            return waiting
        number = int(_NAME.fullmatch(parts[-1].name)[1]) if parts else 0  # type: ignore[index]
        if parts:
            newest = pq.read_table(parts[-1])
            if newest.num_rows < ROWS_MAX:
                waiting = [newest, *waiting]
            else:
                number += 1
        table = _joined(waiting)
        while table.num_rows or (is_last and not self._parts()):
            if number >= _PARTS_MAX:
                raise ExportTargetTaken(target=str(self.folder), reason=f"it has {_PARTS_MAX} files")
            self._write_part(number, table.slice(0, ROWS_MAX))
            table, number = table.slice(ROWS_MAX), number + 1
        return []

    def _write_part(self, number: int, table: pa.Table) -> None:
        """The bookmark in it speaks of this file and those before it, so a kill behind any of them leads to the right place."""
        newest = table.group_by(["life", "rank"]).aggregate([("begin", "max")]).to_pylist()
        for row in newest:
            self.bookmark.rows[key_of(row["life"], row["rank"])] = row["begin_max"]
        metadata = {_META: msgspec.json.encode(self.bookmark)}
        path = self.steps / f"part-{number:06d}.parquet"
        self.tally.bytes += _replace(path, table.replace_schema_metadata(metadata))
        self._widen(table.schema)

    def _widen(self, schema: pa.Schema) -> None:
        """The first file has every column."""
        first = self._parts()[0]
        known = pq.read_schema(first)
        missing = [column for column in schema if column.name not in known.names]
        if missing:
            table = pq.read_table(first)
            for column in missing:
                table = table.append_column(column, pa.nulls(table.num_rows, column.type))
            _replace(first, table.replace_schema_metadata(known.metadata))

    def _mark_lost(self, look: RunLook) -> None:
        """Executions that have come to nothing since they were written."""
        counts = {
            key_of(life, rank): int((begins <= look.bookmark.row(life, rank)).sum())
            for (life, rank), begins in look.lost.items()
        }
        if counts == self.bookmark.more.get("lost", {}):
            return
        self.bookmark.more["lost"] = counts
        parts = self._parts()
        for path in parts:
            table = pq.read_table(path, columns=["life", "rank", "begin", "is_lost"])
            is_lost = _lost_flags(table, look)
            is_newest = path == parts[-1]
            if is_newest or not np.array_equal(is_lost, table["is_lost"].to_numpy()):
                whole = pq.read_table(path)
                place = whole.schema.get_field_index("is_lost")
                metadata = dict(whole.schema.metadata)
                if is_newest:
                    metadata[_META] = msgspec.json.encode(self.bookmark)
                whole = whole.set_column(place, "is_lost", pa.array(is_lost))
                _replace(path, whole.replace_schema_metadata(metadata))

    def _write_moments(self, look: RunLook) -> None:
        """Everything that has happened, as a whole: it is little."""
        moments = new_moments(look).moments
        rows: list[dict[str, Any]] = [
            {
                "kind": moment.kind,
                "life": moment.life,
                "rank": moment.rank,
                "step": moment.step,
                "at": moment.at,
                "text": moment.text,
                "facts": json.dumps(moment.facts, default=str),
            }
            for moment in moments
        ]
        self.tally.moments = len(rows)
        _replace(self.folder / f"{MOMENTS}.parquet", pa.Table.from_pylist(rows, _MOMENTS_SCHEMA))


def _replace(path: Path, table: pa.Table) -> int:
    beside = path.with_name(f".{path.stem}-{os.getpid()}")
    pq.write_table(table, beside, compression="zstd")
    with beside.open("rb") as file:
        os.fsync(file.fileno())
        length = os.fstat(file.fileno()).st_size
    beside.replace(path)
    return length


def _table(stretch: Stretch) -> pa.Table:
    """Rows as they are; what was not measured is null, and NaN is NaN."""
    count = len(stretch)
    is_whole = np.asarray(stretch.columns["end"] != UNMEASURED)
    columns: dict[str, pa.Array] = {
        "life": pa.array(np.full(count, stretch.life)),
        "rank": pa.array(np.full(count, stretch.rank)),
        "is_lost": pa.array(stretch.is_lost),
        "begin_at": pa.array(stretch.begins).cast(pa.timestamp("ns", "UTC")),
        "end_at": pa.array(stretch.ends, mask=~is_whole).cast(pa.timestamp("ns", "UTC")),
    }
    for name, column in stretch.columns.items():
        columns[name] = pa.array(np.ascontiguousarray(column), mask=np.asarray(column == UNMEASURED))
    return pa.table(columns)


def _joined(tables: list[pa.Table]) -> pa.Table:
    if not tables:
        schema = [(name, pa.int64()) for name in ("life", "rank", "step", "begin", "end")]
        return pa.schema([*schema, ("is_lost", pa.bool_())]).empty_table()
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _lost_flags(table: pa.Table, look: RunLook) -> np.ndarray:
    lives, ranks, begins = (table[name].to_numpy() for name in ("life", "rank", "begin"))
    is_lost = np.zeros(len(begins), bool)
    for (life, rank), lost in look.lost.items():
        is_here = (lives == life) & (ranks == rank)
        if is_here.any():
            is_lost[is_here] = np.isin(begins[is_here], lost)
    return is_lost
