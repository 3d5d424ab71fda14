"""Copies: the same sample again within an epoch, the same or nearly the same text as another document, text that stands in many.

A sample that comes again in the next epoch is no copy, so a window may be longer than an epoch.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from penstock._rust import digest
from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.checks.loss import counted
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import PLACES_MAX, Check, Cost, Finding, Severity
from penstock.view.lint.piece import Piece
from penstock.view.lint.sketch import NOBODY, Owners, Sketch, placed_hashes, shingle_width, shingles
from penstock.view.model.tokens.repeats import Stretch, repeats_of

#: Shorter rows are alike by chance.
_TOKENS_MIN = 8
#: Stretches, and documents, that are remembered; a window that has more is looked at up to there.
_KEPT_MAX = 2_000_000
#: An epoch that is only guessed has so many batches.
_BATCHES_MIN = 4
#: Shingles of a document that must be known before it is called a copy.
_SHINGLES_MIN = 8
_NEAR = 0.6
#: A document of which so much stands in earlier ones has no text of its own.
_NOTHING_OWN = 0.9
#: Tokens of a document before it is called a copy.
_COPIED_TOKENS = 16
#: Documents that are compared.
_DOCUMENTS_MAX = 500_000
_COPIES_MIN, _COPIES_ERROR = 0.02, 0.2
#: One document this often is a mistake of whoever gathered them.
_COPIES_OF_ONE = 20
_NEAR_MIN, _NEAR_ERROR = 0.05, 0.5
_FREQUENT_DOCUMENTS, _FREQUENT_MIN = 0.2, 0.15
_REPETITIVE, _REPETITIVE_MIN, _REPETITIVE_TOKENS = 0.5, 0.05, 64

Mask = npt.NDArray[np.bool_]


class RepeatedSample(Check):
    """The same tokens of the same sample twice, in one epoch."""

    kinds = ("repeated-sample",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._stretches: list[Stretch] = []
        #: Rows of others' batches, by content, and how many rows each batch has.
        self._rows: list[tuple[str, str, int]] = []
        self._batches = 0
        self._left = self._tokens = 0

    def look(self, batch: CheckedBatch) -> None:
        """Remember what the batch is made of: samples where they are known, else what rows hold."""
        self._batches += 1
        if batch.has_origins:
            stretches = [
                Stretch(
                    piece.source,
                    (piece.sample, piece.epoch),
                    piece.start,
                    piece.start + piece.length,
                    batch.place(piece.row, piece.at),
                )
                for piece in batch.pieces
                if batch.sources is None or batch.sources[piece.row] not in batch.cropped
            ]
            room = max(0, _KEPT_MAX - len(self._stretches))
            self._stretches += stretches[:room]
            self._left += len(stretches[room:])
            return
        for row in range(len(batch.tokens)):
            tokens = batch.tokens[row][batch.real[row]]
            if len(tokens) >= _TOKENS_MIN and len(self._rows) < _KEPT_MAX:
                self._rows.append((digest(tokens.tobytes()), batch.place(row, None), len(tokens)))

    def tell(self, tokens: int) -> list[Finding]:
        """One finding for all of them, with the first."""
        if self._rows:
            return self._of_rows(tokens)
        repeats = repeats_of(self._stretches)
        if not repeats:
            return []
        first = repeats[0]
        left = f"; {self._left:,} more were not looked at" if self._left else ""
        sentence = (
            f"{len(repeats):,} of {len(self._stretches):,} documents were there before in the same epoch: first "
            f"{first.first.source}, at {first.first.place} and again at {first.again.place}{left}"
        )
        places = [first.again.place, first.first.place]
        cost = Cost(sum(repeat.tokens for repeat in repeats) / max(1, tokens))
        return [self.found(sentence, places, cost, repeats=len(repeats))]

    def _of_rows(self, tokens: int) -> list[Finding]:
        """Rows that others made: content alone says what is the same, and where the data begins again."""
        seen: dict[tuple[int, str], str] = {}
        epoch_rows = self.expected.epoch_rows or self._guessed()
        again: list[tuple[str, str]] = []
        size = 0
        for number, (content, place, length) in enumerate(self._rows):
            key = (number // epoch_rows if epoch_rows else 0, content)
            if key in seen:
                again.append((seen[key], place))
                size += length
            seen.setdefault(key, place)
        if not again:
            return []
        sentence = (
            f"{len(again):,} of {len(self._rows):,} rows were there before: first {again[0][0]}, "
            f"again {again[0][1]}"
        )
        places = [again[0][1], again[0][0]]
        return [self.found(sentence, places, Cost(size / max(1, tokens)), repeats=len(again))]

    def _guessed(self) -> int | None:
        """Rows of an epoch, where from some row on everything was there before, and nothing before that."""
        first: dict[str, int] = {}
        for number, (content, _, _) in enumerate(self._rows):
            if content in first:
                rest = {row_content for row_content, _, _ in self._rows[number:]}
                enough = number * self._batches >= _BATCHES_MIN * len(self._rows)
                return number if enough and rest <= set(first) else None
            first[content] = number
        return None


class Copies(Check):
    """Documents that are, or nearly are, others; and text that stands in many of them."""

    kinds = ("duplicate-documents", "near-duplicates", "boilerplate")

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._sketch = Sketch()
        self._width = 0
        self._numbers: dict[Hashable, int] = {}
        self._places: list[str] = []
        self._sizes: list[int] = []
        self._epochs: list[int] = []
        #: The hash of what each document holds, token by place.
        self._sums: list[int] = []

    def look(self, batch: CheckedBatch) -> None:
        """Add the shingles of what counts."""
        if not self._width:
            self._width = shingle_width(batch.tokens[batch.real])
        owners = np.full(batch.tokens.shape, NOBODY, dtype=np.int64)
        offsets = np.zeros(batch.tokens.shape, dtype=np.int64)
        for piece in batch.pieces:
            offsets[piece.row, piece.at : piece.stop] = np.arange(piece.start, piece.start + piece.length)
        placed = placed_hashes(batch.tokens, offsets)
        contents: dict[int, str] = {}
        for piece in batch.pieces:
            number = self._number(batch, piece, contents)
            if number == NOBODY:
                continue
            specials = batch.of(piece).specials
            # Neither says anything.
            nothing = np.isin(batch.ids(piece), list(specials.unknown | specials.pad))
            counts = counted(batch, piece) & ~nothing
            owners[piece.row, piece.at : piece.stop] = np.where(counts, number, NOBODY)
            # Of a document that comes again in a later epoch one reading counts.
            if piece.epoch == self._epochs[number]:
                self._sizes[number] += int(counts.sum())
                # Sums do not depend on how rows cut a document.
                self._sums[number] += int(
                    placed[piece.row, piece.at : piece.stop][counts].sum(dtype=np.uint64)
                )
        hashes = shingles(batch.tokens, self._width)
        if not hashes.size:
            return
        first, last = owners[:, : hashes.shape[1]], owners[:, self._width - 1 :]
        # What counts may have gaps, so both ends of a run must belong to it and nothing between may be left out.
        gaps = np.cumsum(np.pad(owners == NOBODY, ((0, 0), (1, 0))), axis=1)
        whole = (gaps[:, self._width :] - gaps[:, : hashes.shape[1]]) == 0
        self._sketch.add(hashes.reshape(-1), np.where((first == last) & whole, first, NOBODY).reshape(-1))

    def _number(self, batch: CheckedBatch, piece: Piece, contents: dict[int, str]) -> int:
        """The number of a document. Rows of others that hold the same are the same: they are repeated, not copied."""
        key: Hashable = (piece.source, piece.sample)
        if not batch.has_origins:
            if piece.row not in contents:
                contents[piece.row] = digest(batch.tokens[piece.row].tobytes())
            key = (contents[piece.row], piece.at)
        if key not in self._numbers:
            if len(self._numbers) == _DOCUMENTS_MAX:
                return NOBODY
            self._numbers[key] = len(self._numbers)
            self._places.append(batch.place(piece.row, piece.at))
            self._sizes.append(0)
            self._epochs.append(piece.epoch)
            self._sums.append(0)
        return self._numbers[key]

    def tell(self, tokens: int) -> list[Finding]:
        """All three."""
        documents = len(self._places)
        if documents < 2:
            return []
        many = max(8, int(_FREQUENT_DOCUMENTS * documents))
        shared = self._sketch.shared(documents, many)
        sizes, enough = np.array(self._sizes), shared.shingles >= _SHINGLES_MIN
        originals = self._originals()
        same = originals != np.arange(documents)
        rare = shared.shingles - shared.frequent
        near = (rare >= _SHINGLES_MIN) & (shared.common >= _NEAR * rare) & ~same
        # Of long copies rows show different parts, so none is the very same as another; but nothing in them is their own.
        nothing_own = enough & ~same & (shared.known >= _NOTHING_OWN * shared.shingles)
        like = _with_company(shared.like, nothing_own)
        near |= nothing_own
        rest = enough & ~same & ~near
        frequent = float((shared.frequent[rest] / np.maximum(1, shared.shingles[rest]) * sizes[rest]).sum())
        findings = self._copied(same, originals, sizes) + self._nearly(near, like, sizes)
        total = max(1, int(sizes.sum()))
        if documents >= 2 * _COPIES_OF_ONE and frequent / total >= _FREQUENT_MIN:
            top = np.argsort(-(shared.frequent * rest))[:PLACES_MAX].tolist()
            sentence = (
                f"{frequent / total:.1%} of the text stands in at least {many:,} of {documents:,} documents"
            )
            places = [self._places[document] for document in top]
            findings.append(
                self.found(sentence, places, Cost(frequent / total), kind="boilerplate", severity="warning")
            )
        return findings

    def _originals(self) -> Owners:
        """For every document the first that holds the very same; itself where there is none, and where it is short."""
        first: dict[tuple[int, int], int] = {}
        return np.array(
            [
                first.setdefault((total % (1 << 64), size), number) if size >= _COPIED_TOKENS else number
                for number, (total, size) in enumerate(zip(self._sums, self._sizes, strict=True))
            ],
            dtype=np.int64,
        )

    def _copied(self, same: Mask, like: Owners, sizes: Owners) -> list[Finding]:
        numbers = np.flatnonzero(same).tolist()
        if not numbers:
            return []
        cost = float(sizes[same].sum()) / max(1, int(sizes.sum()))
        original, most = Counter(like[same].tolist()).most_common(1)[0]
        if cost < _COPIES_MIN and most < _COPIES_OF_ONE:
            return []
        severity: Severity = "error" if cost >= _COPIES_ERROR or most >= _COPIES_OF_ONE else "warning"
        sentence = (
            f"{len(numbers):,} of {len(sizes):,} documents are copies of another one; the one at "
            f"{self._places[original]} is there {most + 1:,} times"
        )
        copies = [document for document in numbers if like[document] == original][: PLACES_MAX - 1]
        places = [self._places[document] for document in (*copies, original)]
        return [
            self.found(
                sentence,
                places,
                Cost(cost),
                kind="duplicate-documents",
                severity=severity,
                documents=len(numbers),
                most=most + 1,
            )
        ]

    def _nearly(self, near: Mask, like: Owners, sizes: Owners) -> list[Finding]:
        numbers = np.flatnonzero(near).tolist()
        cost = float(sizes[near].sum()) / max(1, int(sizes.sum()))
        if len(numbers) < 3 or cost < _NEAR_MIN:
            return []
        first = numbers[0]
        sentence = (
            f"{len(numbers):,} of {len(sizes):,} documents are nearly another one, such as that at "
            f"{self._places[first]} and that at {self._places[int(like[first])]}"
        )
        places = [self._places[first], self._places[int(like[first])]]
        places += [self._places[document] for document in numbers[1:3]]
        severity: Severity = "error" if cost >= _NEAR_ERROR else "warning"
        return [
            self.found(
                sentence,
                places,
                Cost(cost),
                kind="near-duplicates",
                severity=severity,
                documents=len(numbers),
            )
        ]


def _with_company(like: Owners, alike: Mask) -> Owners:
    """Whom each document is like; one that is like several, and like no earlier one, has another one of them."""
    numbers = np.flatnonzero(alike)
    alone = numbers[like[numbers] == numbers]
    company = like.copy()
    company[alone] = np.where(alone == numbers[0], numbers[-1], numbers[0]) if len(numbers) else alone
    return company


class RepetitiveText(Check):
    """Documents that say the same over and over."""

    kinds = ("repetitive-text",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._bad: dict[Hashable, tuple[str, int]] = {}
        self._of = 0
        self._width = 0
        self._sources: defaultdict[str, int] = defaultdict(int)

    def look(self, batch: CheckedBatch) -> None:
        """How many runs of a piece stood in it before."""
        if not self._width:
            self._width = shingle_width(batch.tokens[batch.real])
        for piece in batch.pieces:
            self._of += piece.length
            if piece.length < max(_REPETITIVE_TOKENS, 2 * self._width):
                continue
            ids = batch.ids(piece)
            # One token up to the end fills a row up.
            filling = int(np.logical_and.accumulate(ids[::-1] == ids[-1]).sum())
            hashes = shingles(ids[: len(ids) - filling], self._width)
            if (
                len(hashes) >= _REPETITIVE_TOKENS // 2
                and 1 - len(np.unique(hashes)) / len(hashes) >= _REPETITIVE
            ):
                key = (piece.source, piece.sample, piece.row, piece.at, batch.place(piece.row, piece.at))
                self._bad[key] = (batch.place(piece.row, piece.at), piece.length)

    def tell(self, tokens: int) -> list[Finding]:
        """Where it is much of the text."""
        size = sum(length for _, length in self._bad.values())
        cost = size / max(1, self._of)
        if not self._bad or cost < _REPETITIVE_MIN:
            return []
        sentence = f"{len(self._bad):,} documents repeat themselves: {size:,} of {self._of:,} tokens ({cost:.1%}) stand in them"
        places = [place for place, _ in self._bad.values()][:PLACES_MAX]
        severity: Severity = "error" if cost >= _COPIES_ERROR else "warning"
        return [self.found(sentence, places, Cost(cost), severity=severity, documents=len(self._bad))]
