"""Records: what every step of every rank was, in 80 bytes: batch digest, loss bits, gradient norm, tokens, parameter digest.

A rank writes a file per life, ``records/000003-0002.rec``: a header, then records of one size, each with a check. A *mark* says that
training went on from a step; what was recorded of that step and later ones, here or in earlier lives, no longer counts. Writing is
one system call, so that what was written survives ``kill -9``; a torn end is left out.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.data import join
from penstock.errors import RunDamaged

FOLDER = "records"
FORM = b"penrec1\n"
_HEADER = struct.Struct("<8sQIIII")
#: Kind, flags, check of the rest, step, batch digest, loss, loss of all ranks, gradient norm, tokens, parameter digest.
_RECORD = struct.Struct("<B3xIQ16sdddQ16s")
_HEADER_BYTES = _RECORD.size
_MARK, _STEP = 0, 1
_ABSENT = float("nan")
_NAME = re.compile(r"(\d{6})-(\d{4,})\.rec")
_NOTHING = bytes(16)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one rank."""

    step: int
    #: Of this lane's rows; 32 hexadecimal digits, as ``batch.digest`` has it.
    batch: str
    #: Of this rank and of all of them; NaN where none was reported.
    loss: float = _ABSENT
    whole_loss: float = _ABSENT
    grad_norm: float = _ABSENT
    tokens: int = 0
    #: Of what this rank holds after the step; empty unless it was asked for.
    parameters: str = ""

    @property
    def loss_bits(self) -> str:
        """The loss, exactly."""
        return bits(self.loss)


@dataclass(frozen=True, slots=True)
class Whole:
    """One step of all ranks."""

    step: int
    incarnation: int
    #: Of the rows of all lanes; the same for every number of lanes.
    batch: str
    ranks: dict[int, StepRecord]


@dataclass(slots=True)
class _File:
    incarnation: int
    rank: int
    ranks: int
    lane: int
    lanes: int
    #: The lowest step from which training went on here.
    start: int
    steps: dict[int, StepRecord] = field(default_factory=dict)


class Records:
    """Writes the file of one rank of one life."""

    def __init__(
        self, directory: Path, incarnation: int, place: tuple[int, int], lane: tuple[int, int]
    ) -> None:
        (directory / FOLDER).mkdir(parents=True, exist_ok=True)
        self.path = directory / FOLDER / f"{incarnation:06d}-{place[0]:04d}.rec"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._file).st_size:
            # A second loop of the same life, over checkpoints that the caller keeps open.
            return
        os.write(self._file, _HEADER.pack(FORM, incarnation, *place, *lane).ljust(_HEADER_BYTES, b"\0"))

    def mark(self, step: int) -> None:
        """Training goes on from this step."""
        self._write(_MARK, StepRecord(step, ""))

    def write(self, record: StepRecord) -> None:
        """A step is over."""
        self._write(_STEP, record)

    def _write(self, kind: int, each: StepRecord) -> None:
        digests = [bytes.fromhex(text) if text else _NOTHING for text in (each.batch, each.parameters)]
        values = (each.loss, each.whole_loss, each.grad_norm, each.tokens)
        unchecked = _RECORD.pack(kind, 0, each.step, digests[0], *values, digests[1])
        check = zlib.crc32(unchecked)
        os.write(self._file, unchecked[:4] + struct.pack("<I", check) + unchecked[8:])

    def sync(self) -> None:
        """What was written is on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Nothing more is written."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def last(directory: str | os.PathLike[str]) -> StepRecord | None:
    """What the first rank recorded last, in the newest life that recorded anything. Reads one record, however many there are."""
    for path in sorted((Path(directory) / FOLDER).glob("*-0000.rec"), reverse=True):
        with path.open("rb") as file:
            count = (os.fstat(file.fileno()).st_size - _HEADER_BYTES) // _RECORD.size
            if count < 1:
                continue
            file.seek(_HEADER_BYTES + (count - 1) * _RECORD.size)
            kind, _, record = _unpacked(file.read(_RECORD.size))
            # A life that has only begun: what was executed before it is what counts.
            return record if kind == _STEP else StepRecord(record.step - 1, "")
    return None


def last_step(directory: str | os.PathLike[str]) -> int:
    """The step that was executed last; -1 before any."""
    found = last(directory)
    return -1 if found is None else found.step


def read_rank(directory: str | os.PathLike[str], rank: int) -> dict[int, StepRecord]:
    """The steps of a rank that count, over all lives. A life on fewer ranks is told by its first one."""
    found: dict[int, StepRecord] = {}
    for file in _files(directory, {0, rank}):
        found = {step: each for step, each in found.items() if step < file.start}
        if file.rank == rank:
            found |= file.steps
    return dict(sorted(found.items()))


def read(directory: str | os.PathLike[str]) -> dict[int, Whole]:
    """The steps that count and that every rank of their life recorded, by number."""
    found: dict[int, Whole] = {}
    lives: dict[int, list[_File]] = {}
    for file in _files(directory):
        lives.setdefault(file.incarnation, []).append(file)
    for incarnation, files in sorted(lives.items()):
        start = min(file.start for file in files)
        found = {step: each for step, each in found.items() if step < start}
        if len(files) < files[0].ranks:
            continue
        for step in set.intersection(*(set(file.steps) for file in files)):
            lanes = {file.lane: file.steps[step].batch for file in files}
            by_rank = {file.rank: file.steps[step] for file in files}
            found[step] = Whole(step, incarnation, join(list(lanes.values())), by_rank)
    return dict(sorted(found.items()))


def bits(value: float) -> str:
    """A number, exactly; NaN is what it is."""
    return value.hex()


def _files(directory: str | os.PathLike[str], ranks: set[int] | None = None) -> Iterator[_File]:
    """Files in the order of lives and ranks; of some ranks, or of all."""
    folder = Path(directory) / FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = _NAME.fullmatch(path.name)
        if name is None or (ranks is not None and int(name[2]) not in ranks):
            continue
        if (found := _read_file(path)) is not None:
            yield found


def _read_file(path: Path) -> _File | None:
    """A file without its torn end; None when not even its header and first mark are whole."""
    data = path.read_bytes()
    if len(data) < _HEADER_BYTES:
        return None
    form, incarnation, rank, ranks, lane, lanes = _HEADER.unpack_from(data)
    if form != FORM:
        raise RunDamaged(file=str(path), place=0, reason=f"it begins with {form!r}")
    file: _File | None = None
    for place in range(_HEADER_BYTES, len(data) - _RECORD.size + 1, _RECORD.size):
        raw = data[place : place + _RECORD.size]
        kind, check, record = _unpacked(raw)
        if zlib.crc32(raw[:4] + bytes(4) + raw[8:]) != check:
            if data[place + _RECORD.size :].strip(b"\0"):
                raise RunDamaged(file=str(path), place=place, reason="its check does not match")
            break
        if kind == _MARK:
            file = file or _File(incarnation, rank, ranks, lane, lanes, record.step)
            file.start = min(file.start, record.step)
            file.steps = {at: each for at, each in file.steps.items() if at < record.step}
        elif file is not None:
            file.steps[record.step] = record
    return file


def _unpacked(raw: bytes) -> tuple[int, int, StepRecord]:
    """Kind, check and contents."""
    kind, check, step, batch, loss, whole, norm, tokens, parameters = _RECORD.unpack(raw)
    written = "" if parameters == _NOTHING else parameters.hex()
    return kind, check, StepRecord(step, batch.hex(), loss, whole, norm, tokens, written)
