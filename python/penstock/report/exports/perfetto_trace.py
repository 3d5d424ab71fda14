"""A run as a trace for Perfetto: a track for each rank with its steps and their parts, one for its device, counters, and what happened as instants.

Rows say how long each part of a step took, not when: parts are laid one behind the other, in the order in which they usually come. Steps begin and end
where they really did. A trace is a list of packets, so a file grows at its end.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.errors import ExportTargetTaken, ExportUnwritable
from penstock.observe.steps import PARTS, UNMEASURED
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
from penstock.report.exports.record_template import (
    MOMENT,
    WORD,
    RecordTemplate,
    Slot,
    digit_widths,
)
from penstock.report.exports.run_look import RunLook, Stretch
from penstock.report.exports.run_moments import Moment, new_moments
from penstock.report.exports.step_mfu import StepMfu

KIND = "perfetto"
BOOKMARK = ".penstock-export.json"
_PACKET = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _DESCRIPTOR = 8, 10, 11, 60
_EVENT_TYPE, _EVENT_TRACK, _EVENT_NAME, _EVENT_DOUBLE = 9, 11, 23, 44
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_TRACK_ID, _TRACK_NAME, _TRACK_PARENT, _TRACK_COUNTER = 1, 2, 5, 8
#: Rows that are made bytes of together.
_CHUNK = 8_192
#: Of an instant; a sentence of the journal may hold a whole error.
_NAME_MAX = 300
#: Moments that fit into nine bytes of a varint, and not into eight.
_AT_MIN, _AT_MAX = 1 << 56, 1 << 63
#: Integers that a floating-point number holds.
_EXACT_MAX = 1 << 53
_COUNTED = ("tokens", "memory_peak", "memory_reserved", "rss", "feed_depth", "allocator_retries")
Times = npt.NDArray[np.int64]


class PerfettoSink:
    """Appends to one file; what is in it stands in a bookmark beside it."""

    def __init__(self, place: str, run: Path) -> None:
        self.path = Path(place)
        self._bookmark_path = self.path.with_name(self.path.name + BOOKMARK)
        self.tally = ExportTally()
        self._lock = TargetLock(self.path, is_folder=False)
        self.bookmark = self._lock.or_release(lambda: self._found(run))
        self._mfu = StepMfu(read_flop_notes(run))

    def _found(self, run: Path) -> ExportBookmark:
        bookmark = read_bookmark(self._bookmark_path, run, KIND)
        if bookmark is None and self.path.stat().st_size:
            raise ExportTargetTaken(target=str(self.path), reason="it exists")
        if bookmark is None:
            # A kill before the first packet must not leave a file that looks like somebody else's.
            bookmark = new_bookmark(run, KIND)
            write_bookmark(self._bookmark_path, bookmark)
        return bookmark

    def write(self, look: RunLook) -> None:
        """Everything new of a look; it is on the disk when this returns."""
        bookmark = self.bookmark
        news = new_moments(look)
        rows: dict[str, int] = {}
        try:
            with self.path.open("r+b") as file:
                if os.fstat(file.fileno()).st_size < bookmark.length:
                    raise ExportTargetTaken(
                        target=str(self.path), reason="it is shorter than when it was last written"
                    )
                # Behind it stands what an export wrote that was killed before it could say so.
                file.truncate(bookmark.length)
                file.seek(bookmark.length)
                for moment in news.moments:
                    file.write(self._instant(moment))
                for stretch in look.stretches():
                    for start in range(0, len(stretch), _CHUNK):
                        for packets in self._stretch(stretch.cut(slice(start, start + _CHUNK))):
                            file.write(packets)
                    rows[key_of(stretch.life, stretch.rank)] = int(stretch.columns["begin"][-1])
                    self.tally.steps += len(stretch)
                file.flush()
                os.fsync(file.fileno())
                length = file.tell()
        except OSError as reason:
            raise ExportUnwritable(target=str(self.path), reason=reason.strerror or str(reason)) from reason
        self.tally.moments += len(news.moments)
        self.tally.bytes += length - bookmark.length
        bookmark.length, bookmark.entries, bookmark.deaths = length, news.entries, news.deaths
        bookmark.rows |= rows
        write_bookmark(self._bookmark_path, bookmark)

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    def _track(self, name: str, parent: str | None = None, *, is_counter: bool = False) -> tuple[int, bytes]:
        """The number of a track, and what describes it if that was not written yet."""
        tracks: dict[str, int] = self.bookmark.more.setdefault("tracks", {})
        path = name if parent is None else f"{parent}\0{name}"
        if path in tracks:
            return tracks[path], b""
        inside, before = (0, b"") if parent is None else self._track(parent)
        tracks[path] = number = 1 + len(tracks)
        words = wire.integer(_TRACK_ID, number) + wire.text(_TRACK_NAME, name)
        words += wire.integer(_TRACK_PARENT, inside) if inside else b""
        words += wire.message(_TRACK_COUNTER) if is_counter else b""
        return number, before + wire.message(_PACKET, wire.message(_DESCRIPTOR, words), _sequence())

    def _instant(self, moment: Moment) -> bytes:
        track, head = self._track(f"rank {moment.rank}")
        name = f"{moment.kind}: {moment.text}"[:_NAME_MAX]
        return head + _packet(moment.at, track, _INSTANT, name)

    def _stretch(self, stretch: Stretch) -> Iterator[bytes]:
        """Packets of some rows of a rank."""
        begins = stretch.begins
        if len(begins) and not _AT_MIN <= int(begins[0]) <= int(stretch.ends[-1]) < _AT_MAX:
            # Without an anchor of its clock a life cannot be placed.
            self.tally.refuse(
                "begin", int(stretch.columns["step"][0]), int(begins[0]), "no clock", len(stretch)
            )
            return
        rank = f"rank {stretch.rank}"
        track, head = self._track(rank)
        yield head
        is_whole = np.asarray(stretch.columns["end"] != UNMEASURED)
        if not is_whole.all():
            at = int(begins[-1])
            yield _packet(at, track, _INSTANT, f"step {int(stretch.columns['step'][-1])} was torn")
            stretch = stretch.cut(is_whole)
        if not len(stretch):
            return
        yield from self._host(stretch, track)
        yield from self._device(stretch, rank)
        yield from self._counters(stretch, rank)

    def _host(self, stretch: Stretch, track: int) -> Iterator[bytes]:
        """Steps with their parts inside. Parts that were not measured are left out."""
        columns = stretch.columns
        lengths = np.array([_measured(columns[f"host.{part}"]) for part in PARTS])
        steps = np.asarray(columns["step"], np.int64)
        yield _nested(stretch.begins, stretch.ends, steps, lengths, track)

    def _device(self, stretch: Stretch, rank: str) -> Iterator[bytes]:
        """The device's own split, laid from where the last step's ended: it works behind the host."""
        names = [*PARTS, "idle"]
        lengths = np.array([_measured(stretch.columns[f"device.{name}"]) for name in names])
        totals = lengths.sum(axis=0)
        if not totals.any():
            return
        track, head = self._track(f"{rank} device")
        yield head
        ends: dict[str, int] = self.bookmark.more.setdefault("device_ends", {})
        end = ends.get(rank, 0)
        starts = np.empty(len(totals), np.int64)
        for place, (begin, total) in enumerate(zip(stretch.begins.tolist(), totals.tolist(), strict=True)):
            starts[place] = max(begin, end)
            end = int(starts[place]) + total if total else end
        ends[rank] = end
        keep = totals > 0
        yield _laid(starts[keep], lengths[:, keep], names, track)

    def _counters(self, stretch: Stretch, rank: str) -> Iterator[bytes]:
        """Numbers at the end of each step; of what is not finite only an instant tells."""
        columns = stretch.columns
        series = {name: np.asarray(columns[name]) for name in _COUNTED}
        series |= {
            name.removeprefix("scalar."): column
            for name, column in columns.items()
            if name.startswith("scalar.")
        }
        mfu = self._mfu.of_rank(columns)
        series["mfu"] = np.where(np.isnan(mfu), float(UNMEASURED), mfu)
        for name, column in series.items():
            is_there = self._held(name, column, stretch)
            values = np.asarray(column, np.float64)
            is_sound = is_there & np.isfinite(values)
            if is_sound.any():
                track, head = self._track(name or "(no name)", rank, is_counter=True)
                yield head
                yield _counter_packets(stretch.ends[is_sound], values[is_sound], track)
            track, head = self._track(rank)
            for place in np.flatnonzero(is_there & ~is_sound).tolist():
                yield _packet(int(stretch.ends[place]), track, _INSTANT, f"{name} is {values[place]}")

    def _held(self, name: str, column: npt.NDArray[np.generic], stretch: Stretch) -> npt.NDArray[np.bool_]:
        """Values that are there and that a counter can hold: integers up to 2⁵³."""
        is_there = np.asarray(column != UNMEASURED)
        if column.dtype == np.int64:
            is_large = is_there & (np.abs(column) > _EXACT_MAX)
            for place in np.flatnonzero(is_large).tolist():
                self.tally.refuse(name, int(stretch.columns["step"][place]), str(column[place]), "above 2^53")
            is_there &= ~is_large
        return is_there


def _sequence() -> bytes:
    return wire.integer(_SEQUENCE, 1)


def _measured(column: npt.NDArray[np.generic]) -> Times:
    return np.where(column == UNMEASURED, 0, column).astype(np.int64)


def _packet(at: int, track: int, kind: int, name: str) -> bytes:
    event = wire.integer(_EVENT_TYPE, kind) + wire.integer(_EVENT_TRACK, track) + wire.text(_EVENT_NAME, name)
    return wire.message(_PACKET, wire.integer(_TIMESTAMP, at), _sequence(), wire.message(_TRACK_EVENT, event))


def _template(track: int, kind: int, *tail: bytes | Slot) -> RecordTemplate:
    """A packet with a slot for its time, then those of ``tail``, which ends the event."""
    tail_length = sum(len(piece) if isinstance(piece, bytes) else piece.width for piece in tail)
    event = wire.integer(_EVENT_TYPE, kind) + wire.integer(_EVENT_TRACK, track)
    head = _sequence() + wire.tag(_TRACK_EVENT, 2) + wire.varint(len(event) + tail_length) + event
    time = wire.tag(_TIMESTAMP, 0)
    length = len(time) + MOMENT.width + len(head) + tail_length
    return RecordTemplate(wire.tag(_PACKET, 2) + wire.varint(length) + time, MOMENT, head, *tail)


def _counter_packets(at: Times, values: npt.NDArray[np.float64], track: int) -> bytes:
    template = _template(track, _COUNTER, wire.tag(_EVENT_DOUBLE, 1), WORD)
    return template.fill(len(at), at, values).tobytes()


def _slices(names: list[str], track: int) -> tuple[list[RecordTemplate], RecordTemplate]:
    return [_template(track, _BEGIN, wire.text(_EVENT_NAME, name)) for name in names], _template(track, _END)


def _nested(begins: Times, ends: Times, steps: Times, lengths: Times, track: int) -> bytes:
    """Packets in order: a step begins, each of its parts begins and ends, it ends."""
    parts, end = _slices(list(PARTS), track)
    count = len(steps)
    pieces: list[list[bytes]] = [[] for _ in range(count)]
    widths = digit_widths(steps)
    for width in np.unique(widths).tolist():
        places = np.flatnonzero(widths == width)
        name = b"step "
        tail = wire.tag(_EVENT_NAME, 2) + wire.varint(len(name) + width) + name
        template = _template(track, _BEGIN, tail, Slot("digits", width))
        _put(pieces, places, template.fill(len(places), begins[places], steps[places]))
    edges = np.minimum(begins + np.cumsum(np.vstack([np.zeros(count, np.int64), lengths]), axis=0), ends)
    for number, template in enumerate(parts):
        places = np.flatnonzero(edges[number + 1] > edges[number])
        _put(pieces, places, template.fill(len(places), edges[number][places]))
        _put(pieces, places, end.fill(len(places), edges[number + 1][places]))
    _put(pieces, np.arange(count), end.fill(count, ends))
    return b"".join(b"".join(piece) for piece in pieces)


def _laid(starts: Times, lengths: Times, names: list[str], track: int) -> bytes:
    """Packets of parts one behind the other."""
    parts, end = _slices(names, track)
    pieces: list[list[bytes]] = [[] for _ in range(len(starts))]
    edges = starts + np.cumsum(np.vstack([np.zeros(len(starts), np.int64), lengths]), axis=0)
    for number, template in enumerate(parts):
        places = np.flatnonzero(lengths[number] > 0)
        _put(pieces, places, template.fill(len(places), edges[number][places]))
        _put(pieces, places, end.fill(len(places), edges[number + 1][places]))
    return b"".join(b"".join(piece) for piece in pieces)


def _put(pieces: list[list[bytes]], places: Times, records: npt.NDArray[np.uint8]) -> None:
    width = records.shape[1]
    data = records.tobytes()
    for number, place in enumerate(places.tolist()):
        pieces[place].append(data[number * width : (number + 1) * width])
