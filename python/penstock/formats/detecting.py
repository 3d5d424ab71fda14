"""Which format files are of: decided by their content, checked against their names only to break ties."""

from collections import Counter

from penstock.errors import FileUnusable, UsageError
from penstock.formats.contract import Format, RawFile

_HEAD_BYTES = 64 << 10
_SAMPLE_FILES = 16


def detect(raws: list[RawFile], wanted: str | None) -> tuple[str, list[RawFile]]:
    """The one format of all files, and the shards among them (companions and sidecars are left out)."""
    from penstock.formats import FORMATS, format_named

    if wanted is not None and wanted not in FORMATS:
        raise UsageError(f"there is no format {wanted!r}", hint=f"known are {', '.join(FORMATS)}")
    if wanted is None:
        wanted = _most_common(raws, [(name, format_named(name)) for name in FORMATS])
    chosen = format_named(wanted)
    shards = chosen.shards(raws)
    if not shards:
        raise FileUnusable(
            path=raws[0].url, reason=f"there is no {wanted} file among the {len(raws)} files given"
        )
    for shard in shards:
        _refuse_empty(shard)
    return wanted, shards


def _refuse_empty(raw: RawFile) -> None:
    if raw.size_bytes == 0 and not raw.members:
        raise FileUnusable(
            path=raw.url, reason="the file is empty", hint="leave it out, or mend what wrote it"
        )


def _most_common(raws: list[RawFile], formats: list[tuple[str, Format]]) -> str:
    """What most of the files are, looking at a spread of them; the scan of each file checks it again."""
    step = max(1, len(raws) // _SAMPLE_FILES)
    found = Counter(name for raw in raws[::step] if (name := _of_one(raw, formats)) is not None)
    if not found:
        for raw in raws:
            _refuse_empty(raw)
        raise FileUnusable(
            path=raws[0].url,
            reason="its content is of no known format",
            hint=f"say which with --format: {', '.join(name for name, _ in formats)}",
        )
    return found.most_common(1)[0][0]


def _of_one(raw: RawFile, formats: list[tuple[str, Format]]) -> str | None:
    head = raw.read(0, _HEAD_BYTES)
    return next((name for name, each in formats if head and each.recognise(raw, head)), None)
