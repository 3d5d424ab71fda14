"""The clocks of a host: one that counts through suspend and that nobody can set, and what it is compared with."""

import time
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime_ns() -> int:
    """Nanoseconds since the host was booted, suspend included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """Which boot this is: moments of two boots have no common clock. Empty where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def clocks_ns() -> tuple[int, int, int]:
    """Boot time, monotonic time and wall time, read one after another."""
    return boottime_ns(), time.monotonic_ns(), time.time_ns()
