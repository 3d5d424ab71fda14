"""Eras: the rows of a version in portions that are measured, planned and read one after another.

Tokenising a terabyte takes days, and a run needs its first batch now. So a version is cut, from its manifest alone: a shard
into *slices* of about 8 MiB, and the slices, in an order keyed by the version, into *eras*. The first era is small, so
that it is measured within seconds however large the version is; each later one is twice as large as the one before,
up to 1 GiB, so that the shuffle inside an era soon is as good as it gets. An epoch reads the eras in order.

The cut depends on the version and nothing else, so that recipes with other seeds share what was measured.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import msgspec
import numpy as np

from penstock import _rust
from penstock._rust import digest
from penstock.registry import Version
from penstock.registry.manifest import Manifest

#: Part of every era's identity: raise it when the same version is cut differently.
LAYOUT = 1


@dataclass(frozen=True, slots=True)
class EraSizes:
    """How large slices and eras are, in bytes of the version's files. Only tests have others than these."""

    slice_bytes: int = 8 << 20
    first_bytes: int = 16 << 20
    most_bytes: int = 1 << 30

    def of_era(self, number: int) -> int:
        """How large an era is at least, unless the version ends before."""
        return self.most_bytes if number > 62 else min(self.first_bytes << number, self.most_bytes)


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of rows of one shard."""

    first: int
    #: After the last row.
    stop: int
    #: Its share of the shard's bytes, as if all rows were equally long.
    bytes: int


@dataclass(frozen=True)
class Era:
    """Slices that are measured and shuffled together."""

    number: int
    #: By row, whatever their keyed order was: the shuffle inside the era makes up for it.
    slices: tuple[Slice, ...]

    @cached_property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(part.stop - part.first for part in self.slices)

    @cached_property
    def bytes(self) -> int:
        """About how many bytes of the version's files."""
        return sum(part.bytes for part in self.slices)

    @property
    def pieces(self) -> tuple[tuple[int, int], ...]:
        """The ranges of rows."""
        return tuple((part.first, part.stop) for part in self.slices)

    def row_numbers(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """The rows of the version that it has, rising."""
        return np.concatenate([np.arange(first, stop, dtype=np.int64) for first, stop in self.pieces])


def cut(manifest: Manifest, sizes: EraSizes) -> list[Slice]:
    """All slices of a version, by row; a slice has at least one row, and only rows of one shard."""
    slices = []
    before = 0
    for shard in manifest.shards:
        count = min(shard.rows, max(1, -(-shard.bytes // sizes.slice_bytes)))
        for at in range(count):
            first, stop = shard.rows * at // count, shard.rows * (at + 1) // count
            share = shard.bytes * (at + 1) // count - shard.bytes * at // count
            slices.append(Slice(before + first, before + stop, share))
        before += shard.rows
    return slices


def gather(ordered: Sequence[Slice], sizes: EraSizes) -> tuple[Era, ...]:
    """Slices put into eras in the order given: an era ends with the slice that makes it large enough."""
    eras: list[Era] = []
    taken: list[Slice] = []
    size = 0
    for at, part in enumerate(ordered):
        taken.append(part)
        size += part.bytes
        if size >= sizes.of_era(len(eras)) or at == len(ordered) - 1:
            eras.append(Era(len(eras), tuple(sorted(taken, key=lambda taken: taken.first))))
            taken, size = [], 0
    return tuple(eras)


def eras_of(version: Version, *, shuffled: bool, sizes: EraSizes | None = None) -> tuple[Era, ...]:
    """The eras of a version; without a shuffle they are as stored."""
    chosen = sizes or EraSizes()
    slices = cut(version.manifest, chosen)
    if shuffled:
        order = np.frombuffer(_rust.slice_order(version.digest, len(slices)), dtype=np.uint64)
        slices = [slices[at] for at in order.tolist()]
    return gather(slices, chosen)


@dataclass(frozen=True)
class EraIdentity:
    """Everything that the eras of a source follow from, apart from the seed."""

    #: Digest of the version.
    version: str
    #: Identities of all measures, library versions included, in the order of the stages; and the split, if there is one.
    measures: tuple[dict[str, str], ...]
    sizes: EraSizes
    shuffled: bool

    @cached_property
    def digest(self) -> str:
        """What a cursor names instead of the tables, which follow from it."""
        parts = (LAYOUT, self.version, self.measures, asdict(self.sizes), self.shuffled)
        return digest(msgspec.json.encode(parts, order="deterministic"))

    def of_era(self, number: int) -> str:
        """The origin of all orders of an era: known before the era is measured, and never a matter of its bytes."""
        return digest(msgspec.json.encode((self.digest, number)))
