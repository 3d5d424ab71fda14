"""Who writes what: the division of a save's work, which follows from what all ranks hold.

Every rank computes it from the same lists, so all come to the same one; its ``id`` stands in every part, and parts of different
divisions are never committed together. A box that several ranks hold (replicas) is divided among them, one that a single rank holds
is written by that rank, whether or not other ranks know the name. One name with two shapes or types is refused.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from penstock._rust import digest
from penstock.errors import RanksDiffer, UsageError
from penstock.state.contract import ITEM_BYTES, Held
from penstock.state.manifest import chunk_bytes_for
from penstock.state.ranks.holdings import Holding, Spot, read_holdings, spot_of

#: Replicas up to this size are captured by every rank that has one, so that each can keep its own should they differ …
SMALL_BYTES = 64 << 10
#: … as long as all of them together are not larger than this.
SMALL_BYTES_TOTAL = 16 << 20

#: Of how many tensors a manifest notes the boxes of a rank.
BOXES = 64


@dataclass(frozen=True, slots=True)
class Group:
    """Replicas that the same ranks hold."""

    ranks: tuple[int, ...]
    #: In the same order on every rank.
    spots: tuple[Spot, ...]


class Division:
    """Who writes which piece of a save, and the digest of that decision."""

    def __init__(self, rank: int, digests: Sequence[str], documents: Mapping[str, bytes], step: int) -> None:
        self.rank = rank
        self.ranks = len(digests)
        self.digests = tuple(digests)
        self.id = digest("\n".join(digests).encode())
        alike: dict[str, list[int]] = defaultdict(list)
        for number, rank_digest in enumerate(digests):
            alike[rank_digest].append(number)
        lists = {key: read_holdings(documents[key], ranks[0]) for key, ranks in alike.items()}
        self.mode = _one_mode([(lists[key][0], ranks[0]) for key, ranks in alike.items()])
        shared = [([h for h in lists[key][1] if not h.per_rank], ranks) for key, ranks in alike.items()]
        #: Ranks that hold something of a tensor, by name.
        self.holders = _holders(shared, step)
        kinds = {holding.name: (holding.dtype, holding.shape) for held, _ in shared for holding in held}
        #: The size of chunks, for all ranks: by the whole tensors.
        self.chunk_bytes = chunk_bytes_for(sum(prod(s) * ITEM_BYTES[d] for d, s in kinds.values()))
        self._boxes = {key: _boxes(held) for key, (_, held) in lists.items()}
        self._writers = _writers(shared, first=self.mode == "first")
        self.groups = _groups(self._writers)
        self.small = _small(self.groups, kinds)
        #: What this rank holds and others hold too.
        self.compared = frozenset(
            spot for group in self.groups if rank in group.ranks for spot in group.spots
        )

    def placed(self, held: Held) -> Held | None:
        """What a rank holds, as a replica among those who write it; None if others write it."""
        if held.per_rank:
            return held if held.replicas == 1 else replace(held, replica=0, replicas=1)
        writers = self._writers[spot_of(held)]
        if self.rank not in writers:
            return None
        place = (writers.index(self.rank), len(writers))
        return (
            held
            if place == (held.replica, held.replicas)
            else replace(held, replica=place[0], replicas=place[1])
        )

    def boxes_of(self, rank: int) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """Some of the boxes that a rank holds of tensors that are spread over ranks: they tell one layout from another."""
        return self._boxes[self.digests[rank]]

    def witnesses(self, name: str) -> frozenset[int]:
        """Ranks that capture a small replica of a tensor."""
        return frozenset(
            rank
            for group in self.groups
            for spot in group.spots
            if spot[0] == name and spot in self.small
            for rank in group.ranks
        )

    def partial(self) -> dict[tuple[int, ...], list[str]]:
        """Names that not all ranks have, by the ranks that have them."""
        by_ranks: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, ranks in self.holders.items():
            if len(ranks) < self.ranks:
                by_ranks[ranks].append(name)
        return by_ranks


def _one_mode(modes: list[tuple[str, int]]) -> str:
    first, rank = modes[0]
    for mode, other in modes:
        if mode != first:
            raise UsageError(
                f"rank {rank} saves with replicas={first!r}, rank {other} with replicas={mode!r}",
                hint="open Checkpoints with the same replicas= on every rank",
            )
    return first


def _holders(shared: list[tuple[list[Holding], list[int]]], step: int) -> dict[str, tuple[int, ...]]:
    kinds: dict[str, tuple[Holding, int]] = {}
    ranks_of: dict[str, set[int]] = defaultdict(set)
    for held, ranks in shared:
        for holding in held:
            known, rank = kinds.setdefault(holding.name, (holding, ranks[0]))
            if (known.dtype, known.shape) != (holding.dtype, holding.shape):
                raise RanksDiffer(
                    step=step,
                    name=holding.name,
                    ranks=[rank, ranks[0]],
                    reason=f"it is {known.dtype} {list(known.shape)} on rank {rank} and {holding.dtype} "
                    f"{list(holding.shape)} on rank {ranks[0]}",
                    hint="tensors that are not the same on all ranks need names of their own",
                )
            ranks_of[holding.name].update(ranks)
    return {name: tuple(sorted(ranks)) for name, ranks in ranks_of.items()}


def _boxes(held: list[Holding]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    spread = [holding for holding in held if holding.size != holding.shape]
    return {
        holding.name: (holding.offset, holding.size)
        for holding in spread[:: max(1, len(spread) // BOXES)][:BOXES]
    }


def _writers(shared: list[tuple[list[Holding], list[int]]], *, first: bool) -> dict[Spot, tuple[int, ...]]:
    """Ranks that write a box: all that hold it, or those whose contents count."""
    holders: dict[Spot, set[int]] = defaultdict(set)
    sources: dict[Spot, set[int]] = defaultdict(set)
    for held, ranks in shared:
        for holding in held:
            holders[holding.spot].update(ranks)
            if holding.source >= 0:
                sources[holding.spot].add(holding.source)
    writers_of = {}
    for spot, ranks_of in holders.items():
        writers = tuple(sorted(sources[spot] & ranks_of if spot in sources else ())) or tuple(
            sorted(ranks_of)
        )
        writers_of[spot] = writers[:1] if first else writers
    return writers_of


def _groups(writers: dict[Spot, tuple[int, ...]]) -> tuple[Group, ...]:
    spots: dict[tuple[int, ...], list[Spot]] = defaultdict(list)
    for spot, ranks in writers.items():
        if len(ranks) > 1 and 0 not in spot[2]:
            spots[ranks].append(spot)
    return tuple(Group(ranks, tuple(sorted(spots[ranks]))) for ranks in sorted(spots))


def _small(groups: tuple[Group, ...], kinds: dict[str, tuple[str, tuple[int, ...]]]) -> frozenset[Spot]:
    """Replicas that everybody captures. Counted over all groups, so that every rank comes to the same ones."""
    small, total = set(), 0
    for spot in sorted(spot for group in groups for spot in group.spots):
        bytes_ = prod(spot[2]) * ITEM_BYTES[kinds[spot[0]][0]]
        if bytes_ <= SMALL_BYTES and total + bytes_ <= SMALL_BYTES_TOTAL:
            small.add(spot)
            total += bytes_
    return frozenset(small)
