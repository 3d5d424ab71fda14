"""What each process does with GPUs, as ``nvidia-smi`` says; nothing on machines without."""

import shutil
import subprocess
from typing import NamedTuple

PATIENCE_S = 5.0


class GpuUse(NamedTuple):
    """Of one process, on all of its GPUs together."""

    percent: float
    bytes: int


def gpu_uses() -> dict[int, GpuUse]:
    """By process."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, "pmon", "-c", "1", "-s", "um"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parsed(done.stdout)


def parsed(text: str) -> dict[int, GpuUse]:
    """The table that ``nvidia-smi pmon`` prints; columns are found by their names, which differ between drivers."""
    heads: list[str] = []
    uses: dict[int, GpuUse] = {}
    for line in text.splitlines():
        words = line.removeprefix("#").split()
        if line.startswith("#"):
            heads = heads or words
            continue
        row = dict(zip(heads, words, strict=False))
        pid = row.get("pid", "-")
        if not pid.isdecimal():
            continue
        before = uses.get(int(pid), GpuUse(0.0, 0))
        megabytes = _number(row.get("fb", "-"))
        uses[int(pid)] = GpuUse(
            before.percent + _number(row.get("sm", "-")), before.bytes + int(megabytes * (1 << 20))
        )
    return uses


def _number(word: str) -> float:
    return float(word) if word.replace(".", "", 1).isdecimal() else 0.0
