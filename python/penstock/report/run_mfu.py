"""The MFU of a run: FLOPs that its rows counted, over what its devices could have done in the time of those steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.observe.flops import StepFlops
from penstock.observe.mfu import Mfu, MfuImpossible, mfu_of
from penstock.observe.peaks import peak_of
from penstock.observe.steps.columns import UNMEASURED
from penstock.observe.steps.flop_record import COLUMNS, KINDS, FlopNote
from penstock.report.accounts.account_names import UNKNOWN
from penstock.report.diagnosis.observation import Observation

#: Halves of a count, summed apart.
_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1


@dataclass(frozen=True, slots=True)
class CountedSteps:
    """FLOPs by type of all ranks in the steps that have them on every rank, and how long those steps took."""

    useful: dict[str, int]
    executed: dict[str, int]
    palm: dict[str, int]
    spent_ns: int
    steps: int
    ranks: int


def run_mfu(observation: Observation, notes: Sequence[FlopNote]) -> dict[str, Any]:
    """The number with what it is of, or the reason why there is none (O3). Pure."""
    if not notes:
        return mfu_from(CountedSteps({}, {}, {}, 0, 0, 0), notes)
    counted = [rank.columns["flops_executed"] != UNMEASURED for rank in observation.ranks]
    is_counted = np.logical_and.reduce(counted) if counted else np.empty(0, bool)
    useful, executed, palm = (_sums(observation, kind, is_counted) for kind in KINDS)
    spent = int(observation.times.max(axis=0)[is_counted].sum()) if observation.times.size else 0
    steps = CountedSteps(useful, executed, palm, spent, int(is_counted.sum()), len(observation.ranks))
    return mfu_from(steps, notes)


def mfu_from(counted: CountedSteps, notes: Sequence[FlopNote]) -> dict[str, Any]:
    """The same from sums over steps."""
    if not notes:
        return _refused(
            "FLOPs are not counted: give flops=penstock.torch.flops(model, batch) to run.steps or observed"
        )
    unknown = sorted({reason for note in notes for reason in note.unknown})
    if unknown:
        return _refused(f"unknown operator: {'; '.join(unknown[:3])}")
    devices = sorted({note.device for note in notes})
    if len(devices) > 1:
        return _refused(f"ranks have different devices: {', '.join(devices)}")
    if not counted.steps:
        return _refused("no step that counts has FLOPs on every rank")
    flops = StepFlops(
        counted.useful,
        counted.executed,
        counted.palm,
        tokens=0,
        real_tokens=0,
        warnings=tuple(sorted({warning for note in notes for warning in note.warnings})),
    )
    answer = mfu_of(flops, counted.spent_ns, devices[0], devices=counted.ranks)
    if isinstance(answer, MfuImpossible):
        return {**_refused(str(answer)), "impossible": answer.to_json()}
    if not isinstance(answer, Mfu):
        return _refused(str(answer))
    return {
        "value": answer.mfu,
        "mfu_palm": answer.mfu_palm,
        "hfu": answer.hfu,
        "device": answer.device,
        "devices": answer.devices,
        "peak": answer.source,
        "steps": counted.steps,
        "flops": answer.flops,
        "notes": list(answer.notes),
        "formula": "sum over types of useful FLOPs / peak, over devices x time from a step's begin to the next one's",
    }


def peaks_of(mfu: Mapping[str, Any]) -> Mapping[str, float]:
    """FLOP/s by type of the device that an MFU is of; nothing where there is no MFU."""
    peak = peak_of(str(mfu["device"])) if isinstance(mfu["value"], float) else None
    return {} if peak is None else peak.flops_per_s


def _sums(observation: Observation, kind: str, is_counted: np.ndarray) -> dict[str, int]:
    """FLOPs of all ranks in the steps that were counted, by type; whole numbers, however large."""
    sums: dict[str, int] = {}
    for name in COLUMNS:
        if name.startswith(f"flops.{kind}."):
            for rank in observation.ranks:
                column = rank.columns.get(name)
                if column is not None:
                    values = column[is_counted & (column != UNMEASURED)]
                    # A million steps of a large model are more than 64 bits hold.
                    total = (int((values >> _LOW_BITS).sum()) << _LOW_BITS) + int((values & _LOW).sum())
                    dtype = name.rpartition(".")[2]
                    sums[dtype] = sums.get(dtype, 0) + total
    return {dtype: count for dtype, count in sums.items() if count}


def _refused(reason: str) -> dict[str, Any]:
    return {"value": UNKNOWN, "reason": reason}
