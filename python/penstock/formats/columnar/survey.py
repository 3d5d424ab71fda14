"""What parquet and Arrow files have in common while they are registered: kinds of columns, a survey, and the copy.

Both keep rows in units (row groups, record batches) that are decoded whole. The survey decodes every unit once, so that
what cannot be decoded is found at registration and not in the middle of a training run. Units of more than
``UNIT_BYTES_MAX`` make a random row too expensive; such a file gets a derived copy, an Arrow IPC file of small batches.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import FileEmpty, FileUnusable, StoreFailed
from penstock.formats.bad_rows import BadRows
from penstock.formats.columnar.times import untold_rows
from penstock.formats.contract import FieldKind, Policy, Progress, RawFile, Scanned
from penstock.formats.lines.compression import demand_room
from penstock.formats.shard_bytes import KnownRows, scan_known, silent
from penstock.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa

#: A unit that is larger than this when decoded costs too much for one row.
UNIT_BYTES_MAX = 64 << 20
#: More units than this make an index too large; the copy joins them.
UNITS_MAX = 1 << 16
#: About how much a batch of the copy holds.
COPY_BATCH_BYTES = 512 << 10
#: About how much is decoded at once while surveying.
PIECE_BYTES = 8 << 20
#: A copy of values that do not compress is a little larger than they are.
_COPY_OVERHEAD = 1.05


@dataclass(frozen=True, slots=True)
class Piece:
    """Some decoded rows of one unit."""

    unit: int
    #: Where the unit begins in the file.
    offset: int
    batch: "pa.RecordBatch"


@dataclass(slots=True)
class Survey:
    """What decoding everything once has found."""

    #: Rows and decoded bytes of each unit.
    unit_rows: list[int] = field(default_factory=list)
    unit_bytes: list[int] = field(default_factory=list)
    #: Columns that have nulls.
    nulls: set[str] = field(default_factory=set)
    #: Rows that are left out, as counted in the file.
    skipped: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows that are left."""
        return sum(self.unit_rows) - len(self.skipped)

    @property
    def needs_copy(self) -> bool:
        """Whether single rows are too expensive to reach."""
        return max(self.unit_bytes, default=0) > UNIT_BYTES_MAX or len(self.unit_rows) > UNITS_MAX


@contextmanager
def readable(raw: RawFile, what: str) -> Iterator[None]:
    """Turns whatever pyarrow says about a file that it cannot read into our error."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as reason:
        raise FileUnusable(
            path=raw.url, reason=f"not {what} that can be read: {first_line(reason)}"
        ) from reason


def first_line(reason: BaseException) -> str:
    """The beginning of a library's message."""
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0]


def plain_type(data_type: "pa.DataType") -> "pa.DataType":
    """The type that values are delivered as.

    Dictionaries, run ends and extensions become what they stand for. Nanoseconds become whole numbers, since Python's
    times end at microseconds.
    """
    import pyarrow as pa

    kinds = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return plain_type(data_type.storage_type)
    if kinds.is_dictionary(data_type) or kinds.is_run_end_encoded(data_type):
        return plain_type(data_type.value_type)
    if (
        kinds.is_timestamp(data_type) or kinds.is_time64(data_type) or kinds.is_duration(data_type)
    ) and data_type.unit == "ns":
        return pa.int64()
    if kinds.is_string_view(data_type):
        return pa.large_string()
    if kinds.is_binary_view(data_type):
        return pa.large_binary()
    if kinds.is_map(data_type):
        return pa.map_(plain_type(data_type.key_type), plain_type(data_type.item_type))
    if kinds.is_struct(data_type):
        return pa.struct([child.with_type(plain_type(child.type)) for child in data_type])
    if kinds.is_fixed_size_list(data_type):
        return pa.list_(
            data_type.value_field.with_type(plain_type(data_type.value_type)), data_type.list_size
        )
    if kinds.is_large_list(data_type) or kinds.is_large_list_view(data_type):
        return pa.large_list(data_type.value_field.with_type(plain_type(data_type.value_type)))
    if kinds.is_list(data_type) or kinds.is_list_view(data_type):
        return pa.list_(data_type.value_field.with_type(plain_type(data_type.value_type)))
    return data_type


def plain_schema(schema: "pa.Schema") -> "pa.Schema":
    """The schema of delivered values, without anything that a writer noted beside it."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, plain_type(column.type)) for column in schema])


def plain_batch(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    """A batch with the types of ``plain_schema``."""
    import pyarrow as pa

    columns = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        try:
            columns.append(_plain(column, wanted.type))
        except pa.ArrowException as reason:
            said = f"column {wanted.name!r} cannot become {wanted.type}: {first_line(reason)}"
            raise pa.ArrowNotImplementedError(said) from reason
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(array: "pa.Array", wanted: "pa.DataType") -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type) and not (
        _is_view(array.type.value_type) or _has_uncast(array.type.value_type)
    ):
        array = pyarrow.compute.run_end_decode(array)
    if array.type.equals(wanted):
        return array
    if pa.types.is_dictionary(array.type):
        # What is looked up first becomes what it shall be: pyarrow cannot look up views.
        values = _plain(array.dictionary, wanted)
        if pa.types.is_nested(wanted):
            # What has parts is looked up, but not cast.
            return values.take(array.indices)
        return pa.DictionaryArray.from_arrays(array.indices, values).cast(wanted)
    if _has_uncast(array.type):
        # Rare, so that it may be slow: inside others pyarrow casts no run ends and no dictionaries of views or of what has parts, it
        # decodes no run ends of views, and it breaks views of lists.
        return pa.array(array.to_pylist(), type=wanted)
    return array.cast(wanted)


def _has_uncast(data_type: "pa.DataType") -> bool:
    import pyarrow as pa

    kinds = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_uncast(data_type.storage_type)
    if (
        kinds.is_run_end_encoded(data_type)
        or kinds.is_list_view(data_type)
        or kinds.is_large_list_view(data_type)
    ):
        return True
    if kinds.is_dictionary(data_type):
        return _is_view(data_type.value_type) or bool(kinds.is_nested(data_type.value_type))
    return any(_has_uncast(data_type.field(at).type) for at in range(data_type.num_fields))


def _is_view(data_type: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string_view(data_type) or pa.types.is_binary_view(data_type))


def kind_of(data_type: "pa.DataType") -> str:
    """A plain type in the words of manifests."""
    import pyarrow as pa

    kinds = pa.types
    tests: list[tuple[str, tuple[Callable[[Any], bool], ...]]] = [
        ("bool", (kinds.is_boolean,)),
        ("int", (kinds.is_integer,)),
        ("float", (kinds.is_floating,)),
        ("string", (kinds.is_string, kinds.is_large_string)),
        ("bytes", (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary)),
        ("object", (kinds.is_struct,)),
        ("null", (kinds.is_null,)),
        ("time", (kinds.is_temporal,)),
        ("decimal", (kinds.is_decimal,)),
        ("mixed", (kinds.is_union,)),
    ]
    return next((name for name, holds in tests if any(test(data_type) for test in holds)), "list")


def check_columns(raw: RawFile, schema: "pa.Schema") -> None:
    """A row is a dict, so names of columns and of the fields inside them must be unique."""
    if len(schema) == 0:
        raise FileUnusable(path=raw.url, reason="it has no columns")
    _check_unique(raw, [column.name for column in schema], "columns")
    for column in schema:
        _check_inside(raw, column.name, column.type)


def _check_inside(raw: RawFile, path: str, data_type: "pa.DataType") -> None:
    import pyarrow as pa

    if (
        pa.types.is_union(data_type)
        and data_type.mode == "sparse"
        and list(data_type.type_codes) != list(range(data_type.num_fields))
    ):
        # pyarrow reads beyond its memory when it measures one, and takes the process along.
        reason = f"column {path!r} is a sparse union with type codes {list(data_type.type_codes)}"
        hint = "write it with type codes 0, 1, …, or as a dense union"
        raise FileUnusable(path=raw.url, reason=reason, hint=hint)
    if pa.types.is_struct(data_type):
        _check_unique(raw, [child.name for child in data_type], f"fields of column {path!r}")
    for at in range(data_type.num_fields):
        child = data_type.field(at)
        _check_inside(raw, f"{path}.{child.name}", child.type)


def _check_unique(raw: RawFile, names: list[str], what: str) -> None:
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise FileUnusable(path=raw.url, reason=f"two {what} are called {twice!r}")


def survey(
    pieces: Iterable[Piece], schema: "pa.Schema", policy: Policy, bad: BadRows, progress: Progress
) -> Survey:
    """Decode and check all rows. Pieces come in the order of the file; a unit may come in several."""
    result = Survey()
    first = 0
    for piece in pieces:
        # Rows are counted when the file is summed; this only lets whoever watches stop us.
        progress(0, 0)
        # Lengths and offsets that do not fit make the unit unreadable; `readable` says so.
        piece.batch.validate()
        while len(result.unit_rows) <= piece.unit:
            result.unit_rows.append(0)
            result.unit_bytes.append(0)
        reasons = dict(_bad_rows(piece.batch, policy.row_bytes_max))
        batch = plain_batch(piece.batch, schema)
        for row, reason in untold_rows(batch):
            reasons.setdefault(row, reason)
        for row in sorted(reasons):
            bad.add(first + row + 1, piece.offset, reasons[row])
            result.skipped.append(first + row)
        result.unit_rows[piece.unit] += batch.num_rows
        result.unit_bytes[piece.unit] += batch.nbytes
        first += batch.num_rows
        result.nulls.update(
            name for name, column in zip(batch.schema.names, batch.columns, strict=True) if column.null_count
        )
    return result


def _bad_rows(batch: "pa.RecordBatch", row_bytes_max: int) -> Iterator[tuple[int, str]]:
    """Rows over the limit or with invalid values: halves are looked into only where something is wrong."""
    import pyarrow as pa

    # Each turn takes a stretch off the stack, or replaces it by two that are shorter.
    stack = [(0, batch.num_rows)]
    while stack:
        start, count = stack.pop()
        part = batch.slice(start, count)
        reason = ""
        if part.nbytes > row_bytes_max:
            reason = f"it is longer than {row_bytes_max} bytes"
        else:
            try:
                part.validate(full=True)
            except pa.ArrowInvalid as problem:
                reason = first_line(problem)
        if reason and count > 1:
            half = count // 2
            stack += [(start + half, count - half), (start, half)]
        elif reason:
            yield start, reason


@dataclass(frozen=True, slots=True)
class Columnar:
    """A file on its way to being registered."""

    raw: RawFile
    format_name: str
    schema: "pa.Schema"
    #: Decodes the file from its beginning; called a second time when a copy is made.
    pieces: Callable[[], Iterable[Piece]]


def register(
    file: Columnar,
    details: Callable[[Survey], dict[str, Any]],
    policy: Policy,
    folder: Path,
    progress: Progress,
    *,
    always_copy: bool = False,
) -> Scanned:
    """Survey a file, sum it, and make a copy where that is needed."""
    bad = BadRows(file.raw.url, policy)
    check_columns(file.raw, file.schema)
    with readable(file.raw, file.format_name):
        schema = plain_schema(file.schema)
        surveyed = survey(file.pieces(), schema, policy, bad, progress)
    if surveyed.rows == 0:
        raise FileEmpty(path=file.raw.url, reason="it has no rows")
    fields = [
        FieldKind(
            column.name, kind_of(column.type), column.name in surveyed.nulls or kind_of(column.type) == "null"
        )
        for column in schema
    ]
    if not surveyed.needs_copy and not always_copy:
        known = KnownRows(rows=surveyed.rows, schema=fields, details=details(surveyed))
        result = scan_known(file.format_name, file.raw, policy, folder / "index.arrow", progress, known)
    else:
        known = KnownRows(rows=surveyed.rows, schema=fields)
        result = scan_known(file.format_name, file.raw, policy, folder / "index.arrow", progress, known)
        _copy(file, surveyed, schema, policy, result)
    result.skipped = bad.found
    return result


def _copy(file: Columnar, surveyed: Survey, schema: "pa.Schema", policy: Policy, result: Scanned) -> None:
    folder = result.index.parent
    growth = _COPY_OVERHEAD * sum(surveyed.unit_bytes) / max(1, file.raw.size_bytes)
    demand_room(file.raw, policy, folder, growth=growth)
    copy = folder / "copy.arrow"
    batch_rows = write_copy(_plain_batches(file, schema), schema, copy)
    store = open_store(folder)
    written = store.describe(copy.name)
    raw = RawFile(store, copy.name, written.bytes, written.stamp)
    known = KnownRows(
        rows=surveyed.rows,
        schema=result.schema,
        details={"container": "file", "rows": batch_rows, "skipped": surveyed.skipped},
    )
    scan_known("arrow", raw, policy, folder / "copy-index.arrow", silent, known)
    result.derived, result.derived_index = copy, folder / "copy-index.arrow"


def _plain_batches(file: Columnar, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    with readable(file.raw, file.format_name):
        for piece in file.pieces():
            yield plain_batch(piece.batch, schema)


def write_copy(batches: Iterable["pa.RecordBatch"], schema: "pa.Schema", path: Path) -> list[int]:
    """Write batches as an IPC file of batches of about ``COPY_BATCH_BYTES``; the rows of each."""
    import pyarrow as pa

    rows: list[int] = []
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    try:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
            for batch in _resized(batches):
                writer.write_batch(batch)
                rows.append(batch.num_rows)
    except (pa.ArrowException, OSError) as reason:
        raise StoreFailed(verb="write", url=str(path), reason=first_line(reason)) from reason
    return rows


def _resized(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Large batches cut, small ones joined."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        pieces = max(1, -(-batch.nbytes // COPY_BATCH_BYTES))
        step = max(1, batch.num_rows // pieces)
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            if waiting and waiting_bytes + part.nbytes > COPY_BATCH_BYTES:
                yield pa.concat_batches(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(part)
            waiting_bytes += part.nbytes
    if waiting:
        yield pa.concat_batches(waiting)
