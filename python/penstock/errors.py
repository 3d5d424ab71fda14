"""Every error of Penstock: one tree, fields for programs, a hint for people.

::

    PenstockError
    ├── UsageError               the command line or an argument makes no sense
    ├── EventError               recordings of events
    │   ├── EventFileUnusable    cannot be created, opened or read
    │   ├── EventFormatUnknown   written by a newer Penstock
    │   └── NotAnEventFile       something else, or a damaged header
    ├── StoreError               where bytes live
    │   ├── ObjectMissing        nothing has that name
    │   ├── StoreDenied          the store does not let us
    │   └── StoreFailed          anything else the store said, after retries
    ├── RegistryError            names, versions and tags
    │   ├── AddressInvalid       not of the form name, name@3, name@tag or name@b3:…
    │   ├── AddressUnknown       no dataset, version or tag of that name
    │   ├── ManifestDamaged      what the registry holds is not what its digest says
    │   ├── ManifestNewer        written by a newer Penstock
    │   └── NumbersContended     too many writers at once
    └── DataError                raw files and their rows
        ├── BadRow               a row that breaks its format's contract, with file, line and offset
        ├── TooManyBadRows       more rows were skipped than the limit allows
        ├── FileUnusable         a file that cannot be registered at all: empty, truncated, of no known format
        ├── NothingToRegister    no file matches
        ├── SchemaMixed          files of one version disagree about a field
        ├── CorruptShard         bytes are not what was registered, with file and offset
        ├── IndexDamaged         an index is not what its digest says, or cannot be read
        ├── RowOutOfRange        there is no such row
        ├── DerivedTooLarge      a derived copy would pass the limit or the free space
        ├── ScanCancelled        scanning was stopped
        ├── RecipeInvalid        a recipe, lane or stage that makes no sense, with the field
        ├── SourceEmpty          nothing of a source is left after its filters
        ├── SampleUndecodable    a sample that a stage cannot make anything of, with version, row and shard
        ├── TooManyUndecodable   more such samples were masked than the recipe allows
        ├── CursorForeign        a cursor made by another recipe, or tampered with
        └── FeedClosed           a feed used after close, or in the child of a fork

An error says what happened with the values that matter, and, where one is known, a ``hint`` says what to do. Errors
are made from keyword arguments, which stay readable as attributes; those that begin in Rust are made by
``crates/penstock-python/src/error.rs`` from the same arguments, so a message is written once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar


class PenstockError(Exception):
    """Whatever Penstock raises on purpose."""

    #: What the reader can do about it, if that is known.
    hint: str | None = None
    #: What the command line exits with: 2 for bad input, 1 when a check found the world wanting.
    exit_code: ClassVar[int] = 2

    def __reduce__(self) -> "tuple[Callable[..., PenstockError], tuple[Any, ...]]":
        # Errors travel between processes with their fields; their constructors take keywords, which pickle does not know.
        return _revive, (type(self), self.args, self.__dict__)


def _revive(kind: type[PenstockError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> PenstockError:
    problem = kind.__new__(kind, *arguments)
    problem.args = arguments
    problem.__dict__.update(fields)
    return problem


class UsageError(PenstockError):
    """The command line or an argument makes no sense."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if hint is not None:
            self.hint = hint
        super().__init__(message)


class EventError(PenstockError):
    """Something about a recording of events."""


class EventFileUnusable(EventError):
    """The file of a recording cannot be created, opened or read."""

    def __init__(self, *, verb: str, path: Path, reason: str) -> None:
        self.verb = verb
        self.path = path
        self.reason = reason
        if verb == "create":
            self.hint = "choose a directory that exists and that you may write to"
        super().__init__(f"cannot {verb} event file {path}: {reason}")


class NotAnEventFile(EventError):
    """The file is something else, or its header is damaged."""

    hint = "event files are written by penstock.events.start() and end in .pev"

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is not an event file: {reason}")


class EventFormatUnknown(EventError):
    """The recording was made by a newer Penstock."""

    hint = "read it with the Penstock that wrote it, or a newer one"

    def __init__(self, *, path: Path, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(f"{path} has event format {found}, but this Penstock reads up to {known}")


class StoreError(PenstockError):
    """Something about the place where bytes live."""


class ObjectMissing(StoreError):
    """Nothing in the store has that name."""

    def __init__(self, *, url: str) -> None:
        self.url = url
        super().__init__(f"there is no {url}")


class StoreDenied(StoreError):
    """The store does not let us."""

    hint = "check the credentials, or the permissions of the directory"

    def __init__(self, *, verb: str, url: str, reason: str) -> None:
        self.verb = verb
        self.url = url
        self.reason = reason
        super().__init__(f"not allowed to {verb} {url}: {reason}")


class StoreFailed(StoreError):
    """The store said something else, after all retries."""

    exit_code = 1

    def __init__(self, *, verb: str, url: str, reason: str) -> None:
        self.verb = verb
        self.url = url
        self.reason = reason
        super().__init__(f"cannot {verb} {url}: {reason}")


class RegistryError(PenstockError):
    """Something about names, versions and tags."""


class AddressInvalid(RegistryError):
    """The text is no address of a version."""

    hint = "addresses look like web, web@3, web@gold or web@b3:4f2a; names have letters, digits, '.', '_', '-' and '/'"

    def __init__(self, *, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"{address!r} is no address of a version: {reason}")


class AddressUnknown(RegistryError):
    """The registry has no dataset, version or tag of that name."""

    def __init__(self, *, address: str, registry: str, known: list[str]) -> None:
        self.address = address
        self.registry = registry
        self.known = known
        self.hint = (
            f"there are {', '.join(known[:12])}" if known else "`penstock data register` makes versions"
        )
        super().__init__(f"there is no {address} in the registry {registry}")


class ManifestDamaged(RegistryError):
    """What the registry holds is not what its digest says."""

    exit_code = 1
    hint = "register the files again: the same bytes give the same version, and the object is written anew"

    def __init__(self, *, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name} in the registry is damaged: {reason}")


class ManifestNewer(RegistryError):
    """A document was written by a newer Penstock."""

    hint = "read it with the Penstock that wrote it, or a newer one"

    def __init__(self, *, name: str, found: int, known: int) -> None:
        self.name = name
        self.found = found
        self.known = known
        super().__init__(f"{name} has format {found}, but this Penstock reads up to {known}")


class NumbersContended(RegistryError):
    """Too many writers took the next number first."""

    exit_code = 1
    hint = "try again when fewer processes write to this dataset"

    def __init__(self, *, name: str, attempts: int) -> None:
        self.name = name
        self.attempts = attempts
        super().__init__(f"no free number under {name} after {attempts} attempts")


class DataError(PenstockError):
    """Something about raw files and their rows."""


class BadRow(DataError):
    """A row breaks the contract of its format."""

    hint = "mend the file, or register with --skip-bad to leave such rows out and list them in the version"

    def __init__(self, *, shard: str, line: int, offset: int, reason: str) -> None:
        self.shard = shard
        self.line = line
        self.offset = offset
        self.reason = reason
        super().__init__(f"{shard}, row {line} (byte {offset}): {reason}")


class TooManyBadRows(DataError):
    """More rows were skipped than the limit allows."""

    hint = "look at them; if they really should be left out, raise --skip-bad"

    def __init__(self, *, shard: str, limit: int, last: str) -> None:
        self.shard = shard
        self.limit = limit
        self.last = last
        super().__init__(f"{shard} has more than {limit} bad rows, the last: {last}")


class FileUnusable(DataError):
    """A file cannot be registered at all."""

    def __init__(self, *, path: str, reason: str, hint: str | None = None) -> None:
        self.path = path
        self.reason = reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"{path}: {reason}")


class NothingToRegister(DataError):
    """No file matches what was given."""

    hint = "quote patterns so that the shell leaves them alone, and look at the working directory"

    def __init__(self, *, patterns: list[str]) -> None:
        self.patterns = patterns
        super().__init__(f"no file matches {', '.join(patterns)}")


class SchemaMixed(DataError):
    """Files of one version disagree about a field."""

    hint = "register them as two datasets, or with --mixed to let the field hold either"

    def __init__(self, *, field: str, shard: str, kind: str, other_shard: str, other_kind: str) -> None:
        self.field = field
        self.shard = shard
        self.kind = kind
        self.other_shard = other_shard
        self.other_kind = other_kind
        super().__init__(f"field {field!r} is {kind} in {shard} but {other_kind} in {other_shard}")


class CorruptShard(DataError):
    """Bytes are not what was registered."""

    exit_code = 1
    hint = "bring the file back from a copy; if it was changed on purpose, register it as a new version"

    def __init__(self, *, shard: str, offset: int, reason: str) -> None:
        self.shard = shard
        self.offset = offset
        self.reason = reason
        super().__init__(f"{shard} is corrupt at byte {offset}: {reason}")


class IndexDamaged(DataError):
    """An index is not what its digest says, or cannot be read."""

    exit_code = 1
    hint = "register the files again: the same bytes give the same version, and the index is written anew"

    def __init__(self, *, index: str, reason: str) -> None:
        self.index = index
        self.reason = reason
        super().__init__(f"index {index} is damaged: {reason}")


class RowOutOfRange(DataError, IndexError):
    """There is no such row."""

    def __init__(self, *, row: int, rows: int) -> None:
        self.row = row
        self.rows = rows
        super().__init__(f"there is no row {row}: rows go from 0 to {rows - 1}")


class DerivedTooLarge(DataError):
    """A derived copy would pass the limit or the free space."""

    hint = "give it more room with --derived-max, prune what is there with `penstock data derived --prune`, or free the disk"

    def __init__(self, *, what: str, needed_bytes: int, allowed_bytes: int) -> None:
        self.what = what
        self.needed_bytes = needed_bytes
        self.allowed_bytes = allowed_bytes
        super().__init__(
            f"{what} needs about {needed_bytes:,} bytes of derived data, but {allowed_bytes:,} are allowed"
        )


class ScanCancelled(DataError):
    """Scanning was stopped before its end; what was finished is kept."""

    exit_code = 130

    def __init__(self, *, shard: str) -> None:
        self.shard = shard
        super().__init__(f"scanning {shard} was stopped")


class RecipeInvalid(DataError):
    """A recipe, a lane or a stage makes no sense."""

    def __init__(self, *, field: str, reason: str, hint: str | None = None) -> None:
        self.field = field
        self.reason = reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"recipe, {field}: {reason}")


class SourceEmpty(DataError):
    """Nothing of a source is left after its filters."""

    hint = "look at the filter, and at the rows with `penstock data rows`"

    def __init__(self, *, source: str, rows: int) -> None:
        self.source = source
        self.rows = rows
        super().__init__(f"none of the {rows:,} rows of {source} is left after its filters")


class SampleUndecodable(DataError):
    """A stage can make nothing of a sample."""

    exit_code = 1
    hint = 'mend the sample or the stage, filter it out, or let the recipe mask such samples: undecodable = "mask"'

    def __init__(self, *, version: str, sample: int, shard: str, stage: str, reason: str) -> None:
        self.version = version
        self.sample = sample
        self.shard = shard
        self.stage = stage
        self.reason = reason
        super().__init__(f"{stage} fails on {version} row {sample} ({shard}): {reason}")


class TooManyUndecodable(DataError):
    """More samples were masked than the recipe allows."""

    exit_code = 1
    hint = "look at them; if they really should be masked, raise undecodable_max"

    def __init__(self, *, source: str, limit: int, last: str) -> None:
        self.source = source
        self.limit = limit
        self.last = last
        super().__init__(f"{source} has more than {limit} samples that cannot be decoded, the last: {last}")


class CursorForeign(DataError):
    """A cursor was made by another recipe, so its position means nothing here, or it was tampered with."""

    hint = "start without a cursor, or open the recipe that the cursor was saved with"

    def __init__(self, *, cursor: str, recipe: str, reason: str) -> None:
        self.cursor = cursor
        self.recipe = recipe
        self.reason = reason
        super().__init__(f"the cursor does not belong to this recipe: {reason}")


class FeedClosed(DataError):
    """A feed was used after it was closed, or in the child of a fork."""

    hint = "open the feed in the process that reads from it"

    def __init__(self, *, reason: str, hint: str | None = None) -> None:
        self.reason = reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"the feed cannot be used: {reason}")
