"""A version: one immutable edition of a dataset, readable row by row where its files are."""

import bisect
import builtins
import functools
import operator
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from penstock._rust import ShardFile, look_again
from penstock.errors import (
    BadRow,
    CorruptShard,
    FileUnusable,
    MaskLengthWrong,
    ObjectMissing,
    PenstockError,
    RowOutOfRange,
    UsageError,
)
from penstock.formats import format_named
from penstock.formats.contract import FieldKind, IndexPlace, OpenShard, RawFile, Row, RowReader
from penstock.formats.shard_bytes import open_file
from penstock.registry.columns.column import Column, columns_of, values_of
from penstock.registry.copies.derived import remake
from penstock.registry.copies.row_copies import RowCopy
from penstock.registry.manifest import Field, Manifest, Shard
from penstock.registry.scan.scan import object_name
from penstock.registry.selection.account import Account
from penstock.registry.verification import Report, verify_version
from penstock.registry.version_entry import About, VersionEntry
from penstock.store import Store, is_remote, join, open_store
from penstock.store.hostcache import read_object

if TYPE_CHECKING:
    import pyarrow as pa

#: Shards that stay open in any case; more do while there are files to open and their indexes are small.
_OPEN_SHARDS_MIN = 128
_OPEN_SHARDS_MAX = 4096
_OPEN_ROWS_MAX = 8 << 20
_ITERATE_ROWS = 1024
#: More than one row: as a slice, by numbers, or by a mask.
RowChoice = slice | Sequence[int] | np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Access:
    """How the rows of a version are read: nothing here changes a value that is delivered."""

    #: The fields that are wanted; None for all.
    fields: tuple[str, ...] | None = None
    #: Copies that are read instead of shards, by the digest of the shard's index.
    copies: Mapping[str, RowCopy] = field(default_factory=dict)


class Version:
    """One immutable edition of a dataset. Think of it as a sequence of rows; every row is a dict.

    Bytes are checked against the registered checksums when they are first touched; whatever is not what was registered
    raises ``CorruptShard`` with file and offset.
    """

    def __init__(
        self,
        *,
        record: VersionEntry,
        manifest: Manifest,
        registry: Store,
        roots: Sequence[str],
        access: "Access | None" = None,
        by_digest: bool = False,
    ) -> None:
        self.record = record
        self.manifest = manifest
        #: Where the shards are, newest first.
        self.roots = tuple(roots)
        #: What was taken and left out; only known to who has just registered it.
        self.account: Account | None = None
        self._registry = registry
        self._access = access or Access()
        #: Whether its number means something only in a scratch.
        self._by_digest = by_digest
        self._ends = list(_running_total(shard.rows for shard in manifest.shards))
        self._readers: OrderedDict[int, RowReader] = OrderedDict()
        #: Rows of the shards that are open, which their indexes grow with.
        self._open_rows = 0
        #: Files opened to look rows up, by shard.
        self._indexed: dict[str, ShardFile] = {}
        self._partitioned = {name for shard in manifest.shards for name in shard.partition}
        self._lock = threading.Lock()

    def __reduce__(self) -> "tuple[Callable[..., Version], tuple[Any, ...]]":
        # Open files do not travel to other processes; what is needed to open them again does.
        return _rebuild, (*self._parts, self._access, self._by_digest)

    def accessed(self, access: "Access") -> "Version":
        """The same version, read in another way."""
        return _rebuild(*self._parts, access, self._by_digest)

    @property
    def access(self) -> "Access":
        """How its rows are read."""
        return self._access

    @property
    def _parts(self) -> "tuple[VersionEntry, Manifest, Store, tuple[str, ...]]":
        return self.record, self.manifest, self._registry, self.roots

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self.record.name

    @property
    def number(self) -> int:
        """Which edition this is, from 1."""
        return self.record.number

    @property
    def address(self) -> str:
        """``web@3``; of one that is in a scratch, with its digest instead of the number."""
        which = self.record.manifest if self._by_digest else self.record.number
        return f"{self.record.name}@{which}"

    @property
    def store(self) -> Store:
        """Where its indexes and copies are: the store of its registry."""
        return self._registry

    @property
    def digest(self) -> str:
        """What identifies the version everywhere: the digest of its manifest."""
        return self.record.manifest

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.manifest.rows

    @property
    def bytes(self) -> int:
        """Size of its shards."""
        return self.manifest.bytes

    @property
    def schema(self) -> tuple[Field, ...]:
        """Its fields."""
        return tuple(self.manifest.schema)

    @property
    def about(self) -> About:
        """What people say about it."""
        return self.record.about

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<Version {self.address} {self.manifest.format}, {self.rows:,} rows, {self.digest[:15]}>"

    @overload
    def __getitem__(self, row: int) -> Row: ...
    @overload
    def __getitem__(self, row: RowChoice) -> list[Row]: ...
    def __getitem__(self, row: "int | RowChoice") -> Row | list[Row]:
        """A row by its number, or a list of rows by a slice, row numbers or a mask of booleans, as numpy has them."""
        if isinstance(row, slice):
            try:
                return self.take(range(*row.indices(self.rows)))
            except (TypeError, ValueError) as reason:
                raise _no_rows(row) from reason
        if isinstance(row, bool | np.bool_):
            raise _no_rows(row)
        # Tensors of frameworks have an index too, and are lists of rows unless they are a single number.
        if isinstance(row, SupportsIndex) and getattr(row, "ndim", 0) == 0:
            try:
                number = operator.index(row)
            except TypeError as reason:
                raise _no_rows(row) from reason
            if not -self.rows <= number < self.rows:
                raise RowOutOfRange(row=number, rows=self.rows)
            return self.take([number])[0]
        return self.take(row)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Row]:
        for first in range(0, self.rows, _ITERATE_ROWS):
            yield from self.take(range(first, min(self.rows, first + _ITERATE_ROWS)))

    def take(self, rows: Sequence[int] | np.ndarray[Any, Any], *, parallel: bool = True) -> list[Row]:
        """The given rows, in the order given; negative numbers count from the end. A mask of booleans takes the rows that are true.

        Shards are read in parallel, unless the caller has threads of its own.
        """
        wanted = self._checked(rows)
        if not len(wanted):
            return []
        shards = np.searchsorted(np.asarray(self._ends, dtype=np.int64), wanted, side="right")
        present = np.unique(shards)
        if len(present) == 1:
            return self._take_of(int(present[0]), wanted)
        places = [np.flatnonzero(shards == shard) for shard in present]
        pairs = [(int(shard), wanted[place]) for shard, place in zip(present, places, strict=True)]
        if parallel:
            workers = min(len(present), os.cpu_count() or 1)
            with ThreadPoolExecutor(workers, thread_name_prefix="penstock-take") as pool:
                parts = list(pool.map(lambda pair: self._take_of(*pair), pairs))
        else:
            parts = [self._take_of(*pair) for pair in pairs]
        taken: list[Row] = [{}] * len(wanted)
        for place, part in zip(places, parts, strict=True):
            for at, row in zip(place.tolist(), part, strict=True):
                taken[at] = row
        return taken

    def to_arrow(self, rows: range | None = None) -> "pa.Table":
        """A range of rows as an Arrow table (all of them if none is given)."""
        import pyarrow as pa

        chosen = range(self.rows) if rows is None else rows
        samples = self.take(chosen)
        names = [column.name for column in self.schema]
        return pa.table({name: [_arrow_value(sample.get(name)) for sample in samples] for name in names})

    def verify(self, watch: "Callable[[int, int], None] | None" = None) -> Report:
        """Read every byte of every shard, in parallel, and report all damage with file and offset."""
        return verify_version(self, watch)

    def columns(self) -> list[Column]:
        """The measured columns that are kept of all its rows."""
        return columns_of(self._registry, self.digest)

    def column_values(self, column: Column) -> "np.ndarray[Any, Any]":
        """The values of one of them, in row order."""
        return values_of(self._registry, column)

    def shard_rows(self, name: str) -> tuple[int, int]:
        """First row of a shard, and the row after its last."""
        at = next(at for at, shard in enumerate(self.manifest.shards) if shard.name == name)
        return self._ends[at] - self.manifest.shards[at].rows, self._ends[at]

    def shard_of(self, row: int) -> tuple[Shard, int]:
        """The shard that holds a row, and the row's place in it."""
        number = int(self._checked([row])[0])
        at = bisect.bisect_right(self._ends, number)
        shard = self.manifest.shards[at]
        return shard, number - (self._ends[at] - shard.rows)

    def byte_range(self, shard: Shard, row: int) -> tuple[int, int] | None:
        """First byte and end of a row in its shard (in a compressed one, of the decompressed stream), where it has them."""
        with self._lock:
            file = self._indexed.get(shard.name)
        if file is None:
            file = open_file(self.open_shard(shard))
            with self._lock:
                if len(self._indexed) >= _OPEN_SHARDS_MIN:
                    self._indexed.clear()
                self._indexed[shard.name] = file
        span = file.span(row)
        return None if span is None else (span[0], span[0] + span[1])

    def open_shard(self, shard: Shard) -> OpenShard:
        """Where the bytes of a shard are, preferring its row-addressable copy, and its index."""
        if shard.derived:
            return self._opened(self.derived_file(shard), shard, shard.derived_index)
        if (copy := self._access.copies.get(shard.index)) is not None:
            # One that was pruned meanwhile is missed by nobody but the clock.
            with suppress(ObjectMissing):
                name = object_name(copy.derived, "derived")
                entry = self._registry.describe(name)
                raw = RawFile(self._registry, name, entry.bytes, entry.stamp)
                return self._opened(raw, shard, copy.derived_index)
        return self._opened(self.raw(shard.name, known_bytes=shard.bytes), shard, shard.index)

    def index_of(self, name: str) -> "Path | builtins.bytes":
        """An index by its digest: the file that holds it where there is one, else its bytes."""
        path = self._registry.local_path(object_name(name))
        return path if path is not None else read_object(self._registry, object_name(name), name)

    def _index_place(self, name: str) -> IndexPlace:
        """An index as it is opened: one that is far away is fetched when its shard is first touched."""
        path = self._registry.local_path(object_name(name))
        client = getattr(self._registry, "client", None)
        return self.index_of(name) if path is not None or client is None else (client, object_name(name))

    def raw(self, name: str, *, known_bytes: int | None = None) -> RawFile:
        """An original file of the version, at the newest place that has it.

        Where that can only be one place and it is far, ``known_bytes`` saves asking it: a version of a thousand shards opens without a
        request, and one whose bytes are all in the host's cache without its store. Whoever reads checks every byte anyway.
        """
        trusted = known_bytes is not None and len(self.roots) == 1 and is_remote(self.roots[0])
        for root in self.roots:
            store = open_store(root)
            if (located := self._located(store, name)) is not None:
                return located
            if known_bytes is not None and trusted:
                return RawFile(store, name, known_bytes, "")
            try:
                entry = store.describe(name)
            except ObjectMissing:
                continue
            return RawFile(store, name, entry.bytes, entry.stamp)
        problem = CorruptShard(shard=join(self.roots[0], name), offset=0, reason="the file is gone")
        problem.hint = "if it has moved: `penstock data relocate NAME@V --root OLD=NEW`"
        raise problem

    def _located(self, store: Store, name: str) -> RawFile | None:
        """A shard that is many files, if the format has such and the store has any of its files."""
        locate = getattr(format_named(self.manifest.format), "locate", None)
        shard = next((shard for shard in self.manifest.shards if shard.name == name), None)
        if locate is None or shard is None:
            return None
        located: RawFile = locate(store, name, self.index_of(shard.index), shard.index)
        return located if len(self.roots) == 1 or any(map(_exists, located.members[:8])) else None

    def derived_file(self, shard: Shard) -> RawFile:
        """The row-addressable copy of a shard; one that was pruned is made again."""
        name = object_name(shard.derived, "derived")
        try:
            entry = self._registry.describe(name)
        except ObjectMissing:
            remake(
                self.raw(shard.name), self.index_of(shard.index), self.manifest.format, shard, self._registry
            )
            entry = self._registry.describe(name)
        return RawFile(self._registry, name, entry.bytes, entry.stamp)

    def _opened(self, raw: RawFile, shard: Shard, index: str) -> OpenShard:
        # What folders say about a shard is not in it.
        schema = [
            FieldKind(column.name, column.kind, column.optional)
            for column in self.schema
            if column.name not in self._partitioned
        ]
        place, fields = self._index_place(index), self._access.fields
        return OpenShard(raw.url, raw, shard.rows, place, index, schema, fields)

    def _take_of(self, at: int, rows: "np.ndarray[Any, Any]") -> list[Row]:
        try:
            return self._read_of(at, rows)
        except (OSError, MemoryError):
            raise
        except Exception as reason:
            if isinstance(reason, PenstockError) and not isinstance(reason, FileUnusable | BadRow):
                raise
        # What cannot be decoded may have changed since it was checked; then that is what is wrong with it.
        look_again()
        return self._read_of(at, rows)

    def _read_of(self, at: int, rows: "np.ndarray[Any, Any]") -> list[Row]:
        shard, fields = self.manifest.shards[at], self._access.fields
        reader = self._reader(at)
        taken = reader.take((rows - (self._ends[at] - shard.rows)).astype(np.uint64))
        if fields is not None and not getattr(reader, "selects_fields", False):
            taken = [{name: row[name] for name in fields if name in row} for row in taken]
        partition = {
            name: value for name, value in shard.partition.items() if fields is None or name in fields
        }
        return [{**row, **partition} for row in taken] if partition else taken

    def _reader(self, at: int) -> RowReader:
        with self._lock:
            reader = self._readers.get(at)
            if reader is not None:
                self._readers.move_to_end(at)
                return reader
        opened = format_named(self.manifest.format).open(self.open_shard(self.manifest.shards[at]))
        with self._lock:
            # Another thread may have opened it meanwhile; both are good, one is kept. A reader that is put out is not
            # closed here, since someone may be reading from it: it goes when its last user lets go.
            if at not in self._readers:
                self._readers[at] = opened
                self._open_rows += self.manifest.shards[at].rows
            reader = self._readers[at]
            while self._too_many_open():
                closed, _ = self._readers.popitem(last=False)
                self._open_rows -= self.manifest.shards[closed].rows
        return reader

    def _too_many_open(self) -> bool:
        count = len(self._readers)
        return count > _OPEN_SHARDS_MIN and (count > _open_shards_max() or self._open_rows > _OPEN_ROWS_MAX)

    def _checked(self, rows: Sequence[int] | np.ndarray[Any, Any]) -> "np.ndarray[Any, Any]":
        if isinstance(rows, range):
            wanted = np.arange(rows.start, rows.stop, rows.step, dtype=np.int64)
        else:
            wanted = self._numbers(rows)
        wanted[wanted < 0] += self.rows
        outside = (wanted < 0) | (wanted >= self.rows)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise RowOutOfRange(row=int(rows[at]), rows=self.rows)
        return wanted

    def _numbers(self, rows: Any) -> "np.ndarray[Any, Any]":
        """Row numbers, of our own to change."""
        try:
            numbers = np.asarray(rows)
        except (TypeError, ValueError, OverflowError) as reason:
            raise _no_rows(rows) from reason
        if numbers.dtype == np.bool_:
            if numbers.shape != (self.rows,):
                raise MaskLengthWrong(mask=numbers.size, rows=self.rows)
            return np.flatnonzero(numbers).astype(np.int64)
        if numbers.dtype == object and all(isinstance(number, int) for number in numbers.flat):
            # Numbers that no row can have.
            raise RowOutOfRange(row=max(numbers.flat, key=abs), rows=self.rows)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise _no_rows(rows)
        # Numbers of 64 bits without a sign may be larger than any row, and must not become negative.
        if numbers.dtype == np.uint64 and numbers.size and int(numbers.max()) >= 1 << 63:
            raise RowOutOfRange(row=int(numbers.max()), rows=self.rows)
        return np.array(numbers, dtype=np.int64)


def _no_rows(rows: Any) -> UsageError:
    hint = "give a row number, a slice, a list of row numbers, or a mask with a boolean for every row"
    return UsageError(f"rows are whole numbers, not {rows!r:.100}", hint=hint)


@functools.cache
def _open_shards_max() -> int:
    """How many shards of one version may be open: an eighth of the files that the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _OPEN_SHARDS_MAX if soft == resource.RLIM_INFINITY else soft // 8
    return max(_OPEN_SHARDS_MIN, min(_OPEN_SHARDS_MAX, allowed))


def _exists(raw: RawFile) -> bool:
    try:
        raw.store.describe(raw.name)
    except ObjectMissing:
        return False
    return True


def _rebuild(
    record: VersionEntry,
    manifest: Manifest,
    registry: Store,
    roots: tuple[str, ...],
    access: Access,
    by_digest: bool,
) -> Version:
    return Version(
        record=record, manifest=manifest, registry=registry, roots=roots, access=access, by_digest=by_digest
    )


def _running_total(counts: Iterator[int]) -> Iterator[int]:
    total = 0
    for count in counts:
        total += count
        yield total


def _arrow_value(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
