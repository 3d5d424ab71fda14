"""The file of pulses: its layout, and reading all of it.

A header and a slot of 256 bytes for each worker, in order of roles, then ranks. The first half of a slot is the worker's record,
the second half is a notice from the agent. Each half ends with a checksum of itself, so a reader sees a whole record or
none. ``crates/penstock-process/src/job/pulses.rs`` has the same layout; each side is tested against what the other wrote.

Imported by every worker that pulses, so it imports nothing that takes time.
"""

import os
import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from penstock.process.job.catalogue import Job

FILE = "pulses"
MAGIC = b"PENPULSE"
FORM = 1
SLOT_BYTES = 256
RECORD_BYTES = 128
PHASE_BYTES = 16
REASON_BYTES = 96
LISTENS = 1

HEADER = struct.Struct("<8sII")
#: Of a record, what every pulse changes: beats, step, steps, step_at_ns, step_ns, typical_ns, longest_ns.
PROGRESS = struct.Struct("<7Q")
#: And what it does not: phase_since_ns, pid, incarnation, flags, notice_seen, phase.
STANDING = struct.Struct("<Q4I16s28x")
#: deadline_ns, number, kind, reason, save_by_ns
NOTICE = struct.Struct("<QII96sQ4x")
#: Where in a slot the number of the notice stands.
NUMBER = slice(RECORD_BYTES + 8, RECORD_BYTES + 12)
KINDS = {1: "stop", 2: "save"}

#: Slots beyond this are not believed: the file is not ours.
SLOTS_MAX = 1 << 20


class Pulse(NamedTuple):
    """What a worker last said. Times are nanoseconds since the machine started (``CLOCK_BOOTTIME``)."""

    beats: int
    step: int
    #: How many steps this life has reported.
    steps: int
    step_at_ns: int
    #: How long the step before took; 0 before the second one.
    step_ns: int
    #: What a step usually takes, without the first two of a life; 0 as long as that is unknown.
    typical_ns: int
    longest_ns: int
    phase_since_ns: int
    #: The process that writes: the worker, or a descendant of it.
    pid: int
    incarnation: int
    listens: bool
    notice_seen: int
    phase: str


def whole(record: bytes) -> bool:
    """Whether a half of a slot is what somebody wrote, all of it."""
    return len(record) == RECORD_BYTES and crc32(record[:-4]) == int.from_bytes(record[-4:], "little")


def sealed(content: bytes) -> bytes:
    """A half of a slot, with its checksum."""
    return content + crc32(content).to_bytes(4, "little")


def parsed(record: bytes) -> Pulse | None:
    """The pulse of a record; nothing if it is not whole."""
    if not whole(record):
        return None
    progress = PROGRESS.unpack(record[: PROGRESS.size])
    since, pid, incarnation, flags, seen, phase = STANDING.unpack(record[PROGRESS.size : -4])
    word = phase.rstrip(b"\0").decode(errors="replace")
    return Pulse._make((*progress, since, pid, incarnation, bool(flags & LISTENS), seen, word))


def slots_of(header: bytes) -> int:
    """How many workers a file with this beginning is for; 0 for a file that is not ours."""
    if len(header) < HEADER.size:
        return 0
    magic, form, slots = HEADER.unpack(header[: HEADER.size])
    return slots if magic == MAGIC and form == FORM and slots <= SLOTS_MAX else 0


def pulses_of(job: "Job") -> dict[tuple[str, int], Pulse]:
    """What the workers of a job last said, by role and rank; those that said nothing are left out."""
    said = read(os.fspath(job.directory / FILE))
    workers = [(role["name"], rank) for role in job.description()["roles"] for rank in range(role["ranks"])]
    return {worker: pulse for worker, pulse in zip(workers, said, strict=False) if pulse is not None}


def read(path: str) -> list[Pulse | None]:
    """Every slot of a file; nothing of one that is not there or not ours."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return []
    try:
        slots = slots_of(os.pread(file, HEADER.size, 0))
        content = os.pread(file, slots * SLOT_BYTES, SLOT_BYTES)
    finally:
        os.close(file)
    places = range(0, slots * SLOT_BYTES, SLOT_BYTES)
    return [parsed(content[at : at + RECORD_BYTES]) for at in places]
