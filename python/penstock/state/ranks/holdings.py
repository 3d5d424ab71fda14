"""What a rank holds, as a list that ranks tell each other before the work of a save is divided.

The list has names, types, shapes and boxes, and no contents. It changes rarely (when an optimizer makes its moments), so ranks
compare a digest of it at every save, and tell each other the list itself only where the digest is new.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock._rust import digest
from penstock.errors import CheckpointDamaged
from penstock.state.contract import ITEM_BYTES, Box, Held


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A box of a tensor that a rank holds."""

    name: str
    dtype: str
    #: Of the whole tensor.
    shape: tuple[int, ...]
    #: Of the box.
    offset: tuple[int, ...]
    size: tuple[int, ...]
    #: See ``Held.source``; -1 if there is none.
    source: int = -1
    #: See ``Held.per_rank``.
    per_rank: bool = False

    @property
    def spot(self) -> "Spot":
        """What replicas of it have in common."""
        return self.name, self.offset, self.size

    @property
    def bytes(self) -> int:
        """Bytes of the box."""
        return Box(self.offset, self.size).elements * ITEM_BYTES[self.dtype]


#: Name, offset and shape of a box: ranks that hold the same spot hold replicas of each other.
Spot = tuple[str, tuple[int, ...], tuple[int, ...]]


class _List(msgspec.Struct, frozen=True):
    #: How replicas are treated (``Options.replicas``), which has to be the same on all ranks.
    mode: str
    holdings: list[Holding]


class Holdings:
    """The list of one rank."""

    def __init__(self, held: Sequence[Held], mode: str) -> None:
        self._mode = mode
        #: Equal for equal lists, and made faster than a digest.
        self.key = tuple(_row(tensor) for tensor in held)
        self._document: bytes | None = None
        self._digest = ""

    @property
    def document(self) -> bytes:
        """The list as it travels."""
        if self._document is None:
            self._document = msgspec.json.encode(_List(self._mode, [Holding(*row) for row in self.key]))
        return self._document

    @property
    def digest(self) -> str:
        """Of the document."""
        if not self._digest:
            self._digest = digest(self.document)
        return self._digest


def _row(tensor: Held) -> tuple[Any, ...]:
    source = -1 if tensor.source is None else tensor.source
    return (
        tensor.name,
        tensor.dtype,
        tensor.shape,
        tensor.box.offset,
        tensor.box.shape,
        source,
        tensor.per_rank,
    )


def read_holdings(document: bytes, rank: int) -> tuple[str, list[Holding]]:
    """How a rank treats replicas, and what it holds."""
    try:
        listed = msgspec.json.decode(document, type=_List)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise CheckpointDamaged(file=f"the list of what rank {rank} holds", reason=str(reason)) from reason
    return listed.mode, listed.holdings


def spot_of(held: Held) -> Spot:
    """What replicas of it have in common."""
    return held.name, held.box.offset, held.box.shape
