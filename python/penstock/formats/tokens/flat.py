"""Flat token files: nothing but tokens one after another, as nanoGPT, llm.c and their relatives write them.

llm.c puts a header of 256 numbers before the tokens, which says their type; of other files the caller says it (``dtype``). A
file is one document, ``{"tokens": array}``; with ``eot`` it is cut into documents at that token. If the file begins with the
token, it begins documents (llm.c), else it ends them (nanoGPT).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import FileUnusable, UsageError
from penstock.formats.contract import FieldKind, OpenShard, Policy, Progress, RawFile, Scanned
from penstock.formats.scan_files import read_long
from penstock.formats.shard_bytes import KnownRows, open_file, scan_known
from penstock.formats.tokens.megatron import MegatronRows

_HEADER = np.dtype("<i4")
_HEADER_BYTES = 256 * _HEADER.itemsize
#: llm.c's mark and version of a file -> its tokens.
_MAGICS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}
#: A row's length has 32 bits; a longer document is cut.
_ROW_BYTES_MAX = 1 << 31
_ROW_LIMIT = (1 << 32) - 1
_CHUNK_BYTES = 16 << 20

_Longs = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where tokens are, and of what type."""

    dtype: str
    start: int
    end: int


class Flat:
    """The format ``flat``: one row per document of tokens. Without a header it is never guessed from content: any bytes are tokens."""

    name = "flat"
    suffixes: Sequence[str] = (".bin",)

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It begins with llm.c's header."""
        return _magic(head) in _MAGICS

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Files called .bin, if there are any: nanoGPT leaves others beside them."""
        return [raw for raw in raws if raw.name.endswith(".bin")] or raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Tokens are only summed, and looked at for the one between documents."""
        layout = _layout(raw, policy)
        edges = _edges(raw, layout, policy.eot)
        known = KnownRows(
            rows=len(edges) - 1,
            schema=[FieldKind("tokens", "array")],
            offsets=edges[:-1].astype(np.uint64),
            lengths=np.diff(edges).astype(np.uint32),
            details={"dtype": layout.dtype},
        )
        unlimited = replace(policy, row_bytes_max=_ROW_LIMIT)
        result = scan_known("flat", raw, unlimited, folder / "index.arrow", progress, known)
        if policy.eot is not None and result.rows == 1:
            result.notes = [f"one document: token {policy.eot} does not stand between others"]
        return result

    def open(self, shard: OpenShard) -> MegatronRows:
        """Rows are byte ranges of tokens."""
        return MegatronRows(open_file(shard))


def _magic(head: bytes) -> tuple[int, int]:
    if len(head) < _HEADER_BYTES:
        return 0, 0
    mark, version = np.frombuffer(head, _HEADER, 2).tolist()
    return mark, version


def _layout(raw: RawFile, policy: Policy) -> _Layout:
    wanted_dtype = _given_dtype(policy.dtype) if policy.dtype else None
    head = raw.read(0, _HEADER_BYTES)
    dtype = _MAGICS.get(_magic(head))
    if dtype is None:
        return _without_header(raw, wanted_dtype)
    if wanted_dtype not in (None, dtype):
        reason = f"its header says {np.dtype(dtype)}, not {np.dtype(wanted_dtype)}"
        raise FileUnusable(path=raw.url, reason=reason, hint="leave --dtype out")
    count = int(np.frombuffer(head, _HEADER, 3)[2])
    end = _HEADER_BYTES + count * np.dtype(dtype).itemsize
    if count < 1 or end != raw.size_bytes:
        reason = f"its header says {count:,} tokens, so {end:,} bytes, but it has {raw.size_bytes:,}"
        raise FileUnusable(path=raw.url, reason=reason, hint="it is cut off: the writer was not finished")
    return _Layout(dtype, _HEADER_BYTES, end)


def _without_header(raw: RawFile, dtype: str | None) -> _Layout:
    if dtype is None:
        hint = "say it with --dtype: nanoGPT writes uint16"
        raise FileUnusable(path=raw.url, reason="it does not say what type its tokens are", hint=hint)
    width = np.dtype(dtype).itemsize
    if raw.size_bytes % width:
        reason = f"its {raw.size_bytes:,} bytes are not whole tokens of {width} bytes"
        raise FileUnusable(path=raw.url, reason=reason, hint="it is cut off, or --dtype is another")
    return _Layout(dtype, 0, raw.size_bytes)


def _given_dtype(name: str) -> str:
    try:
        dtype = np.dtype(name)
    except TypeError as reason:
        raise UsageError(
            f"dtype must be a numpy type such as uint16, uint32 or int32, got {name!r:.50}"
        ) from reason
    if dtype.kind not in "iu" or dtype.byteorder == ">":
        raise UsageError(f"tokens must be whole numbers, low byte first, got {name!r}")
    return dtype.newbyteorder("<").str


def _edges(raw: RawFile, layout: _Layout, eot: int | None) -> _Longs:
    """First bytes of documents, and where the last one ends."""
    width = np.dtype(layout.dtype).itemsize
    places = [layout.start, layout.end]
    if eot is not None:
        limits = np.iinfo(layout.dtype)
        if not limits.min <= eot <= limits.max:
            raise UsageError(f"eot must be a token of {np.dtype(layout.dtype)}, got {eot}")
        marks = np.concatenate([np.zeros(0, np.int64), *_marks(raw, layout, eot)])
        begins = len(marks) and marks[0] == layout.start
        places += (marks if begins else marks + width).tolist()
    edges = np.unique(np.asarray(places, dtype=np.int64))
    # Of a document that is too long for a row, further edges.
    further = [
        np.arange(edges[at], edges[at + 1], _ROW_BYTES_MAX)
        for at in np.flatnonzero(np.diff(edges) > _ROW_BYTES_MAX)
    ]
    return np.unique(np.concatenate([edges, *further]))


def _marks(raw: RawFile, layout: _Layout, eot: int) -> Iterator[_Longs]:
    """Where the token between documents stands."""
    width = np.dtype(layout.dtype).itemsize
    for at in range(layout.start, layout.end, _CHUNK_BYTES):
        data = read_long(raw, at, min(_CHUNK_BYTES, layout.end - at))
        yield at + np.flatnonzero(np.frombuffer(data, layout.dtype) == eot) * width
