"""A tap: a small mapped file that says what a reader of batches has in its hands, for whoever wants to look.

The plan is pure, so nothing of a batch has to be copied: recipe, registry, skips and lane are said once, step and digest for every
batch. A viewer rebuilds the batch and compares the digest. A record is written into one of two places in turn, each with a
check, so a viewer sees a whole one whenever it looks. The file goes with an orderly end; one that a killed process left is told by
the process: its number and the moment it was born.
"""

import mmap
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from penstock.data.feed.lane import Lane
from penstock.data.recipe.document import written
from penstock.store.home import penstock_home

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan

MAGIC = b"PENTAP1\n"
SUFFIX = ".tap"
#: Magic, process, bytes of the description, when the process was born (clock ticks since the machine started).
HEADER = struct.Struct("<8sIIQ")
#: How many were shown, step, seconds since 1970, digest; then the check.
RECORD = struct.Struct("<QQd16s")
RECORD_BYTES = RECORD.size + 4
RECORDS = (32, 80)
DESCRIPTION = 128


class Tap:
    """Publishes what one reader reads now."""

    def __init__(self, path: Path, plan: "Plan", lane: Lane, *, rank: int | None = None) -> None:
        """``rank``: of the process in its run, where it has one."""
        about: dict[str, Any] = {
            # A client of a service knows neither stages nor registry; a run's own files have the recipe.
            "recipe": written(plan.recipe) if plan.registry else None,
            "recipe_digest": plan.recipe.digest,
            "registry": plan.registry.url if plan.registry else "",
            "skips": plan.skips.to_json(),
            "lane": str(lane),
            "host": os.uname().nodename,
        }
        if rank is not None:
            about["rank"] = rank
        description = msgspec.json.encode(about)
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not there: a viewer may look at any time.
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        head = HEADER.pack(MAGIC, os.getpid(), len(description), born_ticks(os.getpid()))
        beside.write_bytes(head.ljust(DESCRIPTION, b"\0") + description)
        with beside.open("r+b") as file:
            self._map: mmap.mmap | None = mmap.mmap(file.fileno(), DESCRIPTION)
        beside.replace(path)
        self._pid = os.getpid()
        self._shown = 0

    def show(self, step: int, digest: str) -> None:
        """A batch was handed out. A microsecond or two; never waits."""
        if self._map is None:
            return
        self._shown += 1
        content = RECORD.pack(self._shown, step, time.time(), bytes.fromhex(digest))
        at = RECORDS[self._shown % 2]
        self._map[at : at + RECORD_BYTES] = content + crc32(content).to_bytes(4, "little")

    def close(self) -> None:
        """Nothing is read any more. The child of a fork leaves the file to its parent."""
        if self._map is not None and os.getpid() == self._pid:
            self._map.close()
            self._map = None
            self.path.unlink(missing_ok=True)


def born_ticks(pid: int) -> int:
    """When a process was born, in clock ticks since the machine started; 0 when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def home() -> Path:
    """Where taps of readers are that belong to no run."""
    return penstock_home() / "taps"
