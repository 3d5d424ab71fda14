"""Step files read back. What is torn, flipped or missing is named with file and place; the rest is read."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from penstock._rust import StepFile
from penstock.errors import EventError
from penstock.observe.steps.columns import FOLDER, INTEGERS, UNMEASURED

Columns = dict[str, "npt.NDArray[np.int64] | npt.NDArray[np.float64]"]
_NAME = re.compile(r"(\d{1,9})-(\d{1,9})-(\d{1,9})\.(pst|tail)")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a step file that could not be read."""

    file: str
    #: In bytes.
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of one rank of one life, in the order in which steps were executed."""

    life: int
    rank: int
    #: Of equal length, ``step``, ``begin`` and ``end`` among them. ``UNMEASURED`` stands for what was not measured.
    columns: Columns
    #: Rows that could not be recorded.
    lost_rows: int = 0
    faults: list[Fault] = field(default_factory=list)
    #: Sums over rows that were thinned, older than all rows: ``first_step`` to ``step``, ``rows`` of them; the same columns otherwise.
    rolled: Columns = field(default_factory=dict)
    #: Steps before which a checkpoint was committed while this rank ran.
    commits: list[int] = field(default_factory=list)
    #: Whether it was closed in order; False after a kill.
    is_closed: bool = False

    def __len__(self) -> int:
        return len(self.columns.get("step", ()))


@dataclass(frozen=True, slots=True)
class Anchor:
    """Several clocks of a rank's host at one moment, in ns."""

    life: int
    rank: int
    boot_id: str
    boottime: int
    monotonic: int
    wall: int


class _Header(msgspec.Struct, frozen=True):
    life: int = -1
    rank: int = -1
    boot_id: str = ""


def read_steps(
    run_dir: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    tables: Collection[tuple[int, int]] | None = None,
) -> list[StepRows]:
    """The rows of every rank of every life, by life and rank, or some ``tables`` of ``list_steps``. With ``columns`` only those are read,
    which is faster.
    """
    wanted = None if columns is None else [*dict.fromkeys(("step", "begin", "end", *columns))]
    files: dict[tuple[int, int], list[tuple[StepFile | None, list[Fault]]]] = {}
    for life, rank, path in step_files(run_dir):
        if tables is None or (life, rank) in tables:
            files.setdefault((life, rank), []).append(_opened(path, wanted))
    names = INTEGERS if wanted is None else wanted
    return [_joined(life, rank, parts, names) for (life, rank), parts in sorted(files.items())]


def list_steps(run_dir: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """Life and rank of every table there is; opens none."""
    return sorted({(life, rank) for life, rank, _ in step_files(run_dir)})


def read_anchors(run_dir: str | os.PathLike[str]) -> list[Anchor]:
    """What the clocks of every rank's host said, by life, rank and time."""
    anchors = []
    for life, rank, path in step_files(run_dir):
        file, _ = _opened(path, ["step"])
        if file is not None:
            boot = _header(file).boot_id
            anchors += [Anchor(life, rank, boot, *clocks) for clocks in file.anchors]
    return anchors


def step_files(run_dir: str | os.PathLike[str]) -> Iterator[tuple[int, int, Path]]:
    """Life, rank and block file, in the order in which they were begun; also of those that have only a tail left."""
    folder = Path(run_dir) / FOLDER
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    places = sorted({(int(name[1]), int(name[2]), int(name[3])) for name in names if name is not None})
    stems = {(int(name[1]), int(name[2]), int(name[3])): name[0].rpartition(".")[0] for name in names if name}
    for place in places:
        yield place[0], place[1], folder / f"{stems[place]}.pst"


def _opened(path: Path, wanted: list[str] | None) -> tuple[StepFile | None, list[Fault]]:
    try:
        file = StepFile(path, columns=wanted)
    except EventError as problem:
        return None, [Fault(str(path), 0, str(problem))]
    return file, [Fault(str(name), offset, reason) for name, offset, reason in file.faults]


def _header(file: StepFile) -> _Header:
    try:
        return msgspec.json.decode(file.header, type=_Header)
    except msgspec.MsgspecError:
        return _Header()


def _joined(
    life: int, rank: int, parts: list[tuple[StepFile | None, list[Fault]]], names: Sequence[str]
) -> StepRows:
    """The files of a rank of a life as one table."""
    tables = [file for file, _ in parts if file is not None]
    columns = stacked([_rows(file, is_last=file is tables[-1]) for file in tables])
    # What no row has is there all the same: not measured. FLOPs by type are there where they were counted.
    count = len(columns.get("step", ()))
    columns = {
        name: np.full(count, UNMEASURED)
        for name in names
        if name not in columns and not name.startswith("flops.")
    } | columns
    return StepRows(
        life,
        rank,
        columns,
        sum(file.lost for file in tables),
        [fault for _, faults in parts for fault in faults],
        stacked([arrays_of(file.rolled()) for file in tables]),
        [step for file in tables for step in file.commits],
        bool(tables) and tables[-1].is_closed,
    )


def stacked(pieces: list[Columns]) -> Columns:
    """Columns behind columns; what a piece does not have was not measured there."""
    if len(pieces) == 1:
        return pieces[0]
    kinds = {name: values.dtype for piece in pieces for name, values in piece.items()}
    lengths = [len(next(iter(piece.values()), ())) for piece in pieces]
    return {
        name: np.concatenate(
            [
                piece.get(name, np.full(length, UNMEASURED, dtype))
                for piece, length in zip(pieces, lengths, strict=True)
            ]
        )
        for name, dtype in kinds.items()
    }


def arrays_of(columns: "dict[str, tuple[Literal['integer', 'float'], bytes]]") -> Columns:
    """Columns as the extension gives them, without a copy."""
    arrays: Columns = {}
    for name, (kind, values) in columns.items():
        arrays[name] = (
            np.frombuffer(values, np.float64) if kind == "float" else np.frombuffer(values, np.int64)
        )
    return arrays


def _rows(file: StepFile, *, is_last: bool) -> Columns:
    """The rows of one file; the step that a kill tore is a row without an end."""
    columns = arrays_of(file.columns())
    if file.begun is None or not is_last:
        return columns
    step, begin = file.begun
    torn = {"step": np.array([step]), "begin": np.array([begin]), "end": np.array([UNMEASURED])}
    return stacked([columns, torn])
