"""From wall time to the clock of a boot. Journals say when in wall time, rows in CLOCK_BOOTTIME; anchors say both at the same moment.

Between two anchors of one boot the wall clock is taken to run evenly; beyond them it runs as the boot's. Where there is no anchor at all the
wall clock itself is the clock.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from penstock.observe.steps import Anchor
from penstock.report.accounts.supervision import Stamp

#: The clock of lives without anchors.
WALL = "wall"
#: A wall clock that moved by more than this between two anchors was set by somebody.
STEP_NS = 1_000_000_000


class ClockMap:
    """Anchors of a run, of all lives and ranks."""

    def __init__(self, anchors: Iterable[Anchor]) -> None:
        self._anchors = sorted(anchors, key=lambda anchor: (anchor.wall, anchor.boottime))
        self._walls = [anchor.wall for anchor in self._anchors]

    def of(self, clock: str) -> "ClockMap":
        """Of one boot alone; of all where none is called so."""
        own = [anchor for anchor in self._anchors if anchor.boot_id == clock]
        return ClockMap(own) if own and len(own) < len(self._anchors) else self

    def at(self, wall_s: float) -> tuple[str, int]:
        """A clock and a moment of it."""
        wall = round(wall_s * 1e9)
        if not self._anchors:
            return WALL, wall
        place = bisect_right(self._walls, wall)
        before = self._anchors[place - 1] if place else None
        after = self._anchors[place] if place < len(self._anchors) else None
        near = min(
            (anchor for anchor in (before, after) if anchor is not None),
            key=lambda anchor: abs(anchor.wall - wall),
        )
        if before is not None and after is not None and before.boot_id == after.boot_id:
            walls, boots = after.wall - before.wall, after.boottime - before.boottime
            if walls > 0 and abs(walls - boots) < STEP_NS:
                return before.boot_id, before.boottime + (wall - before.wall) * boots // walls
        return near.boot_id, near.boottime + wall - near.wall

    def moment(self, wall_s: float | None) -> int | None:
        """The moment alone."""
        return None if not wall_s else self.at(wall_s)[1]

    def wall(self, clock: str, boottime: int) -> int | None:
        """What the wall clock showed at a moment of a boot, by the nearest anchor of it; None where it has none."""
        near = min(
            (anchor for anchor in self._anchors if anchor.boot_id == clock),
            key=lambda anchor: abs(anchor.boottime - boottime),
            default=None,
        )
        return None if near is None else near.wall + boottime - near.boottime

    def stamp(self, stamp: Stamp | None, clock: str) -> int | None:
        """The moment of a boot that its supervisor noted: on that boot's own clock where it says so, else by the wall clocks."""
        if stamp is None:
            return None
        if stamp.boot_ns and stamp.boot_id == clock:
            return stamp.boot_ns
        return self.moment(stamp.wall)

    def clock(self, life: int, rank: int, wall_s: float) -> str:
        """The clock of a life: that of its own anchors, else of the nearest ones."""
        own = [anchor.boot_id for anchor in self._anchors if (anchor.life, anchor.rank) == (life, rank)]
        return own[0] if own else self.at(wall_s)[0]

    def steps_of_the_wall_clock(self) -> list[str]:
        """Where somebody set the wall clock, in words."""
        sentences = []
        by_rank: dict[tuple[int, int], list[Anchor]] = {}
        for anchor in sorted(self._anchors, key=lambda one: (one.life, one.rank, one.boottime)):
            by_rank.setdefault((anchor.life, anchor.rank), []).append(anchor)
        for (life, rank), anchors in by_rank.items():
            for before, after in pairwise(anchors):
                moved = (after.wall - before.wall) - (after.boottime - before.boottime)
                if before.boot_id == after.boot_id and abs(moved) >= STEP_NS:
                    sentences.append(
                        f"the wall clock of rank {rank} was set by {moved / 1e9:+.1f} s in life {life}; no account has it"
                    )
        return sentences

    def suspends(self, life: int, rank: int) -> list[tuple[int, int]]:
        """When the host slept: boot time went on and monotonic time did not."""
        anchors = sorted(
            (one for one in self._anchors if (one.life, one.rank) == (life, rank)),
            key=lambda one: one.boottime,
        )
        spans = []
        for before, after in pairwise(anchors):
            slept = (after.boottime - before.boottime) - (after.monotonic - before.monotonic)
            if slept >= STEP_NS:
                # It slept somewhere between the two; the wake-up is nearer, because anchors come late after it.
                spans.append((after.boottime - slept, after.boottime))
        return spans
