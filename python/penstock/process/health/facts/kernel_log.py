"""Errors that the GPU driver wrote into the kernel's log (Xid), as far as this user may read it.

Not every Xid is the hardware's: 13, 31, 43 and 45 are what a program does wrong, or follow from its end. Which are the hardware's is NVIDIA's
catalogue ("Xid errors"); a number that is in neither list is shown and nothing follows from it.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

#: Memory that cannot be corrected (48, 63, 64, 94, 95), a GPU off the bus (79), NVLink (74), firmware and its processors (61, 62, 119, 120, 121),
#: the fabric (140 to 150 without those that report a program).
HARDWARE = frozenset(
    {
        48,
        61,
        62,
        63,
        64,
        74,
        79,
        92,
        94,
        95,
        110,
        119,
        120,
        121,
        136,
        140,
        142,
        143,
        145,
        146,
        147,
        148,
        149,
        150,
    }
)
RECORDS_MAX = 100_000
RECORD_BYTES_MAX = 8192
KEPT_MAX = 256
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),? ?(.*)")


class XidLine(msgspec.Struct, frozen=True):
    """One error."""

    code: int
    #: The GPU's place, as ``0000:1b:00``.
    bus: str
    #: Seconds since the start of the machine.
    at_s: float
    text: str = ""

    @property
    def is_of_hardware(self) -> bool:
        """Whether the host shows it, and not the program."""
        return self.code in HARDWARE


def read_xids(path: Path = Path("/dev/kmsg")) -> list[XidLine] | None:
    """Errors since the start of the machine, as far as the log reaches back; nothing where it cannot be read."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parsed(_lines(number))
    finally:
        os.close(number)


def parsed(lines: Iterable[str]) -> list[XidLine]:
    """Of lines as ``/dev/kmsg`` has them: ``level,number,microseconds,…;text``."""
    xids = []
    for line in lines:
        head, _, text = line.partition(";")
        match = _XID.search(text)
        if match is None:
            continue
        fields = head.split(",")
        micros = int(fields[2]) if len(fields) > 2 and fields[2].isdecimal() else 0
        xids.append(XidLine(int(match[2]), match[1].lower(), micros / 1e6, match[3].strip()[:200]))
    return xids[-KEPT_MAX:]


def _lines(number: int) -> Iterable[str]:
    for _ in range(RECORDS_MAX):
        try:
            data = os.read(number, RECORD_BYTES_MAX)
        except BrokenPipeError:
            # Lines that were overwritten while they were read; the next one is there.
            continue
        except OSError:
            return
        if not data:
            return
        yield data.decode(errors="replace")
