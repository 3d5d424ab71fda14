"""The MFU of single steps, by the same rule as the run's: from FLOPs that rows counted, or not at all (O3)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.observe.peaks import peak_of
from penstock.observe.steps import UNMEASURED
from penstock.observe.steps.flop_record import FlopNote
from penstock.observe.steps.reader import Columns

Values = npt.NDArray[np.float64]


class StepMfu:
    """Of a run whose ranks have one kind of device. Where there is no number, nothing is given."""

    def __init__(self, notes: Sequence[FlopNote]) -> None:
        devices = {note.device for note in notes}
        is_known = len(devices) == 1 and not any(note.unknown for note in notes)
        peak = peak_of(devices.pop()) if is_known else None
        self._rates = {} if peak is None else dict(peak.flops_per_s)

    def ideal_ns(self, columns: Columns, kind: str) -> Values:
        """Nanoseconds that a rank's device needs at best for the FLOPs of each step; NaN where they are not known."""
        count = len(columns["step"])
        executed = columns.get("flops_executed")
        if not self._rates or executed is None:
            return np.full(count, np.nan)
        total = np.where(executed == UNMEASURED, np.nan, 0.0)
        for name, column in columns.items():
            if name.startswith(f"flops.{kind}."):
                counted = np.where(column == UNMEASURED, 0, column)
                rate = self._rates.get(name.rpartition(".")[2])
                # A type without a peak makes the steps that use it unknown.
                total += np.where(
                    counted == 0, 0.0, np.nan if rate is None else counted / (rate or 1.0) * 1e9
                )
        return total

    def of_rank(self, columns: Columns) -> Values:
        """Of one rank, step by step."""
        times = np.asarray(columns["end"] - columns["begin"], np.float64)
        return share(self.ideal_ns(columns, "useful"), self.ideal_ns(columns, "executed"), times)


def share(useful_ns: Values, executed_ns: Values, available_ns: Values) -> Values:
    """Of what devices could have done; NaN where that is unknown, or more than they can."""
    is_sound = (available_ns > 0) & (executed_ns <= available_ns) & (useful_ns <= available_ns)
    shares = np.full(len(useful_ns), np.nan)
    np.divide(useful_ns, available_ns, out=shares, where=is_sound)
    return shares
