"""Whether all hosts of a job see the same place.

A directory on local disks has the same name on every host and is another one on each. Ranks would wait for a fence that is on another
disk, and decisions would be lost with a host. So rank 0 writes a token into the place, and one rank of every other host reads it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from penstock._rust import digest
from penstock.errors import ObjectMissing, PlaceNotShared
from penstock.state.ranks.clock import Clock, Wait
from penstock.store import Store

FOLDER = "places"
#: Rank 0 may still be at its imports when another rank looks.
PATIENCE_S = 120.0
#: When rank 0 is known to have written: file systems of networks may show a new file some seconds later.
SHOW_S = 30.0


@dataclass(frozen=True, slots=True)
class HostPosition:
    """Where a rank of a job of many hosts stands."""

    rank: int
    ranks: int
    local_rank: int
    host_rank: int
    #: The same on all ranks of a life, and in no other.
    life: str

    @property
    def looks(self) -> bool:
        """Whether this rank looks for its host. The host of rank 0 need not."""
        return self.local_rank == 0 and self.host_rank != 0


def host_position(environment: Mapping[str, str] = os.environ) -> HostPosition | None:
    """The position of this process; nothing in a job of one host, or under another launcher."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE")
    numbers = [environment.get(name, "") for name in names]
    if "PENSTOCK_JOB" not in environment or not all(text.isdigit() for text in numbers):
        return None
    rank, ranks, local_rank, host_rank, hosts = map(int, numbers)
    if hosts < 2:
        return None
    parts = ("PENSTOCK_JOB", "PENSTOCK_INCARNATION", "MASTER_ADDR", "MASTER_PORT")
    life = digest("\n".join(environment.get(name, "") for name in parts).encode())[:32]
    return HostPosition(rank, ranks, local_rank, host_rank, life)


def leave_token(store: Store, token: str) -> None:
    """Rank 0: write it, and remove those of earlier lives."""
    for entry in list(store.entries(FOLDER)):
        if entry.name != _name(token):
            store.delete(entry.name)
    store.put_if_absent(_name(token), os.uname().nodename.encode())


def look_for_token(
    store: Store, token: str, position: HostPosition, *, timeout_s: float, clock: Clock | None = None
) -> None:
    """Another host: read it, or say which host does not see which place."""
    wait = Wait(timeout_s, clock or Clock())
    while True:
        try:
            store.get(_name(token))
            return
        except ObjectMissing:
            if not wait.again():
                raise PlaceNotShared(
                    host=os.uname().nodename,
                    host_rank=position.host_rank,
                    place=store.url,
                    waited_s=wait.waited_s,
                ) from None


def check_one_place(store: Store, position: HostPosition | None, ranks: int, *, deadline_s: float) -> None:
    """When the ranks of a job open a place together: rank 0 writes, one rank of every other host reads. Others return at once."""
    if position is None or ranks != position.ranks:
        # Some ranks alone use it, so nobody else has to see it.
        return
    if position.rank == 0:
        leave_token(store, position.life)
    elif position.looks:
        look_for_token(store, position.life, position, timeout_s=min(PATIENCE_S, deadline_s))


def _name(token: str) -> str:
    return f"{FOLDER}/{token}"
