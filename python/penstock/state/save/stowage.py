"""Where in an arena a capture stands: worked out once for what a rank holds and who writes what, and used again while both stay.

Training waits while a capture is begun, so nothing is computed per tensor then that follows from names, types and boxes alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.state.contract import ITEM_BYTES, Box, Held
from penstock.state.ranks.division import SMALL_BYTES, SMALL_BYTES_TOTAL, Division
from penstock.state.ranks.holdings import spot_of
from penstock.state.ranks.replicas import Share, parts_of, share_of
from penstock.state.ranks.witnesses import SAMPLE_BYTES, is_looked_at

_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of the arena, and what stands there."""

    #: In the list of what is held.
    index: int
    box: Box
    #: First byte of it in the held box.
    start: int
    #: First byte in the arena.
    at: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stowage:
    """One wave of a capture: what this rank writes, and then what it looks at of replicas."""

    bytes: int
    shares: tuple[Slot, ...]
    #: Replicas as a whole, which this rank does not write.
    whole: tuple[Slot, ...] = ()
    #: Places among ``shares`` of those that it does write.
    written: tuple[int, ...] = ()
    samples: tuple[Slot, ...] = ()


def stow(held: Sequence[Held], division: Division | None, memory_bytes: int | None) -> list[Stowage]:
    """The waves of a capture: one, unless memory for captures asks for more. What is looked at stands in the last one."""
    mine = (
        held if division is None else [placed for placed in map(division.placed, held) if placed is not None]
    )
    index = {spot_of(tensor): at for at, tensor in enumerate(held)}
    shares = [share for placed in mine if (share := share_of(placed)) is not None]
    waves = [_stowed(wave, index) for wave in _waves(shares, memory_bytes)]
    if division is not None:
        waves[-1] = _with_witnesses(waves[-1], held, division)
    return waves


def room_to_prepare(held: Sequence[Held], memory_bytes: int | None) -> int:
    """Bytes that a capture will need. Ranks have not met yet, so what each will write is what it believes."""
    replicas = [tensor.bytes for tensor in held if tensor.replicas > 1]
    small = min(sum(bytes_ for bytes_ in replicas if bytes_ <= SMALL_BYTES), SMALL_BYTES_TOTAL)
    samples = sum(min(bytes_, SAMPLE_BYTES) for bytes_ in replicas)
    return max(wave.bytes for wave in stow(held, None, memory_bytes)) + small + samples


def _waves(shares: list[Share], memory_bytes: int | None) -> list[list[Share]]:
    if memory_bytes is None or sum(share.bytes for share in shares) <= memory_bytes:
        return [shares]
    waves: list[list[Share]] = [[]]
    used = 0
    for share in (part for whole in shares for part in parts_of(whole, memory_bytes)):
        if waves[-1] and used + share.bytes > memory_bytes:
            waves.append([])
            used = 0
        waves[-1].append(share)
        used += share.bytes
    return waves


def _stowed(shares: list[Share], index: "dict[tuple[str, tuple[int, ...], tuple[int, ...]], int]") -> Stowage:
    slots = tuple(
        Slot(index[spot_of(share.held)], share.box, share.start, at, share.bytes)
        for share, at in _placed(shares)
    )
    return Stowage(sum(slot.bytes for slot in slots), slots)


def _placed(shares: list[Share]) -> Iterator[tuple[Share, int]]:
    """One after another without gaps, as they will stand in the file: in the order in which all begin at a multiple of their
    elements' size.
    """
    at = 0
    for share in sorted(
        shares, key=lambda share: (share.bytes % _ALIGNED > 0, -ITEM_BYTES[share.held.dtype])
    ):
        yield share, at
        at += share.bytes


def _with_witnesses(wave: Stowage, held: Sequence[Held], division: Division) -> Stowage:
    shares = {slot.index: at for at, slot in enumerate(wave.shares) if slot.box == held[slot.index].box}
    at = wave.bytes
    whole: list[Slot] = []
    samples: list[Slot] = []
    written: list[int] = []
    for index, tensor in enumerate(held):
        kind = is_looked_at(tensor, division)
        if kind == "whole" and index in shares:
            written.append(shares[index])
        elif kind is not None:
            bytes_ = tensor.bytes if kind == "whole" else SAMPLE_BYTES
            slot = Slot(index, tensor.box, 0, at, bytes_)
            (whole if kind == "whole" else samples).append(slot)
            at += bytes_
    return Stowage(at, wave.shares, tuple(whole), tuple(written), tuple(samples))
