"""What limits the device at hand beyond its name: slices of it (MIG) and caps on its power."""

import csv
import io
import shutil
import subprocess
from dataclasses import asdict, dataclass

_SMI_TIMEOUT_S = 10
#: Below this share of the usual limit a cap is worth a word.
_POWER_SHARE_MIN = 0.99


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its driver names it."""

    name: str

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a device (MIG), whose share of the peak its name does not say."""
        return " MIG " in f" {self.name} "


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What ``nvidia-smi`` says about one device."""

    name: str
    mig: bool = False
    power_limit_w: float | None = None
    power_usual_w: float | None = None

    @property
    def is_capped(self) -> bool:
        """Whether its power is limited below what it usually may take."""
        if self.power_limit_w is None or self.power_usual_w is None:
            return False
        return self.power_limit_w < _POWER_SHARE_MIN * self.power_usual_w

    @property
    def notes(self) -> tuple[str, ...]:
        """What to say beside a number of this device."""
        notes = []
        if self.mig:
            notes.append("MIG is on: a slice has a part of the device's peak")
        if self.is_capped:
            notes.append(
                f"power is capped at {self.power_limit_w:.0f} of {self.power_usual_w:.0f} W: the peak is out of reach"
            )
        return tuple(notes)

    def to_json(self) -> dict[str, object]:
        """The limits as plain values."""
        return asdict(self)


_FIELDS = ("name", "mig.mode.current", "power.limit", "power.default_limit")


def read_limits() -> list[DeviceLimits]:
    """The limits of all devices; empty without an NVIDIA driver that answers."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_limits(answer.stdout) if answer.returncode == 0 else []


def parse_limits(text: str) -> list[DeviceLimits]:
    """What nvidia-smi printed, one device a line."""
    limits = []
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(row) == len(_FIELDS):
            name, mig, limit, usual = (cell.strip() for cell in row)
            limits.append(DeviceLimits(name, mig == "Enabled", _watts(limit), _watts(usual)))
    return limits


def _watts(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        # "[N/A]", "[Not Supported]" and whatever drivers call it next.
        return None
