"""The Rust side of Penstock. Not public: use the packages that carry these names."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, final

from typing_extensions import Buffer

#: A file on this machine, or name, length in bytes, and a function from offset and length to exactly those bytes.
_Source: TypeAlias = (
    Path
    | tuple[StoreClient, str, int, str]
    | tuple[StoreClient, str, str]
    | tuple[StoreClient, str, list[tuple[str, int]]]
    | tuple[str, int, Callable[[int, int], bytes]]
)
_Index: TypeAlias = Path | bytes | tuple[StoreClient, str]

# One name per line would be a page of its own.
# fmt: off
__all__ = [
    "Arena", "BatchServer", "EventReader", "Exchange", "Feed", "FeedBatch", "HostCache", "ServiceClient",
    "ServiceFeed", "ShardFile", "SharedBytes", "Span", "StepClaim", "StoreClient", "Tally", "__version__",
    "archive_members", "build_rest", "build_table", "copy_buffers", "digest", "digest_file",
    "digest_records", "digest_rows", "disk_room", "events_abandon", "events_flush", "events_path",
    "events_start", "events_statistics", "events_stop", "find_damage", "first_position", "hash_buffers",
    "held_out", "look_again", "parse_size", "quick_hash", "ramp_part", "read_for_step", "read_object", "read_tensors",
    "record", "reframe", "scan_known", "scan_rows", "slice_order", "span", "stops_at", "store_counts",
    "store_flying", "token_lengths", "usable_row", "use_cache", "write_buffers", "zstd_head",
]
# fmt: on

__version__: str

def events_start(path: Path, *, host: str, argv: list[str], bytes_max: int) -> None:
    """Start recording into a new file."""

def events_stop() -> None:
    """End the recording after a last drain."""

def events_abandon() -> None:
    """In the child of a fork: forget the parent's recorder without touching its file."""

def events_flush(timeout_s: float) -> bool:
    """Wait until what was recorded before is on file."""

def events_path() -> Path | None:
    """The file that is being recorded into."""

def events_statistics() -> tuple[int, int, int, str | None] | None:
    """Written, lost, bytes, and the last failure; nothing when not recording."""

def record(kind: str, /, **fields: object) -> None:
    """Record that something happened now. Never waits; does nothing when not recording."""

def span(kind: str, /, **fields: object) -> Span:
    """Record that something begins now; leaving the returned context records its end."""

@final
class Span:
    """A span that has begun; leaving it as a context records its end."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class EventReader:
    """Reads a recording frame by frame."""

    def __new__(cls, path: Path) -> Self: ...
    @property
    def header(self) -> str:
        """Who recorded, as JSON."""
    @property
    def torn_bytes(self) -> int:
        """Bytes after the last whole frame; known at the end."""
    def next_frame(
        self,
    ) -> (
        list[
            tuple[
                Literal["point", "begin", "end", "lost", "closed"],
                int,
                int,
                int,
                str,
                dict[str, object],
                bool,
            ]
        ]
        | None
    ):
        """Fact, time_ns, thread, span, kind, fields and whether something was cut, per record; None at the end."""

def digest(data: bytes) -> str:
    """The blake3 digest of some bytes, as ``b3:`` and 64 hexadecimal digits."""

def digest_file(path: Path) -> str:
    """The blake3 digest of a file."""

def digest_rows(position: int, rows: list[bytes]) -> int:
    """The sum of the digests of rows (128 bits), given as the bytes that stand for them; the first is at ``position``."""

def digest_records(
    position: int, rows: list[Any], encoded: Callable[[Any], Iterable[Buffer]]
) -> tuple[int, int]:
    """The same for rows given as dicts, or as the bytes that stand for them; and the bytes of all values.

    ``encoded`` gives the parts that stand for a value that is no number, text, bytes, list or dict.
    """

def usable_row(row: Any, fresh: bool, usable: Callable[[Any], Any]) -> dict[str, Any] | None:
    """The row with usable values: itself if it is ``fresh`` and has no others, else with lists and dicts copied.

    ``usable`` makes something of values of other types. None when something is wrong with the row.
    """

def quick_hash(data: bytes) -> int:
    """The xxh3_64 hash of some bytes."""

def zstd_head(head: bytes, bytes_max: int) -> bytes:
    """The beginning of what is inside a zstd file, as far as the given beginning of the file reaches."""

def scan_rows(
    format: str,  # noqa: A002
    source: _Source,
    index: Path,
    *,
    shard: str,
    choices: dict[str, Any],
    progress: Callable[[int, int], object],
) -> dict[str, Any]:
    """Scan a shard of a format whose rows Rust finds, write its index, and return what was found.

    ``choices`` has row_bytes_max, skip_bad and mixed. ``progress`` is told bytes and rows in all about every 4 MiB; an
    exception there ends the scan and is raised again. The result has rows, bytes, digest, schema (name, kind, optional),
    bad (line, offset, reason) and details (JSON).
    """

def scan_known(
    format: str,  # noqa: A002
    source: _Source,
    index: Path,
    *,
    shard: str,
    choices: dict[str, Any],
    progress: Callable[[int, int], object],
    known: dict[str, Any],
) -> dict[str, Any]:
    """Sum a shard whose rows Python has found, write its index, and return what was found.

    ``known`` has rows, offsets (u64 buffer or None), lengths (u32 buffer or None), names and details (JSON object). It may
    have mds_columns, encodings with sizes where those are fixed; then rows are looked at as MDS samples in the same pass,
    and the result has doubtful: the numbers of rows (u64, as bytes) that may not decode. All others do.
    """

def reframe(
    source: _Source, output: Path, *, shard: str, packing: str, progress: Callable[[int, int], object]
) -> int:
    """Copy the lines of a plain, gzip or zstd file into small zstd frames; the bytes written."""

@final
class ShardFile:
    """One shard, open for reading; every byte that leaves it has matched its registered checksum."""

    def __new__(cls, source: _Source, index: _Index, digest: str) -> Self: ...
    @property
    def rows(self) -> int:
        """How many rows it has."""
    @property
    def document(self) -> str:
        """What the index says about the shard beyond its rows, as JSON."""
    def key(self, row: int) -> str | None:
        """The key of a row, where rows have keys."""
    def span(self, row: int) -> tuple[int, int] | None:
        """First byte and length of a row."""
    def gather(self, rows: Buffer, threads: int) -> tuple[bytes, bytes]:
        """The bytes of the given rows (u64), one after another, and where each ends (u64)."""
    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the file itself."""

def find_damage(source: _Source, index: _Index, digest: str) -> list[tuple[int, int, str]]:
    """Every stretch of a file that is not as its index says: first byte, length, in which way."""

def look_again() -> None:
    """Let the next read of every file look first whether it has changed: bytes were read that make no sense."""

def read_for_step(step: int | None) -> None:
    """Say which step of a feed this thread reads for from now on, so that damage names the steps that a shard was read for."""

def archive_members(shard: str, row: bytes) -> list[tuple[str, int, int]]:
    """The members of one sample of an archive: extension, first byte, end."""

_ShardParts: TypeAlias = tuple[_Source, _Index, str, int, tuple[int, int] | None]

@final
class Feed:
    """Batches of one lane, read ahead by threads."""

    def __new__(
        cls,
        plan: dict[str, Any],
        lane: tuple[int, int],
        step: int,
        threads: int,
        memory_bytes: int,
        share: str | None = None,
    ) -> Self: ...
    def next(self) -> FeedBatch | None:
        """The next batch, or None at the end of the stream."""
    def waits(self) -> tuple[int, int, bytes]:
        """Batches delivered, batches ready, and the last waits in seconds (f64)."""
    def stage_times(self) -> tuple[float, float, float]:
        """Seconds of all threads since opening: planning, reading, hashing."""
    def stage(self) -> str:
        """What its threads do now: read, plan, measure, share (somebody else makes the batch), or idle."""
    def stage_spread(self) -> list[tuple[float, float]]:
        """Seconds that half and 99 % of all batches did not pass: planning, reading, hashing, getting them from others."""
    def sharing(self) -> _SharingTold | None:
        """What it is for other processes that read the same lane, and counts; None when batches are not shared."""
    def epochs_before(self, step: int) -> list[float | None]:
        """How often each source has been read before a step; None where that is not known."""
    def recurrence(self, blocks_max: int) -> list[float]:
        """For each source, the share of neighbours in packs that come together again in the next epoch, from a few blocks."""
    def add_part(self, source: int, part: dict[str, Any]) -> None:
        """Add the next part of a source that grows."""
    def fail_source(self, source: int, problem: BaseException) -> None:
        """Say that no more parts of a source will come; steps that need more raise the exception."""
    def wanted(self) -> list[int]:
        """How many rows of each source the furthest step that was begun needs."""
    def close(self) -> None:
        """End the threads."""

@final
class FeedBatch(Buffer):
    """One batch; a buffer of its tokens, row after row."""

    @staticmethod
    def from_bytes(packed: bytes) -> FeedBatch:
        """The batch that bytes are; BatchDamaged when they are none."""
    def to_bytes(self) -> bytes:
        """The batch as bytes for another process, hash included."""
    @property
    def step(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def item_bytes(self) -> int: ...
    @property
    def digest(self) -> int: ...
    @property
    def padding(self) -> int: ...
    def boundaries(self) -> bytes:
        """Where documents begin and end in all rows taken as one sequence (i32)."""
    def real_tokens(self) -> bytes:
        """1 for every token and 0 for padding, row after row (u8)."""
    def mask(self) -> bytes | None:
        """1 for tokens that count in the loss, row after row (u8); None when no source has a mask."""
    def origins(self, row: int) -> list[tuple[int, int, int, int, int, int]]:
        """What a row is made of: place in the row, tokens, source, sample, first token in it, epoch."""
    def samples(self) -> tuple[bytes, bytes]:
        """The sample of each stretch of each row, in order: its source (u32) and its row of the version (u64)."""
    def places(self) -> bytes:
        """Row, source, sample and epoch of each stretch of each row, in order (u64)."""

#: What it is; steps made here, by others, alone; moves; members and bytes of a reader; why it reads alone.
_SharingTold: TypeAlias = tuple[str, int, int, int, int, int, int, str | None]

@final
class Exchange:
    """Steps that Python finishes, each finished once by all processes that read the same lane."""

    def __new__(cls, key: str, budget_bytes: int) -> Self: ...
    def ask(self, step: int) -> SharedBytes | StepClaim | None:
        """What another made of a step, the right to make it for everybody, or None to make it alone."""
    def told(self) -> _SharingTold:
        """What this process is for the others, and counts."""
    def close(self) -> None:
        """Take part no more."""

@final
class StepClaim:
    """The right to make a step for everybody; forgotten without a result, another makes it."""

    def put(self, packed: bytes) -> SharedBytes | None:
        """Hand over what was made; the same as others see it, or None when there is no memory for that."""

@final
class SharedBytes(Buffer):
    """Bytes that all processes look at in the same memory; a buffer that cannot be written to."""

@final
class BatchServer:
    """Makes batches of a plan and serves them, without the GIL where Rust makes them alone."""

    def __new__(
        cls,
        plan: dict[str, Any],
        bind: tuple[str, int],
        told: tuple[bytes, str],
        functions: tuple[
            Callable[[FeedBatch], bytes] | None, Callable[[int, int], bytes], Callable[[int], None]
        ],
        recurrence_blocks: int,
        options: dict[str, Any],
    ) -> Self:
        """``told``: what clients get as the plan, and its name.

        ``functions``: finishes a batch, finds a sample's origin, and learns the port before anything is answered.
        """
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
    def statistics(self) -> str:
        """Counters since the start, as JSON."""
    def stop(self, limit_s: float) -> bool:
        """Refuse what is new, finish what is being sent, and end; whether all was sent in time."""
    def add_part(self, source: int, part: dict[str, Any]) -> None:
        """Add the next part of a source that grows."""
    def fail_source(self, source: int, problem: BaseException) -> None:
        """Say that no more parts of a source will come; steps that need more get the exception."""
    def wanted(self) -> list[int]:
        """How many rows of each source the furthest step that was begun needs."""

@final
class ServiceClient:
    """Asks servers questions."""

    def __new__(cls, options: dict[str, Any]) -> Self: ...
    @staticmethod
    def protocol() -> tuple[int, int]:
        """The protocol that is spoken, and the layout of batches."""
    def ask(self, path: str) -> bytes:
        """What the first server that answers says."""
    def ask_one(self, server: int, path: str) -> bytes:
        """What one server says, asked once."""
    def close(self) -> None:
        """End requests that are under way."""

@final
class ServiceFeed:
    """Batches of one lane, read ahead from servers."""

    def __new__(
        cls, options: dict[str, Any], wanted: dict[str, Any], step: int, threads: int, memory_bytes: int
    ) -> Self:
        """``wanted`` has lane, plan (its name), skips, and finished: whether Python reads the batches."""
    def next(self) -> FeedBatch | bytes | None:
        """The next batch, or its bytes where Python reads them; None at the end of the stream."""
    def waits(self) -> tuple[int, int, bytes]:
        """Batches delivered, batches ready, and the last waits in seconds (f64)."""
    def counts(self) -> list[int]:
        """Requests, failures, damaged answers, and how often another server took over."""
    def close(self) -> None:
        """End the threads."""

@final
class Tally:
    """What was handed out, counted in one call per batch."""

    def __new__(cls, sources: int) -> Self: ...
    def add(self, batch: FeedBatch) -> int:
        """Count a batch; how many there were before it."""
    def read(self) -> tuple[int, int, int, list[int]]:
        """Rows, tokens with padding, tokens of padding, and rows of each source."""

def build_table(
    path: Path, lengths: Buffer, kept: Buffer | None, starts: Buffer | None, packing: dict[str, Any]
) -> int:
    """Build a plan table from measured lengths (u32), verdicts (u8) and first planned tokens (u32); its packs per epoch.

    ``packing`` has length, policy, shuffle and source: the digest that decides which samples share a block.
    """

def build_rest(path: Path, broken: dict[str, Any], packing: dict[str, Any]) -> int:
    """Build the table of what a leg has not delivered of an epoch, packed anew; its packs.

    ``broken`` has table, source (what its orders derive from), seed, length, epoch and delivered (rows).
    """

#: Epochs, the last phase that is planned (first row, epoch, packs of the rest, part), packs up to and including each part.
_Course: TypeAlias = tuple[int | None, tuple[int, int, int, int], list[int]]
#: Rows that a source has given, and where the next one lies: part (None for the rest), epoch, index.
_Stop: TypeAlias = tuple[int, int | None, int, int]

def stops_at(mixture: dict[str, Any], sources: list[_Course], step: int) -> list[_Stop] | None:
    """Where each source stands before a step; None when the stream ends before it."""

def ramp_part(shape: str, every: int, length: int, at: int) -> float:
    """How far a ramp of ``length`` steps has come at one of them: 0 where it begins, 1 where it ends."""

def token_lengths(shards: list[_ShardParts], item_bytes: int) -> bytes:
    """The length in tokens of every row of a version (u32), from its indexes."""

def held_out(version: str, rows: int, share: float) -> bytes:
    """1 for the rows of a version that are held out (u8): a fixed share of them, drawn by a key of the version."""

def first_position(batch: list[tuple[int, int]], step: int) -> int:
    """The first position of a step under a schedule of batches."""

@final
class Arena(Buffer):
    """Memory that states are captured into; a writable buffer."""

    def __new__(cls, size: int) -> Self: ...
    def touch(self, threads: int) -> None:
        """Touch every page, so that copying does not have to."""
    def __len__(self) -> int: ...

def copy_buffers(pairs: Sequence[tuple[Buffer, Buffer]], threads: int) -> None:
    """Copy from the first to the second of each pair, with several threads."""

def hash_buffers(buffers: Sequence[Buffer], chunk_bytes: int, threads: int) -> list[str]:
    """The hashes of the chunks of each buffer: hexadecimal digits, 32 per chunk, one after another."""

def write_buffers(path: Path, buffers: Sequence[Buffer], direct: bool, threads: int) -> int:
    """Write a new file from buffers, one after another, and sync it; its length."""

#: Tensor, file, first byte there, offset, shape, bytes of an element, hashes of the chunks.
_PieceParts: TypeAlias = tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, str]
#: Tensor, offset, shape, memory.
_TargetParts: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], Buffer]

def read_tensors(
    files: list[_Source],
    pieces: list[_PieceParts],
    targets: Sequence[_TargetParts],
    *,
    chunk_bytes: int,
    threads: int,
    direct: bool,
) -> int:
    """Fill every target from the pieces of its tensor, each chunk checked; the bytes that were read."""

def slice_order(version: str, slices: int) -> bytes:
    """The slices of a version in the order in which eras take them (u64): fixed for the version, whatever the seed."""

#: Name below the root, length in bytes, stamp, and the entity tag where the store has them.
_StoreEntry: TypeAlias = tuple[str, int, str, str | None]

@final
class StoreClient:
    """The client of a root in a store: s3, gs, az, http, https or memory. Every call keeps to the limits and fails with a store's error.

    ``options`` are settings of the provider by the names of its environment variables in lower case; ``limits`` those of
    ``penstock.store.Limits``. Clients that are made alike share connections, budget and limits.
    """

    def __new__(cls, url: str, options: dict[str, str], limits: dict[str, Any]) -> Self: ...
    @property
    def url(self) -> str:
        """Where the root is."""
    def get(self, name: str) -> bytes:
        """All bytes of an object."""
    def get_range(self, name: str, start: int, length: int, etag: str | None = None) -> bytes:
        """Exactly ``length`` bytes from ``start``, in parts that come at the same time; with a tag, only of that object."""
    def read_into(self, name: str, start: int, into: Buffer, etag: str | None = None) -> None:
        """The same into memory of the caller, which has to be writable and is filled whole."""
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Make an object unless it exists; whether this call made it."""
    def put_file_if_absent(self, name: str, path: Path) -> bool:
        """The same with the content of a file."""
    def put_buffers(self, name: str, buffers: Sequence[Buffer]) -> int:
        """Make or replace an object; its length."""
    def describe(self, name: str) -> _StoreEntry:
        """What the store says about an object."""
    def entries(self, prefix: str) -> list[_StoreEntry]:
        """All objects below a prefix, sorted by name."""
    def entries_beginning(self, text: str) -> tuple[list[_StoreEntry], list[str]]:
        """All objects whose names begin with a text, sorted by name, and names that no request can name."""
    def delete(self, name: str) -> None:
        """Remove an object; it is no error if it is gone."""

def store_counts() -> dict[str, Any]:
    """What this process has asked of stores: counts, and of every duration how many (``_times``), p50 and p99 in seconds."""

def store_flying() -> list[tuple[str, str, tuple[int, int] | None, str, float]]:
    """Requests that are under way, the oldest first: verb, URL, range, stage and age in seconds."""

@final
class HostCache:
    """A directory of verified pieces of far objects, shared by all processes of the host. Raises ``OSError`` if it cannot be one."""

    def __new__(
        cls,
        root: Path,
        *,
        limit: str,
        reserve_bytes: int,
        explicit: bool,
        patience_s: float,
        pause_s: float,
    ) -> Self: ...
    @property
    def root(self) -> Path:
        """The directory."""
    @property
    def limit_bytes(self) -> int:
        """Bytes that it may hold."""
    def show(self) -> tuple[int, int, int]:
        """Bytes, pieces and objects that are there; all files are looked at."""
    def ledger(self) -> list[tuple[str, int]]:
        """What all processes of the host have counted."""
    def verify(self, progress: Callable[[int], object]) -> tuple[int, int, list[Path]]:
        """Read everything and drop what is rotten: files and bytes that were read, and the files that were dropped."""
    def trim(self, bytes: int) -> int | None:  # noqa: A002 - what it is
        """Remove what was not used for longest until so many bytes are left; the bytes that went, None if another process is at it."""
    def clear(self) -> int:
        """Remove everything; the bytes that went."""

def use_cache(cache: HostCache | None) -> None:
    """Files opened from now on use this cache, or none."""

def disk_room(place: Path) -> tuple[int, int] | None:
    """Bytes of the disk that holds a directory, and how many are free."""

def parse_size(text: str, place: Path) -> int | None:
    """A size as people write it, in bytes on the disk of a directory; None if it is none."""

def read_object(client: StoreClient, name: str, digest: str) -> bytes:
    """A small object named by its content, through the cache of the host."""
