"""Sizes: documents that are empty, tiny or cut short, rows that are mostly padding."""

from collections import defaultdict

import numpy as np

from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Cost, Finding, Tally

#: So many tokens, without special ones, are hardly a text.
_TINY = 2
_TINY_MIN = 0.1
#: Where others are so much longer, tiny ones are broken and not just short.
_TIMES_LONGER = 10
_DOCUMENTS_MIN = 16
_PADDING_MIN = 0.75
_ROWS_MIN = 8


class TruncatedShare(Check):
    """More documents were cut short than the limit allows."""

    kinds = ("truncated",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()

    def look(self, batch: CheckedBatch) -> None:
        """Count them, where origins say it, or where documents should end with a token that ends them."""
        if batch.truncated is not None:
            cut, documents = batch.truncated
            self._tally.of += documents
            if cut:
                self._tally.add(batch, 0, None, count=cut)
        elif self.expected.ends and self.expected.eos is not None and not batch.has_origins:
            # A row that is full and does not end with an end was cut.
            full = batch.real.all(axis=1)
            self._tally.of += len(batch.tokens)
            for row in np.flatnonzero(full & (batch.tokens[:, -1] != self.expected.eos)).tolist():
                self._tally.add(batch, row, batch.tokens.shape[1] - 1)

    def tell(self, tokens: int) -> list[Finding]:
        """The share, where it passes the limit."""
        tally = self._tally
        if tally.share <= self.expected.truncated_max:
            return []
        sentence = (
            f"{tally} documents were cut short, at most {self.expected.truncated_max:.1%} were expected"
        )
        cost = Cost(tally.share, "documents")
        return [
            self.found(
                sentence,
                tally.places,
                cost,
                severity="warning",
                truncated=tally.count,
                documents=tally.of,
                share=tally.share,
            )
        ]


class TinyDocuments(Check):
    """Documents that say nothing, among others that do: what a broken extraction leaves."""

    kinds = ("tiny-documents",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tallies: dict[str, Tally] = defaultdict(Tally)
        self._lengths: dict[str, list[int]] = defaultdict(list)

    def look(self, batch: CheckedBatch) -> None:
        """Count tokens of documents that are here as a whole."""
        for piece in batch.pieces:
            if not (piece.begins and piece.ends) or piece.made == "chat":
                continue
            specials = batch.of(piece).specials
            every = specials.every - specials.unknown
            length = sum(token not in every for token in batch.ids(piece)[: _TINY + 4].tolist())
            tally = self._tallies[piece.source]
            tally.of += 1
            if 0 < length <= _TINY:
                tally.add(batch, piece.row, piece.at)
            else:
                self._lengths[piece.source].append(piece.length)

    def tell(self, tokens: int) -> list[Finding]:
        """Where there are many, and others are longer."""
        findings = []
        for name, tally in self._tallies.items():
            longer = float(np.median(self._lengths[name])) if self._lengths[name] else 0.0
            # Where all are short, they are short by nature: names, labels, words.
            if tally.of < _DOCUMENTS_MIN or tally.share < _TINY_MIN or longer < _TIMES_LONGER * _TINY:
                continue
            sentence = f"{tally} documents{f' of {name}' if name else ''} have at most {_TINY} tokens" + (
                f", the others have {longer:,.0f} in the middle" if longer else ""
            )
            cost = Cost(tally.share, "documents")
            findings.append(
                self.found(
                    sentence, tally.places, cost, severity="warning", source=name, documents=tally.count
                )
            )
        return findings


class MostlyPadding(Check):
    """Rows that are filled up with padding: most of the work is for nothing."""

    kinds = ("mostly-padding",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()
        self._rows = 0

    def look(self, batch: CheckedBatch) -> None:
        """Count padding of rows that hold something."""
        filled = np.asarray(batch.real.any(axis=1))
        empty = (~batch.real & filled[:, None]).sum(axis=1)
        self._rows += int(filled.sum())
        self._tally.of += int(filled.sum()) * batch.tokens.shape[1]
        if empty.any():
            self._tally.add(batch, int(empty.argmax()), None, count=int(empty.sum()))

    def tell(self, tokens: int) -> list[Finding]:
        """Where it is most of the work."""
        if self._tally.share < _PADDING_MIN or self._rows < _ROWS_MIN:
            return []
        sentence = f"{self._tally} tokens are padding"
        return [
            self.found(sentence, self._tally.places, Cost(self._tally.share, "compute"), severity="warning")
        ]


class EmptyDocuments(Check):
    """Samples of which no token is left; lint of a recipe counts them among some of the whole version."""

    kinds = ("empty-documents",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()

    def look(self, batch: CheckedBatch) -> None:
        """Rows without a token, in batches that others made."""
        if batch.has_origins:
            return
        rows = np.asarray(batch.real.any(axis=1))
        if rows.any():
            self._tally.of += len(rows)
            for row in np.flatnonzero(~rows).tolist():
                self._tally.add(batch, row, None)

    def count(self, empty: int, of: int, places: list[str]) -> None:
        """Take note of samples that were counted elsewhere."""
        self._tally.of += of
        self._tally.count += empty
        self._tally.places += places

    def tell(self, tokens: int) -> list[Finding]:
        """Where there are more than a few."""
        tally = self._tally
        if not tally.count or tally.share < 0.01:
            return []
        sentence = f"{tally} samples are empty"
        cost = Cost(tally.share, "samples")
        return [self.found(sentence, tally.places, cost, severity="warning", samples=tally.count)]
