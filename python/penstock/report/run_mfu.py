"""The MFU of a run: FLOPs that its rows counted, over what its devices could have done in the time of those steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.observe.flops import StepFlops
from penstock.observe.mfu import Mfu, mfu_of
from penstock.observe.peaks import peak_of
from penstock.observe.steps.columns import UNMEASURED
from penstock.observe.steps.flop_record import COLUMNS, KINDS, FlopNote
from penstock.report.accounts.account_names import UNKNOWN
from penstock.report.diagnosis.observation import Observation

#: Halves of a count, summed apart.
_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1


def run_mfu(observation: Observation, notes: Sequence[FlopNote]) -> dict[str, Any]:
    """The number with what it is of, or the reason why there is none (O3). Pure."""
    if not notes:
        return _refused("FLOPs are not counted: run.steps(state, flops=penstock.torch.flops(model, batch))")
    unknown = sorted({reason for note in notes for reason in note.unknown})
    if unknown:
        return _refused(f"unknown operator: {'; '.join(unknown[:3])}")
    devices = sorted({note.device for note in notes})
    if len(devices) > 1:
        return _refused(f"ranks have different devices: {', '.join(devices)}")
    counted = [rank.columns["flops_executed"] != UNMEASURED for rank in observation.ranks]
    is_counted = np.logical_and.reduce(counted) if counted else np.empty(0, bool)
    if not is_counted.any():
        return _refused("no step that counts has FLOPs on every rank")
    useful, executed, palm = (_sums(observation, kind, is_counted) for kind in KINDS)
    flops = StepFlops(
        useful,
        executed,
        palm,
        tokens=0,
        real_tokens=0,
        warnings=tuple(sorted({warning for note in notes for warning in note.warnings})),
    )
    spent = int(observation.times.max(axis=0)[is_counted].sum())
    answer = mfu_of(flops, spent, devices[0], devices=len(observation.ranks))
    if not isinstance(answer, Mfu):
        return _refused(str(answer))
    return {
        "value": answer.mfu,
        "mfu_palm": answer.mfu_palm,
        "hfu": answer.hfu,
        "device": answer.device,
        "devices": answer.devices,
        "peak": answer.source,
        "steps": int(is_counted.sum()),
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
