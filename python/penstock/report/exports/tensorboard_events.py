"""A run as an event file of TensorBoard: scalars by step, what happened as text.

A record is a length and bytes, each with a check (CRC-32C, rotated); the bytes are an ``Event``. Scalars are numbers of 32 bits, as TensorBoard's own are.
Where training went back, a SessionLog says so, and readers drop what they had from that step on: what is left is the last execution.
"""

import os
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from penstock.errors import ExportTargetTaken, ExportUnwritable
from penstock.observe.steps.flop_record import read_flop_notes
from penstock.report.exports import protobuf_wire as wire
from penstock.report.exports.export_bookmark import (
    ExportBookmark,
    TargetLock,
    key_of,
    new_bookmark,
    read_bookmark,
    write_bookmark,
)
from penstock.report.exports.export_tally import ExportTally
from penstock.report.exports.rank_merge import MergedSteps, merged_steps
from penstock.report.exports.record_template import HALF, WORD, RecordTemplate, Slot, varint_widths
from penstock.report.exports.run_look import RunLook
from penstock.report.exports.run_moments import Moment, new_moments
from penstock.report.exports.step_mfu import StepMfu

KIND = "tensorboard"
BOOKMARK = "penstock-export.json"
TEXT_TAG = "penstock/moments"
#: The folder of what happened.
MOMENTS = "moments"
_LEFT_OUT = frozenset({"phase"})
#: Steps that are made bytes of together.
_CHUNK = 4_096
_EVENT_TIME, _EVENT_STEP, _EVENT_VERSION, _EVENT_SUMMARY, _EVENT_SESSION = 1, 2, 3, 5, 7
_SUMMARY_VALUE, _VALUE_TAG, _VALUE_NUMBER, _VALUE_TENSOR, _VALUE_METADATA = 1, 1, 2, 8, 9
_DT_STRING, _START = 7, 1
_FLOAT_MAX = float(np.finfo(np.float32).max)
_MASK = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78


def _crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_TABLE = _crc_table()


def masked_crcs(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The check of every row of bytes, as TensorFlow stores it."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    # Column by column: rows of a table lie far apart in memory, so they are turned first.
    for column in np.ascontiguousarray(rows.T):
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    return np.asarray(((crc >> 15) | (crc << 17)) + np.uint32(_MASK), np.uint32)


class TensorboardSink:
    """Appends to one event file in a folder of its own."""

    def __init__(self, place: str, run: Path) -> None:
        self.folder = Path(place)
        self._bookmark_path = self.folder / BOOKMARK
        self.tally = ExportTally()
        self._lock = TargetLock(self.folder, is_folder=True)
        self.bookmark = self._lock.or_release(lambda: self._found(run))
        self._mfu = StepMfu(read_flop_notes(run))

    def _found(self, run: Path) -> ExportBookmark:
        bookmark = read_bookmark(self._bookmark_path, run, KIND)
        others = sorted(entry.name for entry in self.folder.iterdir()) if bookmark is None else []
        if others:
            raise ExportTargetTaken(target=str(self.folder), reason=f"it holds {others[0]!r}")
        if bookmark is None:
            # A kill before the first look is over must not leave files that look like somebody else's.
            bookmark = new_bookmark(run, KIND)
            write_bookmark(self._bookmark_path, bookmark)
        return bookmark

    def write(self, look: RunLook) -> None:
        """Everything new of a look; it is on the disk when this returns."""
        bookmark = self.bookmark
        if "file" not in bookmark.more:
            first = min((entry.at for entry in look.entries), default=0.0)
            bookmark.more["file"] = f"events.out.tfevents.{max(int(first), 0):010d}.penstock"
        news = new_moments(look)
        fresh = [moment for moment in news.moments if moment.kind not in _LEFT_OUT]
        # In a folder of its own, which TensorBoard takes for another run: where training goes back, scalars are dropped and deaths are not.
        length, lengths = bookmark.length, bookmark.more.setdefault("lengths", {})
        lengths[MOMENTS] = self._append(
            Path(MOMENTS), lengths.get(MOMENTS, 0), lambda file: _tell(file, fresh)
        )
        bookmark.length = self._append(Path(), length, lambda file: self._write_lives(file, look))
        self.tally.moments += len(fresh)
        bookmark.entries, bookmark.deaths = news.entries, news.deaths
        write_bookmark(self._bookmark_path, bookmark)

    def _append(self, below: Path, length: int, write: Callable[[BinaryIO], None]) -> int:
        """Bytes of one event file after something was added to it."""
        path = self.folder / below / str(self.bookmark.more["file"])
        try:
            path.parent.mkdir(exist_ok=True)
            with _opened(path, length) as file:
                if length == 0:
                    file.write(_version())
                write(file)
                file.flush()
                os.fsync(file.fileno())
                self.tally.bytes += file.tell() - length
                return file.tell()
        except OSError as reason:
            raise ExportUnwritable(target=str(path), reason=reason.strerror or str(reason)) from reason

    def _write_lives(self, file: BinaryIO, look: RunLook) -> None:
        for life in look.lives:
            if life >= self.bookmark.more.get("life", 0):
                self._write_life(file, look, life)

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    def _write_life(self, file: BinaryIO, look: RunLook, life: int) -> None:
        bookmark = self.bookmark
        newest = int(bookmark.more.get("step", -1))
        merged = merged_steps(look, life, self._mfu, newest)
        if merged is None:
            return
        for name in merged.foreign:
            first = int(merged.steps[0]) if len(merged.steps) else -1
            self.tally.refuse(
                f"scalar.{name}",
                first,
                "",
                "the name cannot be told from Penstock's own",
                max(len(merged.steps), 1),
            )
        self._check_range(merged)
        returns = np.flatnonzero(merged.steps <= np.concatenate([[newest], merged.steps])[:-1]).tolist()
        edges = [0, *(place for place in returns if place), len(merged.steps)]
        for begin, end in pairwise(edges):
            if begin < end and int(merged.steps[begin]) <= newest:
                file.write(_restart(int(merged.steps[begin]), int(merged.at[begin])))
            for start in range(begin, end, _CHUNK):
                file.write(_events(merged, slice(start, min(start + _CHUNK, end))))
            if begin < end:
                newest = int(merged.steps[end - 1])
        self.tally.steps += len(merged.steps)
        for rank, row in merged.rows.items():
            bookmark.rows[key_of(life, rank)] = row
        earlier = bookmark.more.get("rank_steps", {}) if bookmark.more.get("life") == life else {}
        bookmark.more |= {"life": life, "step": newest, "rank_steps": earlier | merged.last_steps}

    def _check_range(self, merged: MergedSteps) -> None:
        """What is finite must stay finite."""
        for name, column in merged.values.items():
            is_there = merged.is_there[name]
            is_large = is_there & np.isfinite(column) & (np.abs(column) > _FLOAT_MAX)
            for place in np.flatnonzero(is_large).tolist():
                self.tally.refuse(
                    name, int(merged.steps[place]), float(column[place]), "too large for 32 bits"
                )
            merged.is_there[name] = is_there & ~is_large


def _opened(path: Path, length: int) -> BinaryIO:
    """The file, cut to what the bookmark knows: the rest was written by an export that was killed before it could say so."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if os.fstat(handle).st_size < length:
        os.close(handle)
        raise ExportTargetTaken(target=str(path), reason="it is shorter than when it was last written")
    os.ftruncate(handle, length)
    file = os.fdopen(handle, "r+b")
    file.seek(0, os.SEEK_END)
    return file


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    checks = [int(masked_crcs(np.frombuffer(data, np.uint8).reshape(1, -1))[0]) for data in (length, event)]
    return length + struct.pack("<I", checks[0]) + event + struct.pack("<I", checks[1])


def _version() -> bytes:
    return _record(wire.double(_EVENT_TIME, 0.0) + wire.text(_EVENT_VERSION, "brain.Event:2"))


def _restart(step: int, at: int) -> bytes:
    session = wire.message(_EVENT_SESSION, wire.integer(1, _START))
    return _record(wire.double(_EVENT_TIME, at / 1e9) + wire.integer(_EVENT_STEP, step) + session)


def _tell(file: BinaryIO, moments: Sequence[Moment]) -> None:
    for moment in moments:
        file.write(_text(moment))


def _text(moment: Moment) -> bytes:
    """For the page of texts: a tensor of one string."""
    words = f"{moment.kind}, life {moment.life}, rank {moment.rank}: {moment.text}"
    plugin = wire.message(1, wire.text(1, "text"))
    tensor = wire.integer(1, _DT_STRING) + wire.message(2, wire.message(2, wire.integer(1, 1)))
    value = (
        wire.text(_VALUE_TAG, TEXT_TAG)
        + wire.message(_VALUE_TENSOR, tensor + wire.text(8, words))
        + wire.message(_VALUE_METADATA, plugin)
    )
    summary = wire.message(_EVENT_SUMMARY, wire.message(_SUMMARY_VALUE, value))
    step = wire.integer(_EVENT_STEP, moment.step or 0)
    return _record(wire.double(_EVENT_TIME, moment.at / 1e9) + step + summary)


def _events(merged: MergedSteps, chunk: slice) -> bytes:
    """Records of some steps in order. Those that have the same values are made together."""
    names = list(merged.values)
    steps, at = merged.steps[chunk], merged.at[chunk] / 1e9
    is_there = np.array([merged.is_there[name][chunk] for name in names])
    widths = varint_widths(steps)
    shapes, members = np.unique(np.vstack([is_there, widths]).astype(np.int64), axis=1, return_inverse=True)
    records: list[bytes] = [b""] * len(steps)
    for number in range(shapes.shape[1]):
        places = np.flatnonzero(members.ravel() == number)
        present = [name for name, there in zip(names, shapes[:-1, number], strict=True) if there]
        template = _event_template(present, int(shapes[-1, number]))
        columns = [merged.values[name][chunk][places].astype(np.float32) for name in present]
        events = template.fill(len(places), at[places], steps[places], *columns)
        rows = _framed(events)
        for place, row in zip(places.tolist(), rows, strict=True):
            records[place] = row.tobytes()
    return b"".join(records)


def _event_template(names: list[str], step_width: int) -> RecordTemplate:
    values = [
        wire.message(_SUMMARY_VALUE, wire.text(_VALUE_TAG, name) + wire.tag(_VALUE_NUMBER, 5) + b"\0" * 4)
        for name in names
    ]
    pieces: list[bytes | Slot] = [wire.tag(_EVENT_TIME, 1), WORD, wire.tag(_EVENT_STEP, 0)]
    pieces.append(Slot("varint", step_width))
    pieces.append(wire.tag(_EVENT_SUMMARY, 2) + wire.varint(sum(map(len, values))))
    for value in values:
        pieces += [value[:-4], HALF]
    return RecordTemplate(*pieces)


def _framed(events: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    count, length = events.shape
    head = np.frombuffer(struct.pack("<Q", length), np.uint8)
    head_check = masked_crcs(head.reshape(1, -1)).view(np.uint8)
    rows = np.empty((count, length + 16), np.uint8)
    rows[:, :8], rows[:, 8:12], rows[:, 12:-4] = head, head_check, events
    rows[:, -4:] = masked_crcs(events).view(np.uint8).reshape(count, 4)
    return rows
