"""Whether replicas are equal: what every rank says of the contents of those it holds, and what follows where they differ.

A small replica is captured by every rank that has one and hashed as a whole; should they differ, each rank keeps its own. Of a larger
one some thousand elements at fixed places are compared (all, with ``replicas="check"``); should those differ, nothing is committed.
Hashes are made of captured copies, behind training's back, and travel in the parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from penstock import _rust
from penstock.errors import RanksDiffer
from penstock.state.contract import ITEM_BYTES, Copy, Held, Sample
from penstock.state.manifest import CHUNK_BYTES_MIN, HASH_DIGITS
from penstock.state.ranks.division import Division
from penstock.state.ranks.holdings import Spot, spot_of
from penstock.state.save.write import THREADS

#: A sample of a large replica: so many stretches, each of so many bytes, from its beginning to its end.
SAMPLE_ROWS, SAMPLE_WIDTH = 64, 256
SAMPLE_BYTES = SAMPLE_ROWS * SAMPLE_WIDTH
#: What stands for a replica that nobody could look at.
_UNSEEN = "-" * HASH_DIGITS


@dataclass(frozen=True, slots=True)
class Seen:
    """What was captured of replicas: bytes that are hashed later, and hashes where there was no later."""

    memory: Mapping[Spot, memoryview]
    hashes: Mapping[Spot, str]

    def checks(self, division: Division) -> dict[str, str]:
        """What this rank says of its replicas, by the number of the group that it shares them with."""
        spots = list(self.memory)
        digests = _rust.hash_buffers([self.memory[spot] for spot in spots], CHUNK_BYTES_MIN, THREADS)
        hashes = {**dict(zip(spots, digests, strict=True)), **self.hashes}
        return {
            str(number): "".join(hashes.get(spot, _UNSEEN) for spot in group.spots)
            for number, group in enumerate(division.groups)
            if division.rank in group.ranks
        }


def is_looked_at(held: Held, division: Division) -> Literal["whole", "sample"] | None:
    """How much of what this rank holds is compared with the replicas of others."""
    if held.per_rank or spot_of(held) not in division.compared:
        return None
    if spot_of(held) in division.small or held.bytes <= SAMPLE_BYTES:
        return "whole"
    return "sample" if hasattr(held.mover, "sample") else None


def sample_of(held: Held, host: memoryview) -> Sample:
    """The places that are looked at: the same for equal boxes of equal types."""
    apart = (held.bytes - SAMPLE_WIDTH) // (SAMPLE_ROWS - 1)
    return Sample(held, SAMPLE_ROWS, SAMPLE_WIDTH, apart - apart % ITEM_BYTES[held.dtype], host)


def hashes_of(large: Sequence[Held]) -> dict[Spot, str]:
    """Of all bytes of large replicas, one tensor at a time. Training waits for it."""
    hashes = {}
    for replica in large:
        room = memoryview(bytearray(replica.bytes))
        replica.mover.take([Copy(replica, 0, room)]).wait()
        hashes[spot_of(replica)] = blake2b(room, digest_size=HASH_DIGITS // 2).hexdigest()
    return hashes


def differing(division: Division, checks: Sequence[Mapping[str, str]], step: int) -> dict[str, list[int]]:
    """Small replicas that are not equal, with the ranks that differ from the first; ``RanksDiffer`` for a large one.

    ``checks`` are what each rank said, in the order of ranks.
    """
    small: dict[str, list[int]] = {}
    large: dict[str, list[int]] = {}
    for number, group in enumerate(division.groups):
        said = {rank: checks[rank][str(number)] for rank in group.ranks}
        first = said[group.ranks[0]]
        odd = [rank for rank in group.ranks if said[rank] != first]
        if not odd:
            continue
        for at, spot in enumerate(group.spots):
            digits = slice(at * HASH_DIGITS, (at + 1) * HASH_DIGITS)
            ranks = [rank for rank in odd if said[rank][digits] not in (first[digits], _UNSEEN)]
            if ranks and first[digits] != _UNSEEN:
                (small if spot in division.small else large).setdefault(spot[0], []).extend(ranks)
    if large:
        name, ranks = next(iter(sorted(large.items())))
        others = f", and so are {len(large) - 1} more tensors" if len(large) > 1 else ""
        raise RanksDiffer(
            step=step,
            name=name,
            ranks=ranks,
            reason=f"its contents on rank {_listed(ranks)} are not those of rank "
            f"{division.holders[name][0]}{others}",
            hint="replicas must be equal; give tensors that differ by design a name for each rank, "
            "or open Checkpoints with replicas='first' to save those of the first rank",
        )
    return {name: sorted(set(ranks)) for name, ranks in small.items()}


def _listed(ranks: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, ranks[:most]))
    return f"{shown} and {len(ranks) - most} more" if len(ranks) > most else shown
