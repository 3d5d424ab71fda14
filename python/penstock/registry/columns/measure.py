"""Measuring: computing a column piece by piece, on all cores, and going on where a killed measurement was.

A piece is a shard unless others are asked for, and each finished piece is an object of its own. Inside a piece, rows are
computed in portions by several threads and put together in order, so a version of one large shard keeps all cores busy
too, and the result never depends on how many there are. A measure may also yield payloads per row (tokens, which of them
count in the loss); each payload becomes the shards of a derived version, registered like any other.
"""

import errno
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from penstock import events
from penstock._rust import digest
from penstock.errors import (
    DerivedTooLarge,
    DiskFull,
    ObjectMissing,
    PenstockError,
    SampleUndecodable,
    StoreFailed,
    TooManyUndecodable,
    UsageError,
)
from penstock.formats.contract import Policy, RawFile, Row
from penstock.registry.columns.column import (
    FORM,
    Column,
    Part,
    Pieces,
    Undecodable,
    column_key,
    find_column,
    payload_name,
    with_values,
)
from penstock.registry.columns.payload import PayloadWriter
from penstock.registry.scan.assembly import assemble
from penstock.registry.scan.scan import scan_all, with_rows
from penstock.registry.scan.work_folder import sweep, work_folder
from penstock.registry.version_entry import About
from penstock.store import LayeredStore, Store, open_store

if TYPE_CHECKING:
    from penstock.registry.registry import Registry
    from penstock.registry.version import Version

#: A portion has so many rows, or fewer when they are large.
_PORTION_ROWS = 1024
_PORTION_BYTES = 4 << 20
#: Portions of a piece that are under way at a time, per core.
_AHEAD_PER_CORE = 2
_REASON_LENGTH_MAX = 300
#: Told how many rows are done, and how many there are.
MeasureWatch = Callable[[int, int], None]
#: Values in order, and of each payload its elements in order.
Computed = tuple[Sequence[Any], Mapping[str, Sequence[Any]]]


class NothingToMeasure(ValueError):
    """Raised by a measure for a row that nothing can be made of; says why."""


class Measure(Protocol):
    """A function from rows to values, with an identity. It is called by several threads at a time."""

    #: What the column is called.
    name: str
    #: Numpy type of the values.
    dtype: str

    @property
    def payloads(self) -> Mapping[str, str]:
        """What is kept per row, with the numpy type of an element; the first is called as the column is."""

    def identity(self) -> dict[str, str]:
        """Everything that determines the values: kind, parameters by content, library version."""

    def read(self, row: Row) -> Any:
        """What of a row is measured; ``NothingToMeasure`` if it has no such thing."""

    def compute(self, samples: list[Any]) -> Computed:
        """Values and payloads of some samples, as ``read`` gave them, in order."""

    def payload_bytes(self, version: "Version") -> int:
        """About how many bytes all payloads of a version will take."""


@runtime_checkable
class Remarking(Protocol):
    """A measure that has something to say beside its values."""

    @property
    def notes(self) -> list[str]:
        """What users should know of what is measured with."""

    def spelled(self, samples: list[Any]) -> int:
        """How many of some samples spell a special token in their text."""


def notes_of(measure: Measure) -> list[str]:
    """What users should know of what is measured with."""
    return list(measure.notes) if isinstance(measure, Remarking) else []


def spelled_in(measure: Measure, samples: list[Any]) -> int:
    """How many of some samples spell a special token in their text."""
    return measure.spelled(samples) if isinstance(measure, Remarking) else 0


def read_sample(measure: Measure, row: Row, number: int) -> Any:
    """What of a row is measured; a measure that joins other columns has ``read_numbered``, which is told the row's number too."""
    numbered = getattr(measure, "read_numbered", None)
    return measure.read(row) if numbered is None else numbered(row, number)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a measurement may do before it is an error."""

    derived_bytes_max: int = 1 << 40
    #: Rows that nothing can be made of and that count as empty; with 0 the first is an error.
    undecodable_max: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """One measurement: of what, with what, to where."""

    version: "Version"
    measure: Measure
    store: Store
    #: Folder of this column in the store.
    place: str
    #: Ranges of rows.
    pieces: Pieces
    limits: Limits


def measure_version(
    registry: "Registry",
    version: "Version",
    measure: Measure,
    *,
    engine: str = "local",
    limits: Limits | None = None,
    watch: MeasureWatch | None = None,
    pieces: Pieces = (),
) -> Column:
    """Compute a column, or find it: parallel, resumable, cached. With ``pieces`` it covers those rows only."""
    chosen = limits or Limits()
    identity = measure.identity()
    ranges = [(first, stop) for first, stop in pieces]
    key = column_key(version.digest, identity, ranges)
    column = find_column(registry.store, key)
    if column is None:
        work = Work(version, measure, registry.store, f"columns/{key}", ranges or _shards(version), chosen)
        sweep(registry.store)
        _check_room(work)
        with (
            events.span("registry.measure", version=version.address, column=measure.name),
            _room_told(work),
        ):
            parts = _measure_pieces(work, engine, watch)
            notes = notes_of(measure)
            column = Column(
                FORM, version.digest, measure.name, measure.dtype, identity, parts, pieces=ranges, notes=notes
            )
            column = with_values(registry.store, _publish_payloads(registry, work, column))
            registry.store.put_if_absent(
                f"{work.place}/column.json", msgspec.json.encode(column, order="deterministic")
            )
    # One that was measured for somebody who bears more may be here already.
    check_undecodable(version, measure.name, column.undecodable, chosen.undecodable_max)
    return column


def _shards(version: "Version") -> Pieces:
    ends = np.cumsum([shard.rows for shard in version.manifest.shards], dtype=np.int64).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []


def _needed_bytes(work: Work) -> int:
    """About how much room the payloads and values of all pieces take."""
    rows = sum(stop - first for first, stop in work.pieces)
    payload = work.measure.payload_bytes(work.version) if work.measure.payloads else 0
    return payload * rows // max(1, work.version.rows) + rows * np.dtype(work.measure.dtype).itemsize


def _check_room(work: Work) -> None:
    if not work.measure.payloads:
        return
    needed = _needed_bytes(work)
    if needed > work.limits.derived_bytes_max:
        raise DerivedTooLarge(
            what=f"{work.measure.name} of {work.version.address}",
            needed_bytes=needed,
            allowed_bytes=work.limits.derived_bytes_max,
        )


@contextmanager
def _room_told(work: Work) -> Iterator[None]:
    """Says how much room is needed where, when there is none. Pieces that are finished stay."""
    try:
        yield
    except (OSError, StoreFailed) as reason:
        full = (
            reason.full if isinstance(reason, StoreFailed) else reason.errno in (errno.ENOSPC, errno.EDQUOT)
        )
        if not full:
            raise
        place = work.store.local_path("")
        raise DiskFull(
            what=f"{work.measure.name} of {work.version.address}",
            place=str(place or work.store.url),
            needed_bytes=_needed_bytes(work),
            free_bytes=shutil.disk_usage(place).free if place is not None else 0,
        ) from reason


def _measure_pieces(work: Work, engine: str, watch: MeasureWatch | None) -> list[Part]:
    numbers = range(len(work.pieces))
    if engine == "ray":
        from penstock.registry.scan.ray_engine import map_with_ray

        return map_with_ray(measure_piece, [(work, number) for number in numbers])
    if engine != "local":
        raise UsageError(f"engine must be local or ray, got {engine!r:.50}")
    progress = _Progress(work, watch)
    cores = os.cpu_count() or 1
    with (
        ThreadPoolExecutor(cores, thread_name_prefix="penstock-measure") as pool,
        ThreadPoolExecutor(cores, thread_name_prefix="penstock-portion") as portions,
    ):
        try:
            return list(pool.map(lambda number: measure_piece(work, number, portions, progress), numbers))
        except BaseException:
            # Pieces that are being computed end with their next portion, and nothing new is begun.
            portions.shutdown(wait=False, cancel_futures=True)
            pool.shutdown(cancel_futures=True)
            raise


class _Progress:
    """Adds up what threads have done, tells whoever watches, and notices when too much is bad."""

    def __init__(self, work: Work, watch: MeasureWatch | None) -> None:
        self._work = work
        self._watch = watch
        self._lock = threading.Lock()
        self._done = 0
        self._total = sum(stop - first for first, stop in work.pieces)
        self._undecodable: list[Undecodable] = []

    def add(self, rows: int, undecodable: list[Undecodable]) -> None:
        """So many rows more."""
        work = self._work
        with self._lock:
            self._done += rows
            self._undecodable += undecodable
            check_undecodable(work.version, work.measure.name, self._undecodable, work.limits.undecodable_max)
            if self._watch is not None:
                self._watch(self._done, self._total)


def measure_piece(
    work: Work, number: int, portions: ThreadPoolExecutor | None = None, progress: _Progress | None = None
) -> Part:
    """The column of one piece, or what an earlier measurement left of it."""
    name = f"{work.place}/{number}.json"
    tracker = progress or _Progress(work, None)
    try:
        part = msgspec.json.decode(work.store.get(name), type=Part)
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        pass
    else:
        tracker.add(part.rows, part.undecodable)
        return part
    with _room_told(work):
        if portions is not None:
            part = _compute(work, number, portions, tracker)
        else:
            with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="penstock-portion") as own:
                part = _compute(work, number, own, tracker)
        work.store.put_if_absent(name, msgspec.json.encode(part))
    return part


def _compute(work: Work, number: int, portions: ThreadPoolExecutor, progress: _Progress) -> Part:
    values: list[Any] = []
    undecodable: list[Undecodable] = []
    spelled = 0
    with work_folder(work.store, "measure") as folder:
        writers = {
            name: PayloadWriter(folder / f"{name}.arrow", dtype, name)
            for name, dtype in work.measure.payloads.items()
        }
        for portion in _in_order(portions, _jobs(work, number)):
            more, payloads = portion.computed
            progress.add(len(more), portion.undecodable)
            values.extend(more)
            undecodable.extend(portion.undecodable)
            spelled += portion.spelled
            for name, writer in writers.items():
                writer.add(payloads[name])
        kept = {name: writer.keep(work.store) for name, writer in writers.items()}
    data = np.asarray(values, dtype=work.measure.dtype).tobytes()
    values_digest = digest(data)
    work.store.put_if_absent(f"objects/{values_digest.removeprefix('b3:')}", data)
    main = kept.pop(work.measure.name, "")
    return Part(len(values), values_digest, main, kept, undecodable, spelled)


class _Portion(NamedTuple):
    """Some rows, measured."""

    computed: Computed
    undecodable: list[Undecodable]
    spelled: int


def _jobs(work: Work, number: int) -> "Iterator[Callable[[], _Portion]]":
    """The portions of a piece."""
    first, stop = work.pieces[number]
    row_bytes = max(1, work.version.bytes // max(1, work.version.rows))
    size = max(1, min(_PORTION_ROWS, _PORTION_BYTES // row_bytes))
    for start in range(first, stop, size):
        yield partial(_measure_portion, work, range(start, min(stop, start + size)))


def _in_order(pool: ThreadPoolExecutor, jobs: Iterator[Callable[[], Any]]) -> Iterator[Any]:
    """Results in the order of the jobs, of which only a few are under way at a time."""
    ahead = _AHEAD_PER_CORE * (os.cpu_count() or 1)
    running: deque[Future[Any]] = deque()
    try:
        for job in jobs:
            running.append(pool.submit(job))
            if len(running) >= ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


def _measure_portion(work: Work, rows: range) -> _Portion:
    """Values and payloads of some rows; those that nothing can be made of are empty."""
    samples, places, bad = [], [], []
    for number, row in zip(rows, _taken(work, rows), strict=True):
        try:
            if isinstance(row, NothingToMeasure):
                raise row
            samples.append(read_sample(work.measure, row, number))
            places.append(number - rows.start)
        except NothingToMeasure as reason:
            bad.append(Undecodable(number, str(reason)[:_REASON_LENGTH_MAX]))
    values, payloads = work.measure.compute(samples)
    spelled = spelled_in(work.measure, samples)
    if not bad:
        return _Portion((values, payloads), bad, spelled)
    spread = {name: _spread(payload, places, len(rows), ()) for name, payload in payloads.items()}
    return _Portion((_spread(values, places, len(rows), 0), spread), bad, spelled)


def _spread(values: Sequence[Any], places: list[int], count: int, empty: Any) -> list[Any]:
    """Put what was found at its places among empty ones."""
    every = [empty] * count
    for at, value in zip(places, values, strict=True):
        every[at] = value
    return every


def _taken(work: Work, rows: range) -> "list[Row] | list[Row | NothingToMeasure]":
    """Rows; one that its format cannot decode is the reason why. What is corrupt or cannot be read raises."""
    try:
        return work.version.take(rows)
    except (PenstockError, OSError):
        raise
    except Exception:  # noqa: BLE001 - decoders of formats raise what they like; which row it is shows one by one
        return [_taken_alone(work, row) for row in rows]


def _taken_alone(work: Work, row: int) -> Row | NothingToMeasure:
    try:
        return work.version[row]
    except (PenstockError, OSError):
        raise
    except Exception as reason:  # noqa: BLE001 - it is kept as the reason
        return NothingToMeasure(f"it cannot be decoded: {type(reason).__name__}: {reason}")


def check_undecodable(
    version: "Version", what: str, undecodable: Sequence[Undecodable], undecodable_max: int
) -> None:
    """That no more rows than that were found of which nothing can be made."""
    if len(undecodable) <= undecodable_max:
        return
    # By row, so that the same one is named whichever thread was first.
    ordered = sorted(undecodable, key=lambda entry: entry.row)
    if undecodable_max:
        last = ordered[undecodable_max]
        shown = f"row {last.row}: {last.reason}"
        raise TooManyUndecodable(source=version.address, limit=undecodable_max, last=shown)
    bad = ordered[0]
    shard, _ = version.shard_of(bad.row)
    raise SampleUndecodable(
        version=version.address,
        sample=bad.row,
        shard=shard.name,
        stage=f"measuring {what}",
        reason=bad.reason,
    )


def _publish_payloads(registry: "Registry", work: Work, column: Column) -> Column:
    """Make a derived version of each payload; row n of it belongs to row n of what was measured."""
    versions: dict[str, str] = {}
    for name in work.measure.payloads:
        main = name == column.name
        store = _derived_store(registry)
        files = [(part.payload if main else part.payloads[name]).removeprefix("b3:") for part in column.parts]
        entries = [store.describe(file) for file in files]
        raws = [RawFile(store, entry.name, entry.bytes, entry.stamp) for entry in entries]
        scans = with_rows(scan_all(raws, "tokens", Policy(), registry.store, engine="local", watch=None))
        remarks = column.remarks if main else ()
        note = "; ".join([f"{name} of {work.version.address}", *remarks])
        about = About(note=note, derived_from=(work.version.digest,))
        versions[name] = registry.publish_derived(
            payload_name(work.version.name, column, name),
            assemble("tokens", scans, mixed=False),
            root="registry:/derived",
            about=about,
        ).digest
    first = versions.pop(column.name, "")
    return msgspec.structs.replace(column, payload_version=first, payload_versions=versions)


def _derived_store(registry: "Registry") -> Store:
    store = registry.store
    if isinstance(store, LayeredStore):
        return store.below("derived", open_store)
    return open_store(f"{registry.url}/derived")
