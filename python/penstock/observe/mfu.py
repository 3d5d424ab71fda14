"""MFU: how much of what devices can do a step used for what it needs. A number that can be trusted, or the reason why there is none.

``mfu`` counts useful FLOPs (no padding, nothing twice, attention exactly as masked), ``mfu_palm`` every token and the full square
of attention, ``hfu`` everything that is executed. Where types are mixed, the ideal time of each type adds up:
``sum(FLOPs / peak) / time``. Time is from a step's begin to the next step's begin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock.observe.flops import StepFlops
from penstock.observe.peaks import Device, Peak, peak_of

#: Why there is no number.
Reason = Literal[
    "unknown device",
    "slice of a device",
    "no peak for type",
    "unknown operator",
    "tokens not reported",
    "no time",
]


@dataclass(frozen=True, slots=True)
class Mfu:
    """Shares of what the devices can do."""

    mfu: float
    mfu_palm: float
    hfu: float
    #: The share of what was measured on this device, where it was.
    of_measured: float | None
    device: str
    devices: int
    step_ns: int
    flops: int
    source: str
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The shares as plain values."""
        return {"kind": "mfu", **asdict(self), "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class MfuRefused:
    """No number, and why."""

    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"no MFU, {self.reason}: {self.detail}"

    def to_json(self) -> dict[str, Any]:
        """The refusal as plain values."""
        return {"kind": "refused", **asdict(self)}


@dataclass(frozen=True, slots=True)
class MfuImpossible:
    """More than a device can do: device, type, FLOPs or step time is wrong."""

    device: str
    devices: int
    flops: Mapping[str, int]
    peaks: Mapping[str, float]
    step_ns: int

    def __str__(self) -> str:
        counts = ", ".join(
            f"{count:.4g} FLOPs in {dtype} (peak {self.peaks[dtype] / 1e12:.4g} TFLOP/s)"
            for dtype, count in self.flops.items()
        )
        many = f"{self.devices} x " if self.devices > 1 else ""
        return f"impossible: {counts} in {self.step_ns / 1e6:.3f} ms on {many}{self.device} is above its peak"

    def to_json(self) -> dict[str, Any]:
        """What cannot be, as plain values."""
        return {
            "kind": "impossible",
            "device": self.device,
            "devices": self.devices,
            "flops": dict(self.flops),
            "peaks": dict(self.peaks),
            "step_ns": self.step_ns,
        }


MfuAnswer = Mfu | MfuRefused | MfuImpossible


def mfu_of(
    flops: StepFlops | None,
    step_ns: int | None,
    device: str,
    *,
    devices: int = 1,
    measured: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
) -> MfuAnswer:
    """The MFU of a step that took ``step_ns`` on ``devices`` alike; ``measured`` are FLOP/s that this device really gave."""
    if devices < 1:
        raise ValueError(f"devices must be at least 1, got {devices}")
    peak = peak_of(device)
    refusal = _refusal(flops, step_ns, device, peak)
    if refusal is not None:
        return refusal
    assert flops is not None
    assert flops.useful is not None
    assert flops.executed is not None
    assert flops.palm is not None
    assert step_ns is not None
    assert peak is not None
    available_s = step_ns / 1e9 * devices
    shares = [_ideal_s(counts, peak.flops_per_s) / available_s for counts in (flops.useful, flops.executed)]
    if max(shares) > 1:
        counts = {dtype: count for dtype, count in flops.executed.items() if count}
        return MfuImpossible(
            device, devices, counts, {dtype: peak.flops_per_s[dtype] for dtype in counts}, step_ns
        )
    of_measured = None
    if measured is not None and all(dtype in measured for dtype, count in flops.useful.items() if count):
        of_measured = _ideal_s(flops.useful, measured) / available_s
    return Mfu(
        mfu=shares[0],
        mfu_palm=_ideal_s(flops.palm, peak.flops_per_s) / available_s,
        hfu=shares[1],
        of_measured=of_measured,
        device=device,
        devices=devices,
        step_ns=step_ns,
        flops=sum(flops.useful.values()),
        source=peak.source,
        notes=(*flops.warnings, *notes),
    )


def _refusal(
    flops: StepFlops | None, step_ns: int | None, device: str, peak: Peak | None
) -> MfuRefused | None:
    if flops is None:
        return MfuRefused(
            "tokens not reported", "the step's batch was not given, so its FLOPs are not counted"
        )
    if flops.unknown or flops.executed is None:
        return MfuRefused("unknown operator", "; ".join(str(unknown) for unknown in flops.unknown[:3]))
    if step_ns is None or step_ns <= 0:
        return MfuRefused("no time", "the time from this step's begin to the next one's is not known")
    if peak is None:
        if Device(device).is_slice:
            return MfuRefused(
                "slice of a device", f"{device!r} is a part of a device, and parts have no peak of their own"
            )
        return MfuRefused(
            "unknown device", f"no peak is known for {device!r}; `penstock doctor --peaks` measures it"
        )
    missing = [dtype for dtype, count in flops.executed.items() if count and dtype not in peak.flops_per_s]
    if missing:
        return MfuRefused("no peak for type", f"{device!r} has no figure for {', '.join(sorted(missing))}")
    return None


def _ideal_s(counts: Mapping[str, int], rates: Mapping[str, float]) -> float:
    """Seconds that one device needs at best."""
    return sum(count / rates[dtype] for dtype, count in counts.items() if count)
