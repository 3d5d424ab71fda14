"""Sets of files that say how many they are. A download that was cut short lacks some, and nothing else would tell.

Numbers in names say it (``train-00000-of-00003.parquet``), and so does the ``index.json`` of MDS, which lists its shards. That of
LitData lists chunks that only LitData can read; without them it would be taken for a row.
"""

import re

import msgspec

from penstock.errors import FileUnusable, StoreError
from penstock.formats.contract import RawFile

_NUMBER = re.compile(r"(?P<before>.*)-(?P<number>\d+)-of-(?P<count>\d+)(?P<after>.*)")
_NAMES_SHOWN = 3
#: Names with greater counts are taken for something else.
_COUNT_MAX = 10_000_000
#: Of a terabyte in chunks of 64 MB it is some megabytes.
_INDEX_BYTES_MAX = 64 << 20


def missing_parts(names: list[str]) -> list[tuple[str, str]]:
    """A name for every set of files that is not whole, and which of it are not there."""
    sets: dict[tuple[str, str], set[int]] = {}
    for name in names:
        folder, slash, last = name.rpartition("/")
        if (match := _NUMBER.fullmatch(last)) is not None and int(match["count"]) <= _COUNT_MAX:
            # What follows a number may be a hash of the part's own (`…-of-00003-9cf3b1.parquet`).
            sets.setdefault((folder + slash + match["before"], match["count"]), set()).add(
                int(match["number"])
            )
    incomplete = []
    for (before, count), numbers in sorted(sets.items()):
        total = int(count)
        # Some writers count from one.
        first = 1 if 0 not in numbers and total in numbers else 0
        missing = total - len(numbers & set(range(first, first + total)))
        if missing > 0:
            absent = (number for number in range(first, first + total) if number not in numbers)
            shown = [
                f"{number:0{len(count)}}" for _, number in zip(range(_NAMES_SHOWN), absent, strict=False)
            ]
            more = f" and {missing - len(shown):,} more" if missing > len(shown) else ""
            reason = f"{missing:,} of these {total:,} files are not here: {', '.join(shown)}{more}"
            incomplete.append((f"{before}-*-of-{count}", reason))
    return incomplete


class _Part(msgspec.Struct):
    basename: str


class _ListedShard(msgspec.Struct):
    raw_data: _Part | None = None
    zip_data: _Part | None = None


class _Index(msgspec.Struct):
    """What mosaicml-streaming writes beside its shards, as far as it matters here."""

    shards: list[_ListedShard]


def missing_shards(files: list[RawFile]) -> list[tuple[str, str]]:
    """Shards of MDS that an index among the files lists, by place, and that are not among them."""
    names = {file.name for file in files}
    missing = []
    for file in files:
        folder, slash, last = file.name.rpartition("/")
        if last != "index.json":
            continue
        try:
            index = msgspec.json.decode(file.read(0, file.size_bytes), type=_Index)
        except (msgspec.MsgspecError, UnicodeDecodeError, StoreError):
            continue
        for shard in index.shards:
            parts = [part.basename for part in (shard.raw_data, shard.zip_data) if part is not None]
            if parts and not any(folder + slash + part in names for part in parts):
                missing.append(
                    (f"{file.url.removesuffix(last)}{parts[0]}", "it is not here, though index.json lists it")
                )
    return missing


class _Chunk(msgspec.Struct):
    filename: str


class _ChunkIndex(msgspec.Struct):
    """What LitData writes beside its chunks, as far as it matters here."""

    chunks: list[_Chunk]
    config: dict[str, object]


def refuse_chunks(files: list[RawFile]) -> None:
    """Refuse the index of LitData, which is no row of anything."""
    for file in files:
        if file.name.rpartition("/")[2] != "index.json" or file.size_bytes > _INDEX_BYTES_MAX:
            continue
        try:
            msgspec.json.decode(file.read(0, file.size_bytes), type=_ChunkIndex)
        except (msgspec.MsgspecError, UnicodeDecodeError, StoreError):
            continue
        raise FileUnusable(
            path=file.url.removesuffix("/index.json"),
            reason="it is a dataset of LitData, whose chunks only LitData can read",
            hint="write its rows out as parquet or JSON lines with litdata.StreamingDataset",
        )
