"""The short work that shows a slow or broken device: a product and a copy on each GPU, else a product on the processors.

It is a child process of ``penstock.torch.device.speed``, because only that floor imports torch, and because a driver that hangs must not keep us.
"""

import subprocess
import sys
from collections.abc import Sequence

import msgspec

MODULE = "penstock.torch.device.speed"
#: What the child writes when torch is there and the devices begin.
READY = b"ready\n"
REAP_S = 0.5
WORDS_MAX = 200


class DeviceSpeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one device did."""

    #: UUID of a GPU, or ``cpu``.
    device: str
    name: str = ""
    #: FLOP/s of a product, and bytes per second of a copy on the device.
    product: float = 0.0
    copy: float = 0.0
    #: The product was not what it must be: the device computes wrong.
    wrong: bool = False
    problem: str = ""


class ComputeLook(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all devices of a host did, and why that is not known where it is not."""

    devices: tuple[DeviceSpeed, ...] = ()
    #: Nothing was measured for a reason that is no fault of the host, such as a missing torch.
    unmeasured: str = ""
    problem: str = ""


def compute(*, device: str, limit_s: float, python: Sequence[str] = (sys.executable,)) -> ComputeLook:
    """Have the devices work: ``gpu``, ``cpu``, or ``auto`` for GPUs where there are any."""
    process = subprocess.Popen(
        [*python, "-m", MODULE, device, f"{limit_s:.1f}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        process.kill()
        if READY not in (late.stdout or b""):
            # A slow disk or a busy host, not a slow device.
            process.wait()
            return ComputeLook(unmeasured=f"torch was not loaded within {limit_s:.0f} s")
        try:
            output, errors = process.communicate(timeout=REAP_S)
        except subprocess.TimeoutExpired:
            return ComputeLook(
                problem=f"devices do not finish within {limit_s:g} s, and SIGKILL does not end them"
            )
        return ComputeLook(problem=f"devices do not finish within {limit_s:g} s")
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines() or [
            f"it ended with {process.returncode}"
        ]
        return ComputeLook(problem=lines[-1][:WORDS_MAX])
    try:
        return msgspec.json.decode(output.splitlines()[-1], type=ComputeLook)
    except (msgspec.DecodeError, IndexError):
        return ComputeLook(problem="it said something else than figures")
