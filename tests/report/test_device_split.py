"""The device's split: it sums to the time between marks, stands beside the host's accounts, and says what was not marked (O1, O7)."""

import numpy as np

from penstock.report.accounts.device_split import DEVICE_PARTS
from penstock.report.accounts.ledger import FORMULAS, ledger_from
from penstock.report.accounts.timeline import (
    UNMEASURED,
    LifeTimeline,
    Marks,
    RankTimeline,
    StepColumns,
    Times,
)


def life(number: int, first: int, begin: int, device: dict[str, list[int]]) -> LifeTimeline:
    """Five steps of 100 ns."""
    begins: Times = begin + 100 * np.arange(5, dtype=np.int64)
    others = {f"device.{part}": np.array(column, np.int64) for part, column in device.items()}
    steps = StepColumns(
        np.arange(first, first + 5), begins, begins + 100, {"user": np.full(5, 100, np.int64)}, others
    )
    marks = Marks(begins[:1], np.array([first], np.int64))
    return LifeTimeline(number=number, resumed=marks, steps=steps, ended=begin + 500)


def test_parts_idle_and_rest_sum_to_the_time_between_marks_of_steps_that_count() -> None:
    """Goal: a device's time is told once. Method: two steps are executed again, one step has no marks, one never launched the optimizer."""
    none = UNMEASURED
    first = life(
        0, 0, 0, {"forward": [30, 30, 30, 9, 9], "idle": [60, 0, 60, 9, 9], "optimizer": [7, 7, none, 9, 9]}
    )
    second = life(1, 3, 900, {"forward": [40, none, 40, 40, 40], "rest": [5, none, 5, 5, 5]})
    ledger = ledger_from([RankTimeline(0, (first, second))])

    of_first, of_second = (one.device for one in ledger.ranks[0].lives)
    assert (of_first.marked_steps, of_first.unmarked_steps) == (3, 0)
    assert (of_second.marked_steps, of_second.unmarked_steps) == (4, 1)
    expected = {"forward": 90 + 160, "idle": 120, "optimizer": 14, "rest": 20}
    assert ledger.device.parts == {part: expected.get(part, 0) for part in DEVICE_PARTS}
    assert ledger.device.wall == sum(expected.values())
    # The host's accounts are what they are without a device.
    bare = ledger_from([RankTimeline(0, (life(0, 0, 0, {}), life(1, 3, 900, {})))])
    assert (ledger.accounts, ledger.parts, ledger.wall) == (bare.accounts, bare.parts, bare.wall)
    assert bare.to_json()["device"] == "unmeasured"
    document = ledger.to_json()
    assert document["device"]["wall_ns"] == sum(document["device"]["parts"].values())
    assert document["device"]["steps"] == {"marked": 7, "unmarked": 1}
    assert {*document["goodput"], "device"} <= set(FORMULAS)
