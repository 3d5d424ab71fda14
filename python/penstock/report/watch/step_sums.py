"""Sums over ranks, step by step: all that speed and MFU need, in memory that does not grow with the number of ranks."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.observe.steps import UNMEASURED
from penstock.observe.steps.flop_record import COLUMNS, KINDS
from penstock.report.accounts.timeline import Times
from penstock.report.run_mfu import CountedSteps
from penstock.report.run_report import speed_from

#: From the first step to the last; a run with more is not summed.
SPAN_MAX = 1 << 25
_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1
_OWN = ("count", "longest", "tokens", "tokens_missing", "flops_missing")
_ROOM_MIN = 1024


class StepSums:
    """By step: how many ranks have it, how long the slowest took, and what all of them counted."""

    def __init__(self, base: int = 0) -> None:
        self._base, self._length = base, 0
        self._arrays: dict[str, Times] = {name: np.zeros(0, np.int64) for name in _OWN}

    @property
    def end(self) -> int:
        """The step after the last one."""
        return self._base + self._length

    def add(self, columns: Mapping[str, Times], times: Times) -> bool:
        """The steps of a rank, none of them twice. False where they lie too far apart to be summed."""
        steps = columns["step"]
        if not len(steps):
            return True
        first, last = int(steps.min()), int(steps.max())
        low = min(first, self._base) if self._length else first
        if first < 0 or max(last + 1, self.end) - low > SPAN_MAX:
            return False
        self._reach(low, last + 1)
        at = steps - self._base
        self._at("count")[at] += 1
        self._at("longest")[at] = np.maximum(self._at("longest")[at], times)
        tokens = columns.get("tokens", np.full(len(steps), UNMEASURED))
        self._at("tokens")[at] += np.where(tokens < 0, 0, tokens)
        self._at("tokens_missing")[at] += tokens < 0
        executed = columns.get("flops_executed", np.full(len(steps), UNMEASURED))
        self._at("flops_missing")[at] += executed == UNMEASURED
        for name in COLUMNS:
            if name in columns:
                values = np.where(columns[name] == UNMEASURED, 0, columns[name])
                # Halves are summed apart: the sum over ranks may be more than 64 bits hold.
                self._at(f"{name}.high")[at] += values >> _LOW_BITS
                self._at(f"{name}.low")[at] += values & _LOW
        return True

    def newest(self, first: int) -> "StepSums":
        """A copy of the steps from one on."""
        part = StepSums(max(first, self._base))
        part._length = max(0, self.end - part._base)
        at = self._length - part._length
        part._arrays = {name: array[at : self._length].copy() for name, array in self._arrays.items()}
        return part

    def before(self, first: int, later: "StepSums") -> "SummedSteps":
        """These steps up to one, and others from there on."""
        count = min(max(0, first - self._base), self._length)
        nothing = np.zeros(0, np.int64)
        table = {}
        for name in (*self._arrays, *(name for name in later._arrays if name not in self._arrays)):
            own = self._arrays.get(name, nothing)[:count]
            others = later._arrays.get(name, nothing)[: later._length]
            own = own if len(own) == count else np.zeros(count, np.int64)
            others = others if len(others) == later._length else np.zeros(later._length, np.int64)
            table[name] = np.concatenate([own, others])
        return SummedSteps(table)

    def _at(self, name: str) -> Times:
        if name not in self._arrays:
            self._arrays[name] = np.zeros(len(self._arrays["count"]), np.int64)
        return self._arrays[name]

    def _reach(self, low: int, end: int) -> None:
        """Make room from one step to another."""
        shift = self._base - low if self._length else 0
        length = max(end, self.end if self._length else end) - low
        room = len(self._arrays["count"])
        if shift or length > room:
            size = max(length, 2 * room if not shift else room + shift, _ROOM_MIN)
            for name, array in self._arrays.items():
                wider = np.zeros(size, np.int64)
                wider[shift : shift + self._length] = array[: self._length]
                self._arrays[name] = wider
        self._base, self._length = low, length


class SummedSteps:
    """Such sums as a table, and what follows from them."""

    def __init__(self, table: dict[str, Times]) -> None:
        self._table = table

    def speed(self, ranks: int) -> dict[str, Any]:
        """The speed of the steps that all ranks have."""
        table = self._table
        is_common = (table["count"] == ranks) & (ranks > 0)
        is_known = not table["tokens_missing"][is_common].any() and ranks > 0
        return speed_from(
            table["longest"][is_common], int(table["tokens"][is_common].sum()) if is_known else None
        )

    def counted(self, ranks: int) -> CountedSteps:
        """Their FLOPs."""
        table = self._table
        is_counted = (table["count"] == ranks) & (table["flops_missing"] == 0)
        sums: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        for name in COLUMNS:
            if f"{name}.low" in table:
                _, kind, dtype = name.split(".")
                high, low = (int(table[f"{name}.{half}"][is_counted].sum()) for half in ("high", "low"))
                if (high << _LOW_BITS) + low:
                    sums[kind][dtype] = (high << _LOW_BITS) + low
        spent = int(table["longest"][is_counted].sum())
        return CountedSteps(
            sums["useful"], sums["executed"], sums["palm"], spent, int(is_counted.sum()), ranks
        )
