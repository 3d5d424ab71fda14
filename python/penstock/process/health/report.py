"""What a check found out, as plain values that travel: what each host said, what pairs measured. Nothing is judged here."""

import msgspec

from penstock.process.health.facts.compute_probe import ComputeLook
from penstock.process.health.facts.host_facts import HostFacts


class HostLook(msgspec.Struct, omit_defaults=True):
    """One host."""

    number: int
    name: str
    facts: HostFacts | None = None
    #: Its clock less that of whoever collects, and how exact that is.
    clock_s: float | None = None
    clock_error_s: float = 0.0
    #: Bytes hashed per second, the best of a few tries.
    processor: float = 0.0
    compute: ComputeLook | None = None
    #: Why nothing, or not all, is known.
    problem: str = ""
    #: Looked at only as the partner of others.
    is_witness: bool = False


class Meeting(msgspec.Struct, frozen=True, omit_defaults=True):
    """What two hosts measured of the way between them."""

    one: int
    two: int
    round_trip_s: float = 0.0
    #: Bytes per second from the first to the second, and back.
    there: float = 0.0
    back: float = 0.0
    problem: str = ""
    #: Whether it was as good as the others.
    good: bool = True


class CheckReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of it."""

    hosts: list[HostLook]
    meetings: list[Meeting] = []
    seconds: float = 0.0
    #: What was not looked at, and why.
    notes: list[str] = []
