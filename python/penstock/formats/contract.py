"""What a format has to do: recognise a file, scan it once, and open it for reading rows at random."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock._rust import StoreClient
from penstock.errors import UsageError
from penstock.store import Store, join

Row = dict[str, Any]
RowNumbers = npt.NDArray[np.uint64]
#: The file that holds an index, its bytes, or the object of a store that it is.
IndexPlace = Path | bytes | tuple[StoreClient, str]
#: Told how many bytes and rows were done since the last call.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file as it was given to `register`."""

    #: Where it is, and its name there.
    store: Store
    name: str
    size_bytes: int
    #: Changes whenever the file does.
    stamp: str
    #: For a shard that is many small files (a folder of media): those files. Its name is then made up.
    members: "tuple[RawFile, ...]" = ()
    #: For such a shard: the files that hold attributes of its members.
    attributes: "tuple[RawFile, ...]" = ()
    #: For such a shard: names from the first on and before the second belong to it; empty is no bound.
    bounds: tuple[str, str] = ("", "")

    @property
    def url(self) -> str:
        """For messages."""
        path = self.store.local_path(self.name)
        return str(path) if path is not None else join(self.store.url, self.name)

    @property
    def place(self) -> str:
        """Where it is, as a URL."""
        return join(self.store.url, self.name)

    @property
    def path(self) -> Path | None:
        """The file itself, if it is on this machine and one file."""
        return None if self.members else self.store.local_path(self.name)

    def read(self, start: int, length: int) -> bytes:
        """A range of its bytes; fewer at its end."""
        length = max(0, min(length, self.size_bytes - start))
        return self.store.get_range(self.name, start, length)

    def beside(self, name: str) -> "RawFile":
        """Another file of the same store."""
        entry = self.store.describe(name)
        return RawFile(self.store, name, entry.bytes, entry.stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What to take, and what to do with rows and files that break their contract."""

    #: How many bad rows per shard may be left out (and are listed); 0 means that the first one is an error.
    skip_bad: int = 0
    #: Whether a field may hold different kinds of values.
    mixed: bool = False
    #: A row longer than this is bad.
    row_bytes_max: int = 64 << 20
    #: How much derived data one registration may make.
    derived_bytes_max: int = 1 << 40
    #: Whether it is an error when anything that was found is left out.
    strict: bool = False
    #: Which split of a folder to take, or ``all`` of them, with a field ``split``.
    split: str | None = None
    #: ``NaN`` and infinities in JSON, as Python writes them: ``error`` (a bad row), ``float`` or ``null``.
    nan: str = "error"
    #: What separates the fields of tables; found by looking where nothing is said.
    delimiter: str = ""
    #: Whether a row of a text is a ``line`` or a ``file``; what is usual for its name where nothing is said.
    per: str = ""
    #: The numpy type of tokens in files that do not say it.
    dtype: str = ""
    #: The token between documents of such files; without it a file is one document.
    eot: int | None = None

    def __post_init__(self) -> None:
        for choice in fields(self):
            value, kind = getattr(self, choice.name), choice.type
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):  # type: ignore[arg-type]
                raise UsageError(
                    f"{choice.name} must be {getattr(kind, '__name__', kind)}, got {value!r:.50}"
                )
            if isinstance(value, int) and value < 0:
                raise UsageError(f"{choice.name} must be at least 0, got {value}")
        if self.nan not in ("error", "float", "null"):
            raise UsageError(f"nan must be error, float or null, got {self.nan!r}")
        if self.per not in ("", "line", "file"):
            raise UsageError(f"per must be line or file, got {self.per!r}")
        if self.delimiter and (len(self.delimiter) != 1 or self.delimiter in '"\r\n' or self.delimiter > "~"):
            raise UsageError(f"a delimiter must be one ASCII character, got {self.delimiter!r}")

    def format_for(self, wanted: str | None) -> str | None:
        """The format that the choices ask for, which must be the one that was ``wanted`` by name, if any was."""
        implied = {"line": "text", "file": "documents"}.get(self.per)
        if self.dtype or (self.eot is not None and wanted is None):
            implied = "flat"
        if self.delimiter and wanted not in ("csv", "tsv"):
            implied = "csv"
        if implied is not None and wanted not in (None, implied):
            said = next(f"{name}={value!r}" for name, value in self.reading().items() if name != "nan")
            raise UsageError(f"{said} is about {implied}, not about {wanted}")
        return implied or wanted

    def reading(self) -> dict[str, Any]:
        """How files are to be read, where that is not the usual way."""
        usual = Policy()
        names = ("nan", "delimiter", "per", "dtype", "eot")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(usual, name)}

    def key(self) -> dict[str, Any]:
        """All that a scan depends on. What came later is left out at its default, so that keys of old scans stay."""
        names = ("skip_bad", "mixed", "row_bytes_max", "derived_bytes_max")
        return {**{name: getattr(self, name) for name in names}, **self.reading()}


@dataclass(frozen=True, slots=True)
class FieldKind:
    """One field of a row, as found by scanning."""

    name: str
    kind: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class BadLine:
    """A bad row that was left out."""

    line: int
    offset: int
    reason: str


@dataclass(slots=True, kw_only=True)
class Scanned:
    """What scanning one shard found. The index, and a copy if one was made, are files in the given folder."""

    rows: int
    bytes: int
    digest: str
    schema: list[FieldKind]
    index: Path
    skipped: list[BadLine] = field(default_factory=list)
    #: A row-addressable copy of the shard, with its own index.
    derived: Path | None = None
    derived_index: Path | None = None
    companions: list[RawFile] = field(default_factory=list)
    #: Lines of a text that have nothing on them, which are no rows.
    blank_lines: int = 0
    #: What else was found out or decided that people should know, such as what separates fields.
    notes: list[str] = field(default_factory=list)
    #: Rows, rising, that the first pass could not vouch for; the format looks at them before it returns.
    doubtful: RowNumbers = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def read_through(self, copy: Path, rows: "Scanned") -> "Scanned":
        """The scan of an original whose rows are those that were found in its copy."""
        self.derived, self.derived_index = copy, rows.index
        self.skipped, self.blank_lines, self.notes = rows.skipped, rows.blank_lines, rows.notes
        return self


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard on its way to being read: where its bytes are, and its index."""

    #: For messages: the file, with its place.
    label: str
    raw: RawFile
    rows: int
    #: Where the index is, and the digest it must have.
    index: IndexPlace
    index_digest: str
    #: The fields of the whole version.
    schema: list[FieldKind]
    #: The fields that are wanted; None for all. A reader that decodes nothing else says so with ``selects_fields``.
    fields: tuple[str, ...] | None = None


class RowReader(Protocol):
    """Rows of one open shard. Safe to use from any thread."""

    def take(self, rows: RowNumbers) -> list[Row]:
        """The given rows, in the order given."""


class Format(Protocol):
    """One way to keep rows in files.

    A format whose shards are many files each also has ``locate(store, name, index, index_digest)``, which gives back
    the shard as a ``RawFile`` with its members in that store.
    """

    name: str
    #: What such files are usually called.
    suffixes: Sequence[str]

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """Whether the content is of this format, from its first bytes (and others, if needed)."""

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Which of the files are shards: without companions and sidecars, or joined where many files are one shard."""

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Read the shard once, check its contract, and write its index into ``folder``."""

    def open(self, shard: OpenShard) -> RowReader:
        """Open a shard whose rows are in the file itself (or in its copy)."""
