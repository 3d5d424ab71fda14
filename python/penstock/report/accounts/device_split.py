"""The device's own split of the steps that count: its parts, ``idle`` and ``rest`` between the marks of two steps.

It runs beside the host, so it is an account of its own and is never added to the host's. Its parts sum to the time between the marks by
construction; steps without marks are counted, and nothing stands for their time (O7).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from penstock.report.accounts.account_names import STEP_PARTS, UNKNOWN
from penstock.report.accounts.timeline import UNMEASURED, StepColumns, Times

IDLE = "idle"
DEVICE_PARTS = (*STEP_PARTS, IDLE)


@dataclass(frozen=True, slots=True)
class DeviceSplit:
    """Nanoseconds of one device, or of several, by part."""

    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DEVICE_PARTS, 0))
    #: Steps that have marks, and steps that count and have none.
    marked_steps: int = 0
    unmarked_steps: int = 0

    @property
    def wall(self) -> int:
        """From mark to mark, over all marked steps."""
        return sum(self.parts.values())

    def to_json(self) -> dict[str, object] | str:
        """As plain values; ``unmeasured`` where no step has marks."""
        if not self.marked_steps:
            return UNKNOWN
        return {
            "wall_ns": self.wall,
            "parts": self.parts,
            "steps": {"marked": self.marked_steps, "unmarked": self.unmarked_steps},
        }


def device_split(steps: StepColumns, counts: Times) -> DeviceSplit:
    """Of the executions that count."""
    columns = {part: steps.others.get(f"device.{part}") for part in DEVICE_PARTS}
    known = {part: column[counts] for part, column in columns.items() if column is not None}
    weights = steps.counts[counts]
    if not known:
        return DeviceSplit(unmarked_steps=int(weights.sum()))
    is_marked = np.logical_or.reduce([column != UNMEASURED for column in known.values()])
    parts = dict.fromkeys(DEVICE_PARTS, 0)
    for part, column in known.items():
        # A part that a marked step has no mark of did not happen.
        parts[part] = int(column[column != UNMEASURED].sum())
    return DeviceSplit(parts, int(weights[is_marked].sum()), int(weights[~is_marked].sum()))


def summed(splits: Iterable[DeviceSplit]) -> DeviceSplit:
    """Of several lives or ranks."""
    total = DeviceSplit()
    for split in splits:
        total = DeviceSplit(
            {part: total.parts[part] + spent for part, spent in split.parts.items()},
            total.marked_steps + split.marked_steps,
            total.unmarked_steps + split.unmarked_steps,
        )
    return total
