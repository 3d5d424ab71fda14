"""With how many hosts a job runs: ``--nnodes N`` or ``MIN:MAX``, ``--sizes``, and hosts in reserve.

A size is a number of hosts. A job of ``MIN:MAX`` begins with MAX and goes on with fewer when hosts are lost and nobody comes in their
place; with which numbers, ``--sizes`` says. Nothing here talks to anybody.
"""

import re
from dataclasses import dataclass

from penstock.errors.root import UsageError

HOSTS_MAX = 1_000_000
#: Sizes that are listed in a sentence.
NAMED_MAX = 8


@dataclass(frozen=True)
class HostSizes:
    """How many hosts a job has, and with how many it may go on."""

    most: int
    #: All of them, the largest included; empty where the number is fixed.
    sizes: tuple[int, ...] = ()

    @property
    def is_elastic(self) -> bool:
        """Whether the job may go on with fewer."""
        return bool(self.sizes)

    def words(self) -> str:
        """``may go on with 4 or 2 hosts``; empty where the number is fixed."""
        if not self.sizes:
            return ""
        down = [str(size) for size in sorted(self.sizes, reverse=True)]
        shown = down if len(down) <= NAMED_MAX else [*down[: NAMED_MAX - 1], "…", down[-1]]
        return f"may go on with {', '.join(shown)} hosts"


def host_sizes(nnodes: str, sizes: str | None = None) -> HostSizes:
    """What ``--nnodes`` and ``--sizes`` ask for.

    Without ``--sizes`` a job of MIN:MAX may have those numbers from MIN to MAX that divide MAX, because a batch for MAX is dealt to them as
    well; where MAX is the only one, any from MIN to MAX.
    """
    if not re.fullmatch(r"\d{1,9}(:\d{1,9})?", nnodes):
        raise UsageError(f"--nnodes must be a number or MIN:MAX, got {nnodes}")
    first, _, last = nnodes.partition(":")
    least, most = int(first), int(last or first)
    if not 1 <= least <= most <= HOSTS_MAX:
        raise UsageError(f"--nnodes must be 1 to {HOSTS_MAX}, and MIN at most MAX, got {nnodes}")
    if sizes is None:
        if least == most:
            return HostSizes(most)
        divisors = tuple(size for size in range(least, most + 1) if most % size == 0)
        return HostSizes(most, divisors if len(divisors) > 1 else tuple(range(least, most + 1)))
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", sizes.replace(" ", "")):
        raise UsageError(f"--sizes must be numbers of hosts, as in 4,8,16, got {sizes}")
    chosen = {int(size) for size in sizes.replace(" ", "").split(",")}
    if least == most:
        raise UsageError(
            f"--sizes needs --nnodes MIN:MAX, got --nnodes {nnodes}",
            hint=f"--nnodes {min(chosen)}:{most} --sizes {sizes}",
        )
    wrong = sorted(size for size in chosen if not least <= size <= most)
    if wrong:
        raise UsageError(f"--sizes must be between the {least} and {most} of --nnodes, got {wrong[0]}")
    return HostSizes(most, tuple(sorted(chosen | {most})))
