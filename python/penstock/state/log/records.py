"""What stands in the log of a run: the kinds of records, and the line that carries one.

A line names its number, the check of the line before it, and its own check, so a flipped bit, a record at the wrong
number, and a store that lets two writers have the same number are all noticed when the log is read.
"""

from typing import Any, TypeAlias

import msgspec

from penstock._rust import digest
from penstock.errors import CheckpointDamaged, ManifestNewer, RecordUnknown

FORM = 1
#: What a line names as the check of the line before, when that one could not be read by its writer.
LOST = "lost"
#: The nonce of a line that ``repair`` put in the place of one that could not be read.
REBUILT = "rebuilt"


class Fence(msgspec.Struct, frozen=True, tag_field="kind", tag="fence", forbid_unknown_fields=True):
    """An incarnation of the run begins; lower ones may not commit any more."""

    incarnation: int
    ranks: int
    #: Shared by the ranks of this incarnation and by nobody else.
    token: str
    at: float


class Commit(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="commit",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A checkpoint exists."""

    incarnation: int
    step: int
    #: Which try of this step it was: its files are below ``data/<incarnation>/<step>-<attempt>/``.
    attempt: int
    #: Digest of its manifest.
    manifest: str
    bytes: int
    at: float
    #: Finite numbers that retention and listings go by, such as a loss.
    metrics: dict[str, float] = {}


class Quarantine(msgspec.Struct, frozen=True, tag_field="kind", tag="quarantine", forbid_unknown_fields=True):
    """A checkpoint was found damaged."""

    #: Number of the commit.
    commit: int
    reason: str
    #: Who found it; -1 if it was no rank of the run.
    rank: int
    at: float


class Retire(msgspec.Struct, frozen=True, tag_field="kind", tag="retire", forbid_unknown_fields=True):
    """Checkpoints exist no longer."""

    #: Numbers of their commits.
    commits: tuple[int, ...]
    at: float


class Pin(msgspec.Struct, frozen=True, tag_field="kind", tag="pin", forbid_unknown_fields=True):
    """Somebody else refers to files of a checkpoint."""

    commit: int
    #: Who: the place of the other run.
    by: str
    at: float


class Unpin(msgspec.Struct, frozen=True, tag_field="kind", tag="unpin", forbid_unknown_fields=True):
    """The same somebody refers to them no longer."""

    commit: int
    by: str
    at: float


Record: TypeAlias = Fence | Commit | Quarantine | Retire | Pin | Unpin


class Lost(msgspec.Struct, frozen=True):
    """A number of the log whose record cannot be read in any copy. It may have been of any kind."""

    reason: str
    #: What ``repair`` made of it: the record as far as it could be told, or one that says nothing.
    instead: Record | None = None


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record at its number, as stored."""

    form: int
    number: int
    #: Check of the line before; empty for the first.
    after: str
    #: Different for every writing, so that a writer recognises its own line when the answer to its put was lost.
    nonce: str
    record: msgspec.Raw
    check: str


def encode_line(number: int, after: str, nonce: str, record: Record) -> bytes:
    """The bytes of a line."""
    raw = msgspec.json.encode(record, order="deterministic")
    check = _check(number, after, nonce, raw)
    return msgspec.json.encode(Line(FORM, number, after, nonce, msgspec.Raw(raw), check))


class ReadLine(msgspec.Struct, frozen=True):
    """A line that is whole in itself."""

    record: Record
    after: str
    nonce: str
    check: str


def read_line(name: str, data: bytes, number: int) -> ReadLine:
    """The line of a number, whatever stands before it. ``CheckpointDamaged`` when these are not the bytes of that line;
    ``ManifestNewer`` and ``RecordUnknown`` when they are, and a newer release wrote them.
    """
    form: Any = None
    try:
        form = msgspec.json.decode(data, type=dict[str, Any]).get("form")
        line = msgspec.json.decode(data, type=Line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        if isinstance(form, int) and form > FORM:
            raise ManifestNewer(name=name, found=form, known=FORM) from problem
        raise CheckpointDamaged(file=name, reason=str(problem)) from problem
    # A flipped bit makes a newer form of an old one too; then everything else still agrees.
    agrees = _check(line.number, line.after, line.nonce, bytes(line.record)) == line.check
    if isinstance(form, int) and form > FORM and not agrees:
        raise ManifestNewer(name=name, found=form, known=FORM)
    if line.form != FORM or not agrees:
        raise CheckpointDamaged(file=name, reason="its bytes do not agree with its check")
    if line.number != number:
        raise CheckpointDamaged(file=name, reason=f"it holds record {line.number}")
    try:
        record: Record = msgspec.json.decode(line.record, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise RecordUnknown(file=name, reason=str(problem)) from problem
    return ReadLine(record, line.after, line.nonce, line.check)


def decode_line(name: str, data: bytes, number: int, after: str) -> tuple[Record, str]:
    """The record of a line and the line's check. Anything that is not right is an error."""
    line = read_line(name, data, number)
    if line.after != after:
        raise CheckpointDamaged(file=name, reason=FOLLOWS_ANOTHER)
    return line.record, line.check


#: Two writers had the same number.
FOLLOWS_ANOTHER = "it follows another record than the one before it; does the store honour conditional puts?"


def _check(number: int, after: str, nonce: str, raw: bytes) -> str:
    return digest(f"{FORM} {number} {after} {nonce} ".encode() + raw)
