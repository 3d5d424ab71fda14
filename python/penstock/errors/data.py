"""Errors of raw files, their rows, recipes and feeds."""

import difflib

from penstock.errors.root import PenstockError

#: Names that are listed in a hint.
_KNOWN_SHOWN = 20


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


class FileEmpty(FileUnusable):
    """A file is as it should be but has no row; in a folder such files are left out."""

    hint = "leave it out, or mend what wrote it"


class FileChanging(DataError):
    """A file changed while it was registered."""

    exit_code = 1
    hint = "register it when its writer is done; where files come all the time, register those that are whole"

    def __init__(self, *, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is being written: {reason}")


class FilesLeftOut(DataError):
    """Something would be left out, and that was not allowed."""

    hint = "register what is wanted by name or pattern, or without --strict, which then ends with an account"
    _SHOWN = 3

    def __init__(self, *, left_out: dict[str, str]) -> None:
        #: What is left out, with the reason.
        self.left_out = left_out
        first = [f"{name}: {reason}" for name, reason in list(left_out.items())[: self._SHOWN]]
        more = len(left_out) - len(first)
        super().__init__(
            f"{len(left_out):,} would be left out: {'; '.join(first)}{f'; and {more:,} more' if more else ''}"
        )


class FormatsMixed(DataError):
    """A folder or pattern names files of several formats, and a version has one."""

    def __init__(self, *, place: str, formats: dict[str, list[str]]) -> None:
        self.place = place
        #: The files of each format.
        self.formats = formats
        counts = ", ".join(f"{len(files):,} of {name} ({files[0]})" for name, files in formats.items())
        # Any file is a row of the format `files`, so naming that one leaves none out.
        chosen = next(name for name in formats if name != "files")
        self.hint = f"register each as a dataset of its own: --format {chosen} takes those files only, as does a pattern"
        if "files" in formats:
            self.hint += "; --format files makes a row of every file, whatever it is"
        if set(formats) == {"text", "documents"}:
            self.hint = "--per file makes each of them a row, --per line each of their lines"
        super().__init__(f"{place} has files of several formats: {counts}")


class ConfigsMixed(DataError):
    """A dataset of the Hugging Face Hub has several configurations, and it was not said which to take."""

    def __init__(self, *, place: str, configs: dict[str, list[str]]) -> None:
        self.place = place
        #: The patterns of each configuration, below the place.
        self.configs = configs
        first, patterns = next(iter(configs.items()))
        files = " ".join(f"'{place}/{pattern}'" for pattern in patterns[:3])
        self.hint = (
            f"name the files of one, such as {files} for {first!r}; a pattern over all of them mixes them"
        )
        names = list(configs)
        more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
        super().__init__(f"{place} has several configurations: {', '.join(names[:8])}{more}")


class SplitsMixed(DataError):
    """A folder has splits, and it was not said which to take."""

    def __init__(self, *, place: str, splits: dict[str, list[str]], others: int = 0) -> None:
        self.place = place
        #: The files of each split.
        self.splits = splits
        #: How many files say no split.
        self.others = others
        first = "train" if "train" in splits else next(iter(splits))
        self.hint = (
            f"--split {first} takes that one; --split all takes all, with a field 'split' that says which"
        )
        counts = ", ".join(f"{name} (files: {len(files):,})" for name, files in splits.items())
        if not others:
            super().__init__(f"{place} has several splits: {counts}")
            return
        self.hint += "; a pattern takes what it matches"
        super().__init__(f"{place} has a split beside files that say none (files: {others:,}): {counts}")


class ExportRefused(FileUnusable):
    """A row holds something that the form it is exported to cannot hold."""

    hint = "export to another form (parquet holds most), or change the field with a Map first"

    def __init__(self, *, path: str, row: int, field: str, what: str, form: str) -> None:
        self.row = row
        self.field = field
        self.what = what
        super().__init__(
            path=path, reason=f"row {row} has {what} in field {field!r}, which {form} cannot hold"
        )


class NothingToRegister(DataError):
    """No file matches what was given."""

    hint = "quote patterns so that the shell leaves them alone, and look at the working directory"

    def __init__(self, *, patterns: list[str], left_out: dict[str, str] | None = None) -> None:
        self.patterns = patterns
        #: What was found and cannot be taken, with the reason.
        self.left_out = left_out or {}
        if self.left_out:
            self.hint = "name what is meant: a file that is named itself is not left out because of its name"
        elif any(pattern.endswith("/") for pattern in patterns):
            self.hint = (
                "a pattern that ends in / stands for folders, and a pattern takes files: end it in /* or /**"
            )
        first = next((f"; left out is {name} ({reason})" for name, reason in self.left_out.items()), "")
        super().__init__(f"no file matches {', '.join(patterns)}{first}")


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


class TablesMixed(DataError):
    """Files of one version have no field in common."""

    hint = (
        "register each as a dataset of its own, by name or pattern, or with --mixed to take rows of all kinds"
    )

    def __init__(self, *, shard: str, fields: list[str], other_shard: str, other_fields: list[str]) -> None:
        self.shard = shard
        self.fields = fields
        self.other_shard = other_shard
        self.other_fields = other_fields
        ours, theirs = (", ".join(map(repr, names[:4])) for names in (fields, other_fields))
        super().__init__(
            f"{shard} (fields {ours:.100}) and {other_shard} ({theirs:.100}) have no field in common"
        )


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
        there = f"rows go from 0 to {rows - 1}" if rows else "there are none"
        super().__init__(f"there is no row {row}: {there}")


class TokenOutOfRange(DataError, IndexError):
    """There is no such token in a row of a batch."""

    def __init__(self, *, token: int, tokens: int) -> None:
        self.token = token
        self.tokens = tokens
        super().__init__(f"there is no token {token} in a row of {tokens}")


class MaskLengthWrong(DataError, IndexError):
    """A mask does not say of every row whether it is meant."""

    hint = "a mask has one boolean for every row of the version"

    def __init__(self, *, mask: int, rows: int) -> None:
        self.mask = mask
        self.rows = rows
        super().__init__(f"the mask has {mask:,} booleans, but there are {rows:,} rows")


class DiskFull(DataError):
    """There is no room for derived data."""

    exit_code = 1
    hint = "free the disk, or move the registry to a larger one; what is finished stays, and the next attempt continues there"

    def __init__(self, *, what: str, place: str, needed_bytes: int, free_bytes: int) -> None:
        self.what = what
        self.place = place
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(
            f"no space left at {place}: {what} takes about {needed_bytes:,} bytes, and {free_bytes:,} are free"
        )


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


class FieldUnknown(RecipeInvalid):
    """A filter names a field that no row has."""

    def __init__(self, *, expression: str, name: str, version: str, known: tuple[str, ...]) -> None:
        self.expression = expression
        self.name = name
        self.version = version
        self.known = known
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        self.nearest = near[0] if near else None
        meant = f"did you mean {near[0]!r}? " if near else ""
        listed = ", ".join(known[:_KNOWN_SHOWN]) + (", …" if len(known) > _KNOWN_SHOWN else "")
        super().__init__(
            field="filter",
            reason=f"{expression!r:.200} names {name!r}, which {version} does not have",
            hint=f"{meant}known are {listed}"
            if known
            else f"{name.rpartition('.')[0]} has no fields inside it",
        )


class ColumnAmbiguous(RecipeInvalid):
    """A filter names a measured column of which there are several."""

    def __init__(self, *, name: str, version: str, keys: tuple[str, ...]) -> None:
        self.name = name
        self.version = version
        self.keys = keys
        shown = " or ".join(f"column({name!r}, {key[:12]!r})" for key in keys[:4])
        reason = f"{len(keys)} measured columns of {version} are called {name!r}"
        super().__init__(field="filter", reason=reason, hint=f"say which: {shown}")


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

    def __init__(self, *, cursor: str, recipe: str, reason: str, hint: str | None = None) -> None:
        self.cursor = cursor
        self.recipe = recipe
        self.reason = reason
        if hint is not None:
            self.hint = hint
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
