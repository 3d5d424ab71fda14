"""Sketches: which documents share runs of tokens, in bounded memory.

A document's *shingles* are the hashes of all runs of so many tokens in it. Documents that share most shingles are copies, however rows
cut them and wherever they stand. Of many shingles only those with the smallest hashes are kept, which are the same ones in every
document, so shares stay what they are while the memory has a limit.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Shingles that are kept.
KEPT_MAX = 1 << 20
#: Tokens of a shingle. Where tokens are letters it takes more of them to say something.
_WIDTH_MIN, _WIDTH_MAX = 6, 48
_WIDTH_BITS = 600
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
NOBODY = -1

Hashes = npt.NDArray[np.uint64]
Owners = npt.NDArray[np.int64]


def shingle_width(tokens: npt.NDArray[np.int64]) -> int:
    """How many tokens a shingle has, by how much a token says: 6 words, or some 35 letters."""
    if not tokens.size:
        return _WIDTH_MIN
    _, counts = np.unique(tokens, return_counts=True)
    shares = counts / counts.sum()
    bits = max(1.0, float(-(shares * np.log2(shares)).sum()))
    return max(_WIDTH_MIN, min(_WIDTH_MAX, math.ceil(_WIDTH_BITS / bits**2)))


def shingles(tokens: npt.NDArray[np.int64], width: int) -> Hashes:
    """The hash of every run of ``width`` tokens of each row."""
    count = tokens.shape[-1] - width + 1
    if count <= 0:
        return np.zeros((*tokens.shape[:-1], 0), dtype=np.uint64)
    mixed = _mix(tokens.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    hashes = np.zeros((*tokens.shape[:-1], count), dtype=np.uint64)
    factor = np.uint64(1)
    with np.errstate(over="ignore"):
        for at in range(width):
            hashes += mixed[..., at : at + count] * factor
            factor = factor * np.uint64(0xD1342543DE82EF95) + np.uint64(2)
    return _mix(hashes)


def placed_hashes(tokens: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> Hashes:
    """A hash for every token at its place in its document; their sum is the document's, however it is cut."""
    with np.errstate(over="ignore"):
        places = _mix(offsets.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        return _mix(tokens.astype(np.uint64) + places)


def _mix(values: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


@dataclass(frozen=True)
class Shared:
    """What documents share, by number of the document."""

    #: Shingles that were kept of each.
    shingles: npt.NDArray[np.int64]
    #: Of those, how many stand in many documents.
    frequent: npt.NDArray[np.int64]
    #: And how many stand in any earlier document.
    known: npt.NDArray[np.int64]
    #: The earlier document that has most of a document's other shingles, and how many; itself where none has any.
    like: npt.NDArray[np.int64]
    common: npt.NDArray[np.int64]


class Sketch:
    """The shingles with the smallest hashes of all documents, and who has them."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._limit = _FULL
        self._hashes: list[Hashes] = []
        self._owners: list[Owners] = []
        self._count = 0

    @property
    def share(self) -> float:
        """How many of the shingles are kept."""
        return float(self._limit) / float(_FULL)

    def add(self, hashes: Hashes, owners: Owners) -> None:
        """Shingles, and the document of each."""
        chosen = (owners != NOBODY) & (hashes <= self._limit)
        self._hashes.append(hashes[chosen])
        self._owners.append(owners[chosen])
        self._count += int(chosen.sum())
        while self._count > self._kept_max:
            self._limit //= np.uint64(2)
            kept_hashes, kept_owners = np.concatenate(self._hashes), np.concatenate(self._owners)
            few = kept_hashes <= self._limit
            self._hashes, self._owners = [kept_hashes[few]], [kept_owners[few]]
            self._count = int(few.sum())

    def shared(self, documents: int, many: int) -> Shared:
        """What so many documents share; a shingle that ``many`` of them have is frequent."""
        hashes = np.concatenate(self._hashes) if self._hashes else np.zeros(0, dtype=np.uint64)
        owners = np.concatenate(self._owners) if self._owners else np.zeros(0, dtype=np.int64)
        # Each shingle of a document once, the earliest document first.
        order = np.lexsort((owners, hashes))
        hashes, owners = hashes[order], owners[order]
        once = np.ones(len(hashes), dtype=np.bool_)
        once[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
        hashes, owners = hashes[once], owners[once]
        begins = np.ones(len(hashes), dtype=np.bool_)
        begins[1:] = hashes[1:] != hashes[:-1]
        groups = np.cumsum(begins) - 1
        starts = np.flatnonzero(begins)
        sizes = np.diff([*starts.tolist(), len(hashes)])
        first = owners[starts][groups] if len(hashes) else owners
        often = (sizes >= many)[groups] if len(hashes) else np.zeros(0, dtype=np.bool_)
        like, common = _most_like(owners[~often], first[~often], documents)
        return Shared(
            shingles=np.bincount(owners, minlength=documents),
            frequent=np.bincount(owners[often], minlength=documents),
            known=np.bincount(owners[owners != first], minlength=documents),
            like=like,
            common=common,
        )


def _most_like(owners: Owners, first: Owners, documents: int) -> tuple[Owners, Owners]:
    """For every document the earlier one with which it shares most, and how much."""
    other = owners != first
    like, common = np.arange(documents), np.zeros(documents, dtype=np.int64)
    pairs, counts = (
        np.unique(np.stack([owners[other], first[other]]), axis=1, return_counts=True)
        if other.any()
        else (np.zeros((2, 0), dtype=np.int64), np.zeros(0, dtype=np.int64))
    )
    order = np.argsort(counts, kind="stable")
    like[pairs[0, order]] = pairs[1, order]
    common[pairs[0, order]] = counts[order]
    return like, common
