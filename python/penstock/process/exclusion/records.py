"""What is written down about hosts: one line for each failure that a host itself has shown, and for what people decided. Pure.

A failure of the user's program is none of these: a crash, a CUDA out-of-memory and a kernel that ends a process for its memory say nothing
about the host.
"""

import hashlib
import time
from collections.abc import Mapping
from typing import TypedDict, Unpack

import msgspec

from penstock.process.exclusion.identity import HostIdentity

VERSION = 1
#: What a host itself can show.
FAILURES: Mapping[str, str] = {
    "lost": "was lost",
    "unkillable": "had processes that SIGKILL does not end",
    "xid": "its GPU driver reported a hardware error",
    "ecc": "its GPU had uncorrectable memory errors",
    "gpu": "a GPU does not answer",
    "check": "failed a check",
    "outlier": "was slower than the others",
}
EXCLUDED, INCLUDED, SEEN = "excluded", "included", "seen"
KINDS = frozenset({*FAILURES, EXCLUDED, INCLUDED, SEEN})
WHY_MAX = 400
NAME_MAX = 256
#: Of one line, so that it is written at once.
LINE_BYTES_MAX = 4096
#: Further into the future than clocks of hosts differ; such a line would count for ever.
AHEAD_S = 86_400.0


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line."""

    v: int = VERSION
    at: float
    kind: str
    #: What people call the host.
    host: str
    identity: HostIdentity = HostIdentity()
    why: str = ""
    job: str = ""
    life: int = -1
    #: Equal for two lines about one event, such as the same line of the kernel's log seen twice.
    key: str = ""
    #: Until when it holds, of what a person decided; 0: until another decision.
    until: float = 0.0

    @property
    def digest(self) -> str:
        """Equal for two copies of one line."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:24]


class RecordParts(TypedDict, total=False):
    """What a line may have beside kind, host and reason."""

    at: float
    identity: HostIdentity
    job: str
    life: int
    key: str
    until: float


def new_record(kind: str, host: str, why: str, **more: Unpack[RecordParts]) -> Record:
    """A line of now, with texts that are not too long."""
    assert kind in KINDS, kind
    record = Record(
        at=round(more.get("at", time.time()), 3),
        kind=kind,
        host=host[:NAME_MAX],
        why=" ".join(why.split())[:WHY_MAX],
    )
    return msgspec.structs.replace(record, **{name: value for name, value in more.items() if name != "at"})


def line_of(record: Record) -> bytes:
    """As it is written. Of a host with very many GPUs some are left out."""
    line = msgspec.json.encode(record)
    gpus = record.identity.gpus
    while len(line) >= LINE_BYTES_MAX and gpus:
        gpus = gpus[: len(gpus) // 2]
        line = msgspec.json.encode(
            msgspec.structs.replace(record, identity=msgspec.structs.replace(record.identity, gpus=gpus))
        )
    return line + b"\n"


class ReadLines(msgspec.Struct, frozen=True):
    """What was read."""

    records: list[Record]
    #: Lines that are torn, or of something else.
    foreign: int = 0


def records_of(data: bytes, *, now: float) -> ReadLines:
    """The lines of a file. One that is torn or foreign costs itself."""
    records, foreign = [], 0
    for line in data.split(b"\n"):
        if not line.strip(b" \t\r\0"):
            continue
        try:
            record = msgspec.json.decode(line, type=Record)
        except (msgspec.DecodeError, UnicodeDecodeError):
            foreign += 1
            continue
        if record.v > VERSION or record.kind not in KINDS or record.at > now + AHEAD_S:
            foreign += 1
            continue
        records.append(record)
    return ReadLines(records, foreign)
