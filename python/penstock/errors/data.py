"""Errors of raw files, their rows, recipes and feeds."""

from penstock.errors.root import PenstockError


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

    def __init__(self, *, shard: str, offset: int, reason: str, steps: tuple[int, int] | None = None) -> None:
        self.shard = shard
        self.offset = offset
        self.reason = reason
        #: First and last step of the feed that read the shard between its last good look and the one that showed the change.
        self.steps = steps
        text = f"{shard} is corrupt at byte {offset}: {reason}"
        if steps is not None:
            text += (
                f"; it changed while it was read, and steps {steps[0]} to {steps[1]} read it since it was last "
                "seen unchanged"
            )
        super().__init__(text)

    def after_steps(self, first: int, last: int) -> "CorruptShard":
        """The same, found after steps had got bytes of the shard that may be the changed ones."""
        return CorruptShard(shard=self.shard, offset=self.offset, reason=self.reason, steps=(first, last))

    def before_step(self, step: int) -> "CorruptShard":
        """The same as the step says it that found out: steps after it were made ahead and have not been delivered."""
        if self.steps is None:
            return self
        first, last = self.steps
        steps = (first, min(last, step - 1)) if first < step else None
        return CorruptShard(shard=self.shard, offset=self.offset, reason=self.reason, steps=steps)


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


class BatchDamaged(DataError):
    """Bytes that should be a batch are none: cut, changed on their way, or of another layout."""

    exit_code = 1
    hint = "run the same Penstock at both ends; if it is the same, look for a damaged connection or memory"

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"what arrived is no batch: {reason}")
