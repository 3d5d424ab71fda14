"""A run as metrics of OpenTelemetry: a point for each step of each rank, at the time at which the step ended.

Every execution is a point, because a series goes on in time: a step that was executed again is there twice, at two times and with two lives. Counts are
sums over a life, exact integers; what the program logged is one metric with the name as an attribute, because names of metrics may not be anything.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.observe.steps import PARTS, UNMEASURED
from penstock.observe.steps.flop_record import read_flop_notes
from penstock.report.exports import protobuf_wire as wire
from penstock.report.exports.export_bookmark import (
    TargetLock,
    key_of,
    new_bookmark,
    read_bookmark,
    write_bookmark,
)
from penstock.report.exports.export_tally import ExportTally
from penstock.report.exports.otlp_request import Receiver
from penstock.report.exports.record_template import WORD, RecordTemplate
from penstock.report.exports.run_look import RunLook, Stretch
from penstock.report.exports.run_moments import new_moments
from penstock.report.exports.step_mfu import StepMfu
from penstock.store.home import penstock_home

KIND = "otlp"
#: Steps of one request; a step has some thirty points of 60 to 100 bytes.
_CHUNK = 500
_DOUBLE, _INT = 4, 6
_CUMULATIVE = 2
Times = npt.NDArray[np.int64]
Points = npt.NDArray[np.int64] | npt.NDArray[np.float64]
#: Metric, unit, what it says.
_GAUGES = {
    "memory_peak": ("penstock.memory.peak", "By", "largest allocation of the device's allocator"),
    "memory_reserved": ("penstock.memory.reserved", "By", "held by the device's allocator"),
    "rss": ("penstock.memory.rss", "By", "resident memory of the process"),
    "feed_depth": ("penstock.feed.depth", "{batch}", "batches that wait"),
}
_SUMS = {
    "tokens": ("penstock.tokens", "{token}", "tokens of this life, padding apart"),
    "padding": ("penstock.padding", "{token}", "padding of this life"),
    "bytes_read": ("penstock.bytes_read", "By", "bytes of the batches of this life"),
}


class OtlpSink:
    """Sends to one receiver; what it has taken stands in a bookmark of this host."""

    def __init__(self, receiver: Receiver, run: Path) -> None:
        self._receiver = receiver
        self._name = run.resolve().name
        self.tally = ExportTally()
        digest = hashlib.blake2b(f"{run.resolve()}\0{receiver.url}".encode(), digest_size=12).hexdigest()
        folder = penstock_home() / "exports" / digest
        self._bookmark_path = path = folder / "bookmark.json"
        self._lock = TargetLock(folder, is_folder=True)
        self.bookmark = self._lock.or_release(
            lambda: read_bookmark(path, run, KIND) or new_bookmark(run, KIND)
        )
        self._mfu = StepMfu(read_flop_notes(run))

    def write(self, look: RunLook) -> None:
        """Send everything new of a look, and note each request that was taken."""
        for stretch in look.stretches():
            whole = stretch.cut(np.asarray(stretch.columns["end"] != UNMEASURED))
            sums = dict(stretch.before)
            for start in range(0, len(whole), _CHUNK):
                piece = whole.cut(slice(start, start + _CHUNK))
                self._send(_resource(self._name, piece.life, piece.rank), self._metrics(piece, sums))
                self.bookmark.rows[key_of(piece.life, piece.rank)] = int(piece.columns["begin"][-1])
                write_bookmark(self._bookmark_path, self.bookmark)
                self.tally.steps += len(piece)
        self._tell(look)

    def close(self) -> None:
        """Let others send."""
        self._lock.release()

    def _send(self, resource: bytes, metrics: Iterator[bytes]) -> None:
        scope = wire.message(1, wire.text(1, "penstock"))
        body = wire.message(1, resource, wire.message(2, scope, *metrics))
        self._receiver.send(body)
        self.tally.bytes += len(body)

    def _metrics(self, piece: Stretch, sums: dict[str, int]) -> Iterator[bytes]:
        """Of some rows of a rank of a life; ``sums`` are of everything before them, and go on."""
        columns, at = piece.columns, piece.ends
        born = piece.born + piece.clock_ns
        everywhere = np.ones(len(piece), bool)
        steps = np.asarray(columns["step"], np.int64)
        yield _gauge("penstock.step", "{step}", "number of the step", _points(at, steps))
        seconds = (piece.ends - piece.begins) / 1e9
        yield _gauge("penstock.step.duration", "s", "begin of a step to the next one's", _points(at, seconds))
        mfu = self._mfu.of_rank(columns)
        is_known = ~np.isnan(mfu)
        if is_known.any():
            yield _gauge("penstock.mfu", "1", "model FLOPs utilisation", _points(at[is_known], mfu[is_known]))
        for name, (metric, unit, says) in _GAUGES.items():
            is_there = np.asarray(columns[name] != UNMEASURED)
            if is_there.any():
                yield _gauge(metric, unit, says, _points(at[is_there], columns[name][is_there]))
        logged = [
            _points(at[is_there], column[is_there], {"name": name.removeprefix("scalar.")})
            for name, column in columns.items()
            if name.startswith("scalar.") and (is_there := np.asarray(column != UNMEASURED)).any()
        ]
        if logged:
            yield _gauge("penstock.logged", "1", "as the program gave it", b"".join(logged))
        running = _running(everywhere.astype(np.int64), "rows", sums)
        yield _sum("penstock.steps", "{step}", "executed in this life", _points(at, running, start=born))
        for name, (metric, unit, says) in _SUMS.items():
            if (columns[name] != UNMEASURED).any():
                total = _running(columns[name], name, sums)
                yield _sum(metric, unit, says, _points(at, total, start=born))
        parts = [
            _points(at, _running(columns[f"host.{part}"], f"host.{part}", sums), {"part": part}, born)
            for part in PARTS
            if (columns[f"host.{part}"] != UNMEASURED).any()
        ]
        if parts:
            yield _sum("penstock.part.time", "ns", "the loop's thread by part", b"".join(parts))

    def _tell(self, look: RunLook) -> None:
        """How often what has happened, over the whole run."""
        news = new_moments(look)
        if not news.moments:
            return
        counts: dict[str, int] = dict(self.bookmark.more.get("counts", {}))
        points = []
        first = min(moment.at for moment in news.moments)
        begun = int(self.bookmark.more.setdefault("begun", first))
        for moment in news.moments:
            counts[moment.kind] = counts.get(moment.kind, 0) + 1
            at, count = np.array([max(moment.at, begun)]), np.array([counts[moment.kind]])
            points.append(_points(at, count, {"kind": moment.kind}, begun))
        metric = _sum("penstock.moments", "{moment}", "lives, deaths, checkpoints, …", b"".join(points))
        self._send(_resource(self._name, None, None), iter([metric]))
        self.bookmark.more["counts"], self.bookmark.entries, self.bookmark.deaths = (
            counts,
            news.entries,
            news.deaths,
        )
        write_bookmark(self._bookmark_path, self.bookmark)
        self.tally.moments += len(news.moments)


def _running(column: npt.NDArray[np.generic], name: str, sums: dict[str, int]) -> Times:
    """The sum up to each row, of this life."""
    counted = np.where(column == UNMEASURED, 0, column).astype(np.int64)
    total = sums.get(name, 0) + np.cumsum(counted)
    if len(total):
        sums[name] = int(total[-1])
    return np.asarray(total, np.int64)


def _attribute(field: int, name: str, value: str | int) -> bytes:
    held = wire.text(1, value) if isinstance(value, str) else wire.integer(3, value)
    return wire.message(field, wire.text(1, name), wire.message(2, held))


def _resource(name: str, life: int | None, rank: int | None) -> bytes:
    """Who it is that the points are of: attributes of the resource are the same for all of them."""
    facts = [_attribute(1, "service.name", "penstock"), _attribute(1, "penstock.run", name)]
    if life is not None and rank is not None:
        facts += [_attribute(1, "penstock.life", life), _attribute(1, "penstock.rank", rank)]
    return wire.message(1, *facts)


def _points(
    at: Times, values: Points, attributes: Mapping[str, str] | None = None, start: int | None = None
) -> bytes:
    """Data points as fields of a gauge or a sum: integers as integers, others as floating-point numbers."""
    head = b"" if start is None else wire.fixed64(2, start)
    tail = b"".join(_attribute(7, name, value) for name, value in (attributes or {}).items())
    number = wire.tag(_INT if values.dtype == np.int64 else _DOUBLE, 1)
    time = wire.tag(3, 1)
    length = len(head) + len(time) + WORD.width + len(number) + WORD.width + len(tail)
    template = RecordTemplate(wire.tag(1, 2) + wire.varint(length) + head + time, WORD, number, WORD, tail)
    return template.fill(len(at), at, values).tobytes()


def _metric(name: str, unit: str, says: str, data: bytes) -> bytes:
    return wire.message(2, wire.text(1, name), wire.text(2, says), wire.text(3, unit), data)


def _gauge(name: str, unit: str, says: str, points: bytes) -> bytes:
    return _metric(name, unit, says, wire.message(5, points))


def _sum(name: str, unit: str, says: str, points: bytes) -> bytes:
    return _metric(
        name, unit, says, wire.message(7, points, wire.integer(2, _CUMULATIVE), wire.integer(3, 1))
    )
