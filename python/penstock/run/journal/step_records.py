"""Records: what every step of every rank was: batch digest, loss bits, gradient norm, tokens, parameter digest, generators, time.

A rank writes a file per life, ``records/000003-0002.rec``: a header, then records of 80 bytes, each with a check. A *mark* says that
training went on from a step; what was recorded of that step and later ones, here or in earlier lives, no longer counts. A step has
one record, and before it *stands*: when it ended, and where generators stood then. Writing is one system call, so that what was
written survives ``kill -9``; a torn end is left out.
"""

import os
import re
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from penstock.data import join
from penstock.errors import RunDamaged
from penstock.run.journal.append_file import AppendFile

FOLDER = "records"
FORM = b"penrec1\n"
#: Form, life, rank, ranks, lane, lanes; when the process was born, and when this file was made; the same in ns of CLOCK_BOOTTIME, 0 in older files.
_HEADER = struct.Struct("<8sQIIIIddqq")
#: Kind, flags, check of the rest, step, batch digest, loss, loss of all ranks, gradient norm, tokens, parameter digest.
_RECORD = struct.Struct("<B3xIQ16sdddQ16s")
#: Kind, check, step, seconds since 1970, and up to five names with four bytes each.
_STANDS = struct.Struct("<B3xIQd" + "7sI" * 5 + "x")
_STANDS_NAMES = 5
_HEADER_BYTES = _RECORD.size
#: So many records a step has at most that uses a hundred generators.
_LOOKED_BACK = 24
#: What records there are. ``_END``: nothing more comes, in order. ``_PHASE``: something else begins (1) or ends (0).
_MARK, _STEP, _STANDING, _END, _PHASE = 0, 1, 2, 3, 4
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
    #: Where generators stood when it ended, by (the beginning of) their names; and when that was.
    stands: Mapping[str, int] = field(default_factory=dict)
    ended: float = field(default=0.0, compare=False, repr=False)

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


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that took until then."""

    kind: Literal["mark", "step", "end", "phase", "training"]
    step: int
    at: float


@dataclass(slots=True)
class LifeRecord:
    """What one rank of one life wrote."""

    incarnation: int
    rank: int
    ranks: int
    lane: int
    lanes: int
    #: When the process was born, and when it began its life; 0 where that is not known.
    born: float
    began: float
    #: The same in nanoseconds of CLOCK_BOOTTIME.
    born_ns: int
    began_ns: int
    #: The lowest step from which training went on here.
    start: int
    #: Those that count, as far as this file knows.
    steps: dict[int, StepRecord] = field(default_factory=dict)
    #: All, in order.
    moments: list[Moment] = field(default_factory=list)


class Records:
    """Writes the file of one rank of one life."""

    def __init__(
        self, directory: Path, incarnation: int, place: tuple[int, int], lane: tuple[int, int]
    ) -> None:
        self.path = directory / FOLDER / f"{incarnation:06d}-{place[0]:04d}.rec"
        self._file = AppendFile(self.path)
        self._file.open()
        if self._file.length:
            # A second loop of the same life, over checkpoints that the caller keeps open.
            return
        began = now()
        moments = (born(), began, born_ns(), boottime_of(began))
        header = _HEADER.pack(FORM, incarnation, *place, *lane, *moments)
        self._write(header.ljust(_HEADER_BYTES, b"\0"))

    def mark(self, step: int) -> None:
        """Training goes on from this step."""
        self._write(_stands(_STANDING, step, now(), {}) + _packed(_MARK, StepRecord(step, "")))

    def write(self, record: StepRecord) -> None:
        """A step is over."""
        self._write(_stands(_STANDING, record.step, record.ended, record.stands) + _packed(_STEP, record))

    def end(self, step: int) -> None:
        """Nothing more comes; all that was to be done is done."""
        self._write(_stands(_END, step, now(), {}))

    def begin_phase(self, name: str, step: int) -> None:
        """Something begins that is no part of training, such as an evaluation."""
        self._write(_stands(_PHASE, step, now(), {name: 1}))

    def end_phase(self, name: str, step: int) -> None:
        """It ends."""
        self._write(_stands(_PHASE, step, now(), {name: 0}))

    def _write(self, data: bytes) -> None:
        self._file.write(data)

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()


def last(directory: str | os.PathLike[str]) -> StepRecord | None:
    """What the first rank recorded last, in the newest life that recorded anything. Reads a few records, however many there are."""
    for path in sorted((Path(directory) / FOLDER).glob("*-0000.rec"), reverse=True):
        with path.open("rb") as file:
            count = (os.fstat(file.fileno()).st_size - _HEADER_BYTES) // _RECORD.size
            for place in range(count - 1, max(-1, count - 1 - _LOOKED_BACK), -1):
                file.seek(_HEADER_BYTES + place * _RECORD.size)
                raw = file.read(_RECORD.size)
                if raw[0] == _STEP:
                    return _step(raw, {}, 0.0)
                if raw[0] == _MARK:
                    # A life that has only begun: what was executed before it is what counts.
                    return StepRecord(_RECORD.unpack(raw)[2] - 1, "")
    return None


def last_step(directory: str | os.PathLike[str]) -> int:
    """The step that was executed last; -1 before any."""
    record = last(directory)
    return -1 if record is None else record.step


def read_rank(directory: str | os.PathLike[str], rank: int) -> dict[int, StepRecord]:
    """The steps of a rank that count, over all lives. A life on fewer ranks is told by its first one."""
    steps: dict[int, StepRecord] = {}
    for file in lives(directory, {0, rank}):
        steps = {step: record for step, record in steps.items() if step < file.start}
        if file.rank == rank:
            steps |= file.steps
    return dict(sorted(steps.items()))


def read(directory: str | os.PathLike[str]) -> dict[int, Whole]:
    """The steps that count and that every rank of their life recorded, by number."""
    steps: dict[int, Whole] = {}
    by_life: dict[int, list[LifeRecord]] = {}
    for file in lives(directory):
        by_life.setdefault(file.incarnation, []).append(file)
    for incarnation, files in sorted(by_life.items()):
        start = min(file.start for file in files)
        steps = {step: whole for step, whole in steps.items() if step < start}
        if len(files) < files[0].ranks:
            continue
        for step in set.intersection(*(set(file.steps) for file in files)):
            lanes = {file.lane: file.steps[step].batch for file in files}
            by_rank = {file.rank: file.steps[step] for file in files}
            steps[step] = Whole(step, incarnation, join(list(lanes.values())), by_rank)
    return dict(sorted(steps.items()))


@cache
def _origin() -> tuple[float, int]:
    """Wall time and boot time at one moment: what moments of this process are counted from."""
    return time.time(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def now() -> float:
    """Seconds since 1970 as the wall clock stood first in this process; a clock that is set later shifts nothing."""
    wall, boot_ns = _origin()
    return wall + (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - boot_ns) / 1e9


def boottime_of(at: float) -> int:
    """The moment of CLOCK_BOOTTIME, in ns, that ``now`` said this at."""
    wall, boot_ns = _origin()
    return boot_ns + round((at - wall) * 1e9)


def born_ns() -> int:
    """When this process was made, in ns of CLOCK_BOOTTIME, to a hundredth of a second; 0 where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def born() -> float:
    """When this process was made, in seconds since 1970; 0 where the system does not say."""
    at_ns = born_ns()
    wall, boot_ns = _origin()
    return wall + (at_ns - boot_ns) / 1e9 if at_ns else 0.0


def bits(value: float) -> str:
    """A number, exactly; NaN is what it is."""
    return value.hex()


def lives(directory: str | os.PathLike[str], ranks: set[int] | None = None) -> Iterator[LifeRecord]:
    """What ranks of every life wrote, in the order of lives and ranks; some ranks, or all."""
    folder = Path(directory) / FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = _NAME.fullmatch(path.name)
        if name is None or (ranks is not None and int(name[2]) not in ranks):
            continue
        if (life := _read_file(path)) is not None:
            yield life


def _read_file(path: Path) -> LifeRecord | None:
    """A file without its torn end; None when not even its header and first mark are whole."""
    data = path.read_bytes()
    if len(data) < _HEADER_BYTES:
        return None
    form, incarnation, rank, ranks, lane, lanes, born_at, began, born_at_ns, began_ns = _HEADER.unpack_from(
        data
    )
    if form != FORM:
        raise RunDamaged(file=str(path), place=0, reason=f"it begins with {form!r}")
    file: LifeRecord | None = None
    stands: dict[str, int] = {}
    at = 0.0
    for place in range(_HEADER_BYTES, len(data) - _RECORD.size + 1, _RECORD.size):
        raw = data[place : place + _RECORD.size]
        if zlib.crc32(raw[:4] + bytes(4) + raw[8:]) != int.from_bytes(raw[4:8], "little"):
            if data[place + _RECORD.size :].strip(b"\0"):
                raise RunDamaged(file=str(path), place=place, reason="its check does not match")
            break
        if raw[0] == _MARK:
            step = _RECORD.unpack(raw)[2]
            file = file or LifeRecord(
                incarnation, rank, ranks, lane, lanes, born_at, began, born_at_ns, began_ns, step
            )
            file.start = min(file.start, step)
            file.steps = {known: record for known, record in file.steps.items() if known < step}
            file.moments.append(Moment("mark", step, at))
        elif raw[0] == _STEP and file is not None:
            step_record = _step(raw, stands, at)
            file.steps[step_record.step] = step_record
            file.moments.append(Moment("step", step_record.step, at))
        else:
            step, at, more = _unpacked_stands(raw)
            stands = {**stands, **more} if raw[0] == _STANDING else {}
            if file is not None and raw[0] in (_END, _PHASE):
                file.moments.append(Moment(_turn(raw[0], more), step, at))
            continue
        stands = {}
    return file


def _turn(kind: int, stands: Mapping[str, int]) -> Literal["end", "phase", "training"]:
    """What begins with a record that is no step."""
    if kind == _END:
        return "end"
    return "phase" if any(stands.values()) else "training"


def _step(raw: bytes, stands: dict[str, int], at: float) -> StepRecord:
    _, _, step, batch, loss, whole, norm, tokens, parameters = _RECORD.unpack(raw)
    written = "" if parameters == _NOTHING else parameters.hex()
    record = StepRecord(step, batch.hex(), loss, whole, norm, tokens, written)
    return replace(record, stands=stands, ended=at)


def _packed(kind: int, record: StepRecord) -> bytes:
    digests = [bytes.fromhex(text) if text else _NOTHING for text in (record.batch, record.parameters)]
    values = (record.loss, record.whole_loss, record.grad_norm, record.tokens)
    return _checked(_RECORD.pack(kind, 0, record.step, digests[0], *values, digests[1]))


def _stands(kind: int, step: int, at: float, stands: Mapping[str, int]) -> bytes:
    """As many records as there are names for; one at least, because of the time."""
    pairs = [(name.encode()[:7], value) for name, value in stands.items()]
    packed = b""
    while pairs or not packed:
        now, pairs = pairs[:_STANDS_NAMES], pairs[_STANDS_NAMES:]
        flat = [part for pair in now for part in pair] + [b"", 0] * (_STANDS_NAMES - len(now))
        packed += _checked(_STANDS.pack(kind, 0, step, at, *flat))
    return packed


def _unpacked_stands(raw: bytes) -> tuple[int, float, dict[str, int]]:
    _, _, step, at, *flat = _STANDS.unpack(raw)
    names = [name.rstrip(b"\0").decode(errors="replace") for name in flat[::2]]
    return step, at, {name: value for name, value in zip(names, flat[1::2], strict=True) if name}


def _checked(unchecked: bytes) -> bytes:
    return unchecked[:4] + struct.pack("<I", zlib.crc32(unchecked)) + unchecked[8:]
