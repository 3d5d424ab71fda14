"""Measured columns: one value per row of a version, computed once and kept by what produced it.

A column is keyed by the version's digest, the function's digest and its library's version, so it can be shared by
everybody and is never stale. It is computed shard by shard; each finished shard is an object of its own, so a killed
measurement goes on where it was. A function may also yield a payload per row (tokens); payloads become the shards of a
derived version, registered like any other and memory-mapped when read.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from penstock import events
from penstock._rust import digest
from penstock.errors import DerivedTooLarge, ManifestDamaged, ObjectMissing, UsageError
from penstock.formats.contract import Policy, RawFile, Row
from penstock.registry.assembling import assemble
from penstock.registry.payload import PayloadWriter
from penstock.registry.record import About
from penstock.registry.scanning import scan_all
from penstock.store import Store, open_store

if TYPE_CHECKING:
    from penstock.registry.registry import Registry
    from penstock.registry.version import Version

_CHUNK_ROWS = 1024
FORM = 1
#: Told how many rows are done, and how many there are.
MeasureWatch = Callable[[int, int], None]


class Measure(Protocol):
    """A function from rows to values, with an identity."""

    #: What the column is called.
    name: str
    #: Numpy type of the values.
    dtype: str

    @property
    def payload_dtype(self) -> str | None:
        """Numpy type of a payload element, or None when there is no payload."""

    def identity(self) -> dict[str, str]:
        """Everything that determines the values: kind, parameters by content, library version."""

    def compute(self, rows: list[Row]) -> tuple[list[Any], list[Any] | None]:
        """Values, and payloads if there are any, of some rows in order."""

    def payload_bytes(self, version: "Version") -> int:
        """About how many bytes all payloads of a version will take."""


class Part(msgspec.Struct, frozen=True):
    """The column of one shard."""

    rows: int
    #: Digest of the values, an object of the registry.
    values: str
    #: Digest of the payload's file among the derived data, if there is one.
    payload: str = ""


class Column(msgspec.Struct, frozen=True):
    """A finished column."""

    form: int
    version: str
    name: str
    dtype: str
    measure: dict[str, str]
    parts: list[Part]
    #: Digest of the derived version that holds the payloads.
    payload_version: str = ""

    @property
    def key(self) -> str:
        """What the column is kept under."""
        return column_key(self.version, self.measure)


def column_key(version: str, measure: dict[str, str]) -> str:
    """The name of a column: a digest of the version and of what is measured."""
    return digest(msgspec.json.encode((version, measure), order="deterministic")).removeprefix("b3:")


@dataclass(frozen=True, slots=True)
class Work:
    """One measurement: of what, with what, to where."""

    version: "Version"
    measure: Measure
    store: Store
    #: Folder of this column in the store.
    place: str


def measure_version(
    registry: "Registry",
    version: "Version",
    measure: Measure,
    *,
    engine: str = "local",
    derived_bytes_max: int = 1 << 40,
    watch: MeasureWatch | None = None,
) -> Column:
    """Compute a column, or find it: parallel over shards, resumable, cached."""
    identity = measure.identity()
    key = column_key(version.digest, identity)
    if (known := find_column(registry.store, key)) is not None:
        return known
    if measure.payload_dtype is not None and (needed := measure.payload_bytes(version)) > derived_bytes_max:
        raise DerivedTooLarge(
            what=f"{measure.name} of {version.address}", needed_bytes=needed, allowed_bytes=derived_bytes_max
        )
    work = Work(version, measure, registry.store, f"columns/{key}")
    with events.span("registry.measure", version=version.address, column=measure.name):
        parts = _measure_parts(work, engine, watch)
    payload = _publish_payload(registry, version, measure, parts)
    column = Column(FORM, version.digest, measure.name, measure.dtype, identity, parts, payload)
    registry.store.put_if_absent(
        f"{work.place}/column.json", msgspec.json.encode(column, order="deterministic")
    )
    return column


def find_column(store: Store, key: str) -> Column | None:
    """A finished column, if there is one."""
    name = f"columns/{key}/column.json"
    try:
        return msgspec.json.decode(store.get(name), type=Column)
    except ObjectMissing:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise ManifestDamaged(name=name, reason=str(reason)) from reason


def values_of(store: Store, column: Column) -> "np.ndarray[Any, Any]":
    """All values of a column in row order, checked against their digests."""
    arrays = []
    for part in column.parts:
        data = store.get(f"objects/{part.values.removeprefix('b3:')}")
        if digest(data) != part.values:
            raise ManifestDamaged(
                name=f"column {column.name}", reason="the values of a shard are not what was measured"
            )
        arrays.append(np.frombuffer(data, dtype=column.dtype))
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=column.dtype)


def _measure_parts(work: Work, engine: str, watch: MeasureWatch | None) -> list[Part]:
    numbers = range(len(work.version.manifest.shards))
    if engine == "ray":
        from penstock.registry.fanning import map_with_ray

        return map_with_ray(measure_shard, [(work, number) for number in numbers])
    if engine != "local":
        raise UsageError(f"there is no engine {engine!r}", hint="known are local and ray")
    done = 0
    parts = []
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="penstock-measure") as pool:
        try:
            for part in pool.map(lambda number: measure_shard(work, number), numbers):
                parts.append(part)
                done += part.rows
                if watch is not None:
                    watch(done, work.version.rows)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return parts


def measure_shard(work: Work, number: int) -> Part:
    """The column of one shard, or what an earlier measurement left of it."""
    name = f"{work.place}/{number}.json"
    try:
        return msgspec.json.decode(work.store.get(name), type=Part)
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        pass
    values, payload = _compute(work, number)
    data = np.asarray(values, dtype=work.measure.dtype).tobytes()
    values_digest = digest(data)
    work.store.put_if_absent(f"objects/{values_digest.removeprefix('b3:')}", data)
    part = Part(len(values), values_digest, payload)
    work.store.put_if_absent(name, msgspec.json.encode(part))
    return part


def _compute(work: Work, number: int) -> tuple[list[Any], str]:
    values: list[Any] = []
    dtype = work.measure.payload_dtype
    with tempfile.TemporaryDirectory(prefix="penstock-measure-", dir=_work_folder(work.store)) as folder:
        writer = PayloadWriter(Path(folder) / "payload.arrow", dtype) if dtype is not None else None
        for rows in _chunks(work.version, number):
            more, payloads = work.measure.compute(rows)
            values.extend(more)
            if writer is not None and payloads is not None:
                writer.add(payloads)
        return values, writer.keep(work.store) if writer is not None else ""


def _chunks(version: "Version", number: int) -> Iterator[list[Row]]:
    shard = version.manifest.shards[number]
    first, stop = version.shard_rows(shard.name)
    for start in range(first, stop, _CHUNK_ROWS):
        yield version.take(range(start, min(stop, start + _CHUNK_ROWS)))


def _publish_payload(registry: "Registry", version: "Version", measure: Measure, parts: list[Part]) -> str:
    if measure.payload_dtype is None:
        return ""
    store = open_store(f"{registry.url}/derived")
    names = [part.payload.removeprefix("b3:") for part in parts]
    # In the order of the version's shards, so that row n of the payload belongs to row n of the version.
    found = [store.describe(name) for name in names]
    raws = [RawFile(store, entry.name, entry.bytes, entry.stamp) for entry in found]
    scans = scan_all(raws, "tokens", Policy(), registry.store, engine="local", watch=None)
    about = About(note=f"{measure.name} of {version.address}", derived_from=(version.digest,))
    name = payload_name(version, measure.name, measure.identity())
    return registry.publish(
        name, assemble("tokens", scans, mixed=False), root="registry:/derived", about=about
    ).digest


def payload_name(version: "Version", name: str, identity: dict[str, str]) -> str:
    """The dataset of a measure's payloads: beside the version's own, told apart by what was measured."""
    return f"{version.name}/{name}-{digest(msgspec.json.encode(identity, order='deterministic'))[3:11]}"


def _work_folder(store: Store) -> Path | None:
    place = store.local_path("work")
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    return place
