"""Rows decoded once while they are registered, so that a row which cannot be decoded is found then and not in training.

The first pass has written an index with sums; this one reads the rows through it, a few megabytes at a time: all of
them, or those the first pass could not vouch for. Where rows are bad and may be left out, the index is written again
without them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock import _rust
from penstock.formats.bad_rows import BadRows
from penstock.formats.contract import BadLine, FieldKind, Policy, RawFile, RowNumbers, Scanned
from penstock.formats.shard_bytes import KnownRows, gather, scan_known, silent, source_of

_CHUNK_BYTES = 8 << 20
_CHUNK_ROWS = 4096


class RowCheck:
    """The rows of a shard that was just scanned, on their way through ``check``."""

    def __init__(self, format_name: str, raw: RawFile, first: Scanned, label: str) -> None:
        self._format = format_name
        self._raw = raw
        self._first = first
        self._label = label
        self._file = _rust.ShardFile(source_of(raw), first.index, _rust.digest_file(first.index))

    def row(self, number: int) -> bytes:
        """One row's bytes."""
        return bytes(gather(self._file, np.asarray([number], dtype=np.uint64))[0])

    def run(
        self,
        policy: Policy,
        check: Callable[[memoryview], str | None],
        numbers: RowNumbers | None = None,
    ) -> list[int]:
        """Rows for which ``check`` gives a reason against them; they are listed in the scan as the policy says.

        ``numbers``, rising, are the only rows to look at, where others are known to be good.
        """
        bad = BadRows(self._label, policy, self._first.skipped)
        lines = _Lines(self._first.skipped)
        refused = []
        for number, offset, data in self._rows(numbers):
            reason = check(data)
            if reason is not None:
                bad.add(lines.of(number), offset, reason)
                refused.append(number)
        self._first.skipped = sorted(bad.found, key=lambda line: line.line)
        return refused

    def without(
        self,
        refused: list[int],
        policy: Policy,
        schema: list[FieldKind],
        details: dict[str, Any] | None = None,
    ) -> Scanned:
        """The same shard with an index that leaves rows out; ``details`` are what reading needs to know."""
        kept = np.setdiff1d(np.arange(self._first.rows), np.asarray(refused, dtype=np.int64))
        spans = np.asarray([self._span(number) for number in kept.tolist()], dtype=np.uint64).reshape(-1, 2)
        known = KnownRows(
            rows=len(kept),
            schema=schema,
            offsets=np.ascontiguousarray(spans[:, 0]),
            lengths=np.ascontiguousarray(spans[:, 1].astype(np.uint32)),
            details=details or {},
            label=self._label,
        )
        again = scan_known(self._format, self._raw, policy, self._first.index, silent, known)
        again.skipped = self._first.skipped
        return again

    def _rows(self, numbers: RowNumbers | None) -> Iterator[tuple[int, int, memoryview]]:
        wanted = range(self._first.rows) if numbers is None else numbers
        first = 0
        while first < len(wanted):
            offsets: list[int] = []
            left = _CHUNK_BYTES
            while left > 0 and len(offsets) < _CHUNK_ROWS and first + len(offsets) < len(wanted):
                offset, length = self._span(int(wanted[first + len(offsets)]))
                offsets.append(offset)
                left -= length
            chunk = np.asarray(wanted[first : first + len(offsets)], dtype=np.uint64)
            yield from zip(chunk.tolist(), offsets, gather(self._file, chunk), strict=True)
            first += len(offsets)

    def _span(self, number: int) -> tuple[int, int]:
        span = self._file.span(number)
        assert span is not None, "the first pass has stored ranges"
        return span


class _Lines:
    """From the number of a row to its place in the file, counted from 1, past the rows left out before. Asked in order."""

    def __init__(self, skipped: list[BadLine]) -> None:
        self._skipped = sorted(bad.line for bad in skipped)
        self._passed = 0

    def of(self, number: int) -> int:
        while self._passed < len(self._skipped) and self._skipped[self._passed] <= number + 1 + self._passed:
            self._passed += 1
        return number + 1 + self._passed
