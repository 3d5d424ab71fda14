"""What differs between two checkpoints: tensors and by how much, values, entries, and moments that stood still.

Tensors of equal layout and equal hashes are equal without a byte being read. Of the others, only what differs is read from both:
where a stretch has the same hashes on both sides, one side is enough for the norm.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import isfinite, sqrt
from typing import Any

import numpy as np

from penstock.state.contract import ITEM_BYTES, Box
from penstock.state.inspect.dtypes import Array, numbers_of
from penstock.state.inspect.optimizer_moments import moments_of
from penstock.state.inspect.piece_reader import Reader, ReadSpan, Slice
from penstock.state.inspect.statistics import Tell, blocks, parts_of, square_sum
from penstock.state.manifest import HASH_DIGITS, Entries, Tensor
from penstock.state.save.box_cuts import cut

#: Bytes of a part, where layouts differ.
_PART_BYTES = 8 << 20
#: Longer lists are compared as a whole: the state of a random generator says nothing number by number.
_ITEMS_MAX = 64


@dataclass(slots=True)
class Change:
    """How a tensor that both have differs."""

    name: str
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    elements: int = 0
    #: Elements whose bits differ; whose values differ, where types do.
    changed: int = 0
    #: Elements of either side that are no finite numbers; the figures below are about the rest.
    not_finite: int = 0
    greatest: float = 0.0
    square_before: float = 0.0
    square_change: float = 0.0

    @property
    def comparable(self) -> bool:
        """Whether elements stand against elements."""
        return self.shapes[0] == self.shapes[1]

    @property
    def share(self) -> float:
        """The share of elements that changed."""
        return self.changed / self.elements if self.elements else 0.0

    @property
    def relative(self) -> float | None:
        """The norm of the change over the norm before; None where there was none."""
        if not self.comparable or not self.square_before:
            return None
        return sqrt(self.square_change / self.square_before)

    def add(self, before: Slice, after: Slice | None) -> None:
        """Take a stretch of elements in; ``after`` is None if it is known to be the same."""
        old, new = self.dtypes
        if after is None:
            for block in blocks(before.memory, old):
                self._add(block, block, 0)
            return
        for mine, theirs in zip(parts_of(before.memory, old), parts_of(after.memory, new), strict=True):
            x, y = numbers_of(mine, old), numbers_of(theirs, new)
            different = _bits(mine, old) != _bits(theirs, new) if old == new else x != y
            self._add(x, y, int(np.count_nonzero(different)))

    def _add(self, before: Array, after: Array, changed: int) -> None:
        self.elements += before.size
        self.changed += changed
        wide = np.complex128 if before.dtype.kind == "c" or after.dtype.kind == "c" else np.float64
        # Some patterns of bits are numbers that no calculation makes, and complain.
        with np.errstate(invalid="ignore"):
            x, y = before.astype(wide), after.astype(wide)
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            self.not_finite += before.size - int(np.count_nonzero(finite))
            x, y = x[finite], y[finite]
        self.square_before += square_sum(np.abs(x))
        if changed and x.size:
            change = np.abs(y - x)
            self.square_change += square_sum(change)
            self.greatest = max(self.greatest, float(change.max()))

    def to_json(self) -> dict[str, Any]:
        """As plain values; figures that are beyond double precision are left out."""
        known = self.relative
        return {
            "name": self.name,
            "dtypes": list(self.dtypes),
            "shapes": [list(shape) for shape in self.shapes],
            "changed_share": self.share if self.comparable else None,
            "relative_l2": known if known is not None and isfinite(known) else None,
            "max_abs": self.greatest if self.comparable and isfinite(self.greatest) else None,
            "not_finite": self.not_finite,
        }


@dataclass(frozen=True, slots=True)
class Still:
    """A parameter and one of its moments, of which only one moved."""

    parameter: str
    moment: str


@dataclass(slots=True)
class Difference:
    """Everything that differs."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    #: Those that changed, the largest relative change first.
    changes: list[Change] = field(default_factory=list)
    #: How many tensors are equal bit by bit, and how many of those were known to be without reading.
    equal: int = 0
    equal_by_hash: int = 0
    #: Names of values and entries that differ, with what they are on both sides.
    values: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    entries: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    #: Moments that stood still while their parameter moved, and the other way round.
    stale: list[Still] = field(default_factory=list)
    unmoved: list[Still] = field(default_factory=list)
    bytes_read: int = 0

    @property
    def nothing(self) -> bool:
        """Whether both are the same."""
        return not (self.added or self.removed or self.changes or self.values or self.entries)

    def to_json(self, most: int | None = None) -> dict[str, Any]:
        """As plain values, with at most so many changes."""
        return {
            "equal": self.nothing,
            "equal_tensors": self.equal,
            "equal_by_hash": self.equal_by_hash,
            "changed_tensors": len(self.changes),
            "changes": [change.to_json() for change in self.changes[:most]],
            "added": self.added,
            "removed": self.removed,
            "values": {name: list(pair) for name, pair in self.values.items()},
            "entries": {name: list(pair) for name, pair in self.entries.items()},
            "stale_moments": [asdict(still) for still in self.stale],
            "unmoved_parameters": [asdict(still) for still in self.unmoved],
            "bytes_read": self.bytes_read,
        }


def difference(before: Reader, after: Reader, tell: Tell = lambda done, total: None) -> Difference:
    """What differs between two checkpoints."""
    old, new = before.manifest, after.manifest
    result = Difference(
        added=[name for name in new.tensors if name not in old.tensors],
        removed=[name for name in old.tensors if name not in new.tensors],
        values=_differing(_leaves(old.values), _leaves(new.values)),
        entries=_differing(_leaves(_flat(old.entries)), _leaves(_flat(new.entries))),
    )
    both = [name for name in old.tensors if name in new.tensors]
    same_chunks = old.chunk_bytes == new.chunk_bytes
    to_read = []
    for name in both:
        if same_chunks and old.tensors[name].identity == new.tensors[name].identity:
            result.equal_by_hash += 1
        else:
            to_read.append(name)
    changes = _compare(before, after, to_read, result, tell)
    result.changes = [change for change in changes if change.changed or not _alike(change)]
    result.changes.sort(key=lambda change: (-_rank(change), change.name))
    result.equal = len(both) - len(result.changes)
    _find_still(result, both)
    return result


def _compare(before: Reader, after: Reader, names: list[str], result: Difference, tell: Tell) -> list[Change]:
    changes = {
        name: _change(name, before.manifest.tensors[name], after.manifest.tensors[name]) for name in names
    }
    pairs = [
        pair for name, change in changes.items() if change.comparable for pair in _pairs(before, after, name)
    ]
    needed = [(part, other) for part, other in pairs if other is not None]
    total = sum(part.bytes for part, _ in pairs) + sum(other.bytes for _, other in needed)
    with closing(after.read([other for _, other in needed])) as others:
        for (part, other), chunk in zip(pairs, before.read([part for part, _ in pairs]), strict=True):
            changes[part.name].add(chunk, None if other is None else next(others))
            result.bytes_read += part.bytes + (0 if other is None else other.bytes)
            tell(result.bytes_read, total)
    return list(changes.values())


def _pairs(before: Reader, after: Reader, name: str) -> Iterator[tuple[ReadSpan, ReadSpan | None]]:
    """The same elements on both sides; no part on the other side where hashes say that it is the same."""
    old, new = before.manifest.tensors[name], after.manifest.tensors[name]
    if before.manifest.chunk_bytes == after.manifest.chunk_bytes and _layout(old) == _layout(new):
        numbers = {piece.box: number for number, piece in enumerate(new.pieces)}
        for number, piece in enumerate(old.pieces):
            other = numbers[piece.box]
            for part in before.of_piece(name, number):
                for start, length, same in _runs(part, new.pieces[other].hashes, before.manifest.chunk_bytes):
                    mine = ReadSpan(name, old, start, length, piece=number)
                    yield mine, None if same else ReadSpan(name, new, start, length, piece=other)
        return
    sizes = ITEM_BYTES[old.dtype], ITEM_BYTES[new.dtype]
    most = min(_PART_BYTES, before.part_bytes, after.part_bytes)
    for box, start in cut(Box((0,) * len(old.shape), old.shape), max(sizes), most):
        if box.elements:
            first = start // max(sizes)
            yield (
                ReadSpan(name, old, first * sizes[0], box.elements * sizes[0], box=box),
                ReadSpan(name, new, first * sizes[1], box.elements * sizes[1], box=box),
            )


def _layout(tensor: Tensor) -> tuple[str, frozenset[Box]]:
    return tensor.dtype, frozenset(piece.box for piece in tensor.pieces)


def _runs(part: ReadSpan, others: str, chunk: int) -> Iterator[tuple[int, int, bool]]:
    """Stretches of a part whose chunks all have the same hashes as the other side's, or all have not."""
    assert part.piece is not None, "only pieces have hashes"
    own = part.tensor.pieces[part.piece].hashes
    end = part.start + part.bytes

    def same(start: int) -> bool:
        digits = slice(start // chunk * HASH_DIGITS, (start // chunk + 1) * HASH_DIGITS)
        return own[digits] == others[digits]

    for alike, starts in groupby(range(part.start, end, chunk), same):
        run = list(starts)
        yield run[0], min(run[-1] + chunk, end) - run[0], alike


def _change(name: str, old: Tensor, new: Tensor) -> Change:
    return Change(name, (old.dtype, new.dtype), (tuple(old.shape), tuple(new.shape)))


def _alike(change: Change) -> bool:
    return change.comparable and change.dtypes[0] == change.dtypes[1]


def _rank(change: Change) -> float:
    """How far up a change is shown: what cannot be compared first, then by its relative size."""
    if not change.comparable:
        return float("inf")
    return float("1e300") if change.relative is None else change.relative


def _bits(memory: memoryview, dtype: str) -> Array:
    return np.frombuffer(memory, f"u{ITEM_BYTES[dtype]}")


def _find_still(result: Difference, both: list[str]) -> None:
    """Moments and parameters of which one moved and the other did not."""
    moved = {change.name for change in result.changes}
    for moment, parameter in moments_of(both).items():
        if parameter in moved and moment not in moved:
            result.stale.append(Still(parameter, moment))
        elif moment in moved and parameter not in moved:
            result.unmoved.append(Still(parameter, moment))


def _differing(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = [*old, *(name for name in new if name not in old)]
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _leaves(values: dict[str, Any]) -> dict[str, Any]:
    """Documents taken apart, so that what differs is a learning rate and not a whole schedule."""
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        inner = value.get("$dict", value) if isinstance(value, dict) else value
        if isinstance(inner, list) and len(inner) <= _ITEMS_MAX:
            inner = dict(enumerate(inner))
        if isinstance(inner, dict) and inner and not any(str(key).startswith("$") for key in inner):
            leaves |= _leaves({f"{name}/{key}": below for key, below in inner.items()})
        else:
            leaves[name] = inner
    return leaves


def _flat(entries: Entries) -> dict[str, Any]:
    """Entries of all ranks by name; those of a rank with its number."""
    own = {
        f"{name} of rank {rank}": value
        for rank, rank_entries in enumerate(entries.ranks)
        for name, value in rank_entries.items()
    }
    return {**entries.shared, **own}
