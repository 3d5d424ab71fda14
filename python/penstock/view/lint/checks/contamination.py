"""Contamination: texts of a test set that stand in what is learned.

Texts are compared by words, small and without punctuation, so that neither tokenizer nor layout matters. A text counts as learned when most
runs of eight words of it are found; one that has fewer words is not looked for.
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.registry import Version
from penstock.view.address import VersionAddress
from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import PLACES_MAX, Check, Cost, Finding
from penstock.view.lint.sketch import Hashes, shingles

_WORD = re.compile(r"\w+")
_RUN = 8
_FOUND_MIN = 0.5
#: Runs of a text that are looked for.
_RUNS_MAX = 512
#: Texts that are looked for.
TEXTS_MAX = 1_000_000


class Contamination(Check):
    """Finds texts of a test set in what is learned."""

    kinds = ("contamination",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        owners, hashes = [], []
        for number, (_, text) in enumerate(expected.against):
            runs = np.unique(_runs(text))[:_RUNS_MAX]
            hashes.append(runs)
            owners.append(np.full(len(runs), number))
        flat = np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint64)
        order = np.argsort(flat, kind="stable")
        self._hashes = flat[order]
        self._owners = (np.concatenate(owners) if owners else np.zeros(0, dtype=np.int64))[order]
        self._sizes = np.bincount(self._owners, minlength=len(expected.against))
        self._seen = np.zeros(len(self._hashes), dtype=np.bool_)
        self._places: dict[int, str] = {}
        self._tokens: defaultdict[int, int] = defaultdict(int)

    def look(self, batch: CheckedBatch) -> None:
        """Look for runs of the test set."""
        if not len(self._hashes):
            return
        for piece in batch.pieces:
            text = batch.text(piece)
            runs = _runs(text) if text else np.zeros(0, dtype=np.uint64)
            if not len(runs):
                continue
            low = np.searchsorted(self._hashes, runs, side="left")
            high = np.searchsorted(self._hashes, runs, side="right")
            for first, stop in zip(low[high > low].tolist(), high[high > low].tolist(), strict=True):
                self._seen[first:stop] = True
                for owner in self._owners[first:stop].tolist():
                    self._places.setdefault(owner, batch.place(piece.row, piece.at))
                    self._tokens[owner] = max(self._tokens[owner], piece.length)

    def tell(self, tokens: int) -> list[Finding]:
        """The texts that were found."""
        if not len(self._hashes):
            return []
        hits = np.bincount(self._owners[self._seen], minlength=len(self._sizes))
        learned = np.flatnonzero((hits >= _FOUND_MIN * self._sizes) & (self._sizes > 0)).tolist()
        if not learned:
            return []
        looked = int((self._sizes > 0).sum())
        names = [self.expected.against[owner][0] for owner in learned[:3]]
        sentence = f"{len(learned):,} of {looked:,} texts that must not be learned stand in the data, such as {names[0]}"
        places = [self._places[owner] for owner in learned[:PLACES_MAX]]
        cost = Cost(sum(self._tokens[owner] for owner in learned) / max(1, tokens))
        return [self.found(sentence, places, cost, texts=names, found=len(learned), of=looked)]


def texts_of(version: Version) -> list[tuple[str, str]]:
    """The texts of a version that must not be learned, each with its address."""
    if version.rows > TEXTS_MAX:
        raise UsageError(
            f"{version.address} has {version.rows:,} rows, at most {TEXTS_MAX:,} are looked for",
            hint="give a test set, not a training set",
        )
    return [
        (str(VersionAddress(version.address, number)), "\n".join(_strings(row)))
        for number, row in enumerate(version)
    ]


def _strings(value: Any) -> Iterator[str]:
    """Every text of a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _runs(text: str) -> Hashes:
    words = [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in _WORD.findall(text.lower())]
    return shingles(np.array(words, dtype=np.int64), _RUN)
