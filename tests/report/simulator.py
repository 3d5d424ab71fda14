"""A training loop in numbers: columns of steps with noise from a seed, in which a cause can be planted."""

from dataclasses import dataclass, field

import numpy as np

from penstock.observe.steps import PARTS, StackSample
from penstock.report.accounts.timeline import LifeTimeline, Marks, RankTimeline, StepColumns, Times
from penstock.report.run_report import Evidence

MS = 1_000_000
#: Milliseconds of a step by part, where nothing is planted.
USUAL = {
    "data": 0.4,
    "transfer": 0.3,
    "forward": 20.0,
    "backward": 40.0,
    "optimizer": 5.0,
    "judge": 0.2,
    "rest": 0.5,
}
START_NS = 200 * MS


@dataclass
class Loop:
    """Ranks, steps, and what is planted: by rank (None: all) and part, milliseconds of every step."""

    steps: int = 200
    ranks: int = 1
    seed: int = 0
    has_device: bool = False
    planted: list[tuple[int | None, str, Times]] = field(default_factory=list)
    others: dict[str, Times] = field(default_factory=dict)
    stacks: list[StackSample] = field(default_factory=list)

    def plant(self, part: str, milliseconds: float, *, every: int = 1, rank: int | None = None) -> "Loop":
        """Make a part longer."""
        column = np.zeros(self.steps, np.int64)
        column[every - 1 :: every] = round(milliseconds * MS)
        self.planted.append((rank, part, column))
        return self

    def total(self) -> int:
        """Nanoseconds that were planted on the rank that has most of them."""
        return max(
            sum(int(column.sum()) for rank, _, column in self.planted if rank in (None, one))
            for one in range(self.ranks)
        )

    def evidence(self) -> Evidence:
        """What a report is made from."""
        chance = np.random.default_rng(self.seed)
        tables: list[dict[str, Times]] = []
        for rank in range(self.ranks):
            parts = {part: np.zeros(self.steps, np.int64) for part in PARTS}
            for part, milliseconds in USUAL.items():
                noise = chance.normal(1.0, 0.03, self.steps).clip(0.5, 1.5)
                parts[part] = (milliseconds * MS * noise).astype(np.int64)
            for planted_rank, part, column in self.planted:
                if planted_rank in (None, rank):
                    parts[part] = parts[part] + column
            tables.append(parts)
        busy = [sum(parts.values(), np.zeros(self.steps, np.int64)) for parts in tables]
        slowest = np.max(busy, axis=0)
        for parts, own in zip(tables, busy, strict=True):
            # All leave the collectives of backward together.
            parts["backward"] = parts["backward"] + slowest - own
        ends = START_NS + np.cumsum(slowest)
        begins = ends - slowest
        return Evidence(
            "loop",
            tuple(self._rank(rank, tables[rank], begins, ends) for rank in range(self.ranks)),
            tuple(self.stacks),
        )

    def _rank(self, rank: int, parts: dict[str, Times], begins: Times, ends: Times) -> RankTimeline:
        others = dict(self.others)
        if self.has_device:
            work = parts["forward"] + parts["backward"] + parts["optimizer"]
            others |= {"device.forward": parts["forward"], "device.backward": parts["backward"]}
            others.setdefault("device.idle", ends - begins - work)
        steps = StepColumns(np.arange(self.steps, dtype=np.int64), begins, ends, parts, others)
        life = LifeTimeline(
            born=0,
            joined=START_NS // 2,
            resumed=Marks(np.array([START_NS], np.int64), np.array([0], np.int64)),
            steps=steps,
            ended=int(ends[-1]) + 20 * MS,
        )
        return RankTimeline(rank, (life,))


def stacks(steps: range, *frames: str, rank: int = 0) -> list[StackSample]:
    """Samples of some steps that all show the same, one a second."""
    return [StackSample(0, rank, step, step * 1000 * MS, frames) for step in steps]
