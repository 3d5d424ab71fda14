"""Which format files are of: decided by their content, for files that are called alike together.

Files with the same ending are taken to be of one format, that of most of those looked at; the scan of each file checks it
again. Files of several formats are no version: whoever wants one of them says which.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from penstock.errors import BadRow, FileEmpty, FileUnusable, FormatsMixed, TooManyBadRows, UsageError
from penstock.formats.contract import Format, RawFile
from penstock.formats.pointer import refuse_pointer

_HEAD_BYTES = 64 << 10
_SAMPLE_FILES = 16
_EMPTY = "it is empty"
_ZIP = b"PK\x03\x04"
_OF_LINES = ("jsonl", "csv", "tsv")
_MARK_IT = "if it is UTF-16, write it with a byte order mark, or as UTF-8: iconv -f UTF-16LE -t UTF-8"
_PACKINGS = (".gz", ".zst", ".zstd", ".bz2", ".xz", ".lz4", ".br", ".snappy")
#: What some writers put behind the ending: ``x.tfrecord-00000-of-00010``.
_NUMBER = re.compile(r"-\d+-of-\d+$")
#: A text is lines or one document: whoever asks for one of them means both.
_TEXTS = ("text", "documents")
#: Of these an empty file is a row like any other, good or bad.
_ROW_PER_FILE = ("files", "documents")


@dataclass(frozen=True, slots=True)
class Detected:
    """The one format of the files that are taken, and the others."""

    format: str
    files: list[RawFile]
    left_out: list[tuple[RawFile, str]]


def detect(raws: list[RawFile], wanted: str | None, *, named: Collection[str] = ()) -> Detected:
    """The format of the files, or which of them are of the one that is wanted.

    ``named`` are the URLs of files that were named themselves: they are taken, or refused. Of the others, those that are
    empty or of no known format are left out.
    """
    from penstock.formats import FORMATS, format_named

    if wanted is not None and not (isinstance(wanted, str) and wanted in FORMATS):
        raise UsageError(f"unknown format {wanted!r:.50}", hint=f"one of {', '.join(FORMATS)}")
    full = [raw for raw in raws if raw.size_bytes]
    if not full:
        raise FileEmpty(path=raws[0].url, reason="the file is empty")
    formats = [(name, format_named(name)) for name in FORMATS]
    known = {ending: _most_common(group, formats) for ending, group in _by_ending(full).items()}
    format_by_name = {raw.name: known[ending_of(raw.name)] for raw in full}
    chosen = wanted if wanted is not None else _only_one(full, format_by_name, formats)
    # What is asked for by name and is nowhere to be seen is meant of all files.
    forced = chosen not in format_by_name.values() and not any(_is_called_so(raw, chosen) for raw in full)
    files, left_out = [], []
    for raw in raws:
        ending = known.get(ending_of(raw.name))
        if not raw.size_bytes and not (chosen in _ROW_PER_FILE and (forced or _is_part(raw, ending, chosen))):
            if raw.url in named:
                raise FileEmpty(path=raw.url, reason="the file is empty")
            reason: str | None = _EMPTY
        else:
            reason = None if forced or raw.url in named else _why_not(raw, ending, chosen)
        if reason is None:
            files.append(raw)
        else:
            left_out.append((raw, reason))
    return Detected(chosen, files, left_out)


def shards_of(format_name: str, files: list[RawFile]) -> list[RawFile]:
    """The shards among files of one format: companions and sidecars are left out."""
    from penstock.formats import format_named

    shards = format_named(format_name).shards(files)
    if not shards:
        raise FileUnusable(
            path=files[0].url,
            reason=f"expected a {format_name} file, found none among the {len(files)} files given",
        )
    return shards


def ending_of(name: str) -> str:
    """What a file is called at its end, with what stands before a compression: ``.jsonl.gz``."""
    stem, dot, last = _NUMBER.sub("", name.rpartition("/")[2].lower()).rpartition(".")
    if not dot or not stem:
        return ""
    if f".{last}" in _PACKINGS:
        before, inner_dot, inner = stem.rpartition(".")
        return f".{inner}.{last}" if inner_dot and before else f".{last}"
    return f".{last}"


def _why_not(raw: RawFile, detected: str | None, chosen: str) -> str | None:
    """Why a file is not taken; None if it is, as is one that is only called so: the scan says what is wrong with it."""
    if _is_part(raw, detected, chosen):
        return None
    return "of no known format" if detected is None else f"{detected}, not {chosen}"


def _is_part(raw: RawFile, detected: str | None, chosen: str) -> bool:
    called_so = detected is None and _is_called_so(raw, chosen)
    return detected == chosen or called_so or _goes_with(raw, detected, chosen)


def _is_called_so(raw: RawFile, chosen: str) -> bool:
    from penstock.formats import format_named

    return raw.name.lower().endswith(tuple(format_named(chosen).suffixes))


def _goes_with(raw: RawFile, detected: str | None, chosen: str) -> bool:
    """Whether a file of another format belongs to one that is taken."""
    from penstock.formats.media.attributes import is_attributes

    if chosen in _TEXTS and detected in _TEXTS:
        return True
    return chosen == "files" or (chosen == "documents" and is_attributes(raw.name))


def _by_ending(raws: list[RawFile]) -> dict[str, list[RawFile]]:
    groups: dict[str, list[RawFile]] = {}
    for raw in raws:
        groups.setdefault(ending_of(raw.name), []).append(raw)
    return groups


def _only_one(
    raws: list[RawFile], format_by_name: dict[str, str | None], formats: list[tuple[str, Format]]
) -> str:
    from penstock.formats.media.attributes import is_attributes

    by_format: dict[str, list[str]] = {}
    for raw in raws:
        if (name := format_by_name[raw.name]) is not None:
            by_format.setdefault(name, []).append(raw.name)
    if not by_format:
        raise FileUnusable(
            path=raws[0].url, reason="its content is of no known format", hint=_way_on(raws[0], formats)
        )
    for described in ("files", "documents"):
        rest = [raw for raw in raws if format_by_name[raw.name] not in (described, None)]
        if described in by_format and all(is_attributes(raw.name) for raw in rest):
            return described
    if len(by_format) > 1:
        store = raws[0].store
        top = store.local_path("")
        by_count = sorted(by_format.items(), key=lambda item: -len(item[1]))
        raise FormatsMixed(place=store.url if top is None else str(top), formats=dict(by_count))
    return next(iter(by_format))


def _way_on(raw: RawFile, formats: list[tuple[str, Format]]) -> str:
    """What to do with a file that nothing recognises."""
    from penstock.formats.lines.text import is_text

    head, name = raw.read(0, _HEAD_BYTES), raw.name.lower()
    if name.endswith(".bin"):
        flat = "a flat file of tokens does not say their type: --dtype uint16, or what it was written with"
        return f"{flat}; a .bin of Megatron needs its .idx beside it"
    if _is_unmarked(head):
        return _MARK_IT
    called = next((of for of, candidate in formats if name.endswith(tuple(candidate.suffixes))), None)
    if called is not None:
        return f"it is called as files of {called} are: --format {called} reads it so, or says what is wrong"
    if head.startswith(_ZIP):
        return "if it is an archive, unpack it and register the folder"
    if is_text(head):
        return "it is text: --per file makes each file a row, --per line each of its lines"
    return f"say which with --format: {', '.join(of for of, _ in formats)}"


def _most_common(raws: list[RawFile], formats: list[tuple[str, Format]]) -> str | None:
    """What most of the files are, looking at a spread of them; the scan of each file checks it again."""
    step = max(1, len(raws) // _SAMPLE_FILES)
    counts = Counter(name for raw in raws[::step] if (name := _of_one(raw, formats)) is not None)
    return counts.most_common(1)[0][0] if counts else None


def refuse_foreign(raw: RawFile, format_name: str, problem: BadRow | TooManyBadRows) -> None:
    """If a file that cannot be scanned is of another format, say that instead of what is wrong with its rows."""
    from penstock.formats import FORMATS, format_named

    if raw.members or format_name in (*_TEXTS, *_ROW_PER_FILE):
        return
    if format_name in _OF_LINES and _is_unmarked(raw.read(0, 4)):
        reason = "it looks like UTF-16 without a byte order mark"
        raise FileUnusable(path=raw.url, reason=reason, hint=_MARK_IT) from problem
    actual = _of_one(raw, [(name, format_named(name)) for name in FORMATS])
    if actual not in (None, format_name):
        reason = f"it is {actual}, not {format_name} as the others"
        hint = f"leave it out, or register it by itself with --format {actual}"
        raise FileUnusable(path=raw.url, reason=reason, hint=hint) from problem


def _is_unmarked(head: bytes) -> bool:
    """Whether text begins as UTF-16 does without its mark: every other byte of Latin letters is zero."""
    first, second = head[0:4:2], head[1:4:2]
    return len(second) == 2 and ((not any(first) and all(second)) or (all(first) and not any(second)))


def _of_one(raw: RawFile, formats: list[tuple[str, Format]]) -> str | None:
    head = raw.read(0, _HEAD_BYTES)
    refuse_pointer(raw, head)
    return next((name for name, candidate in formats if head and candidate.recognise(raw, head)), None)
