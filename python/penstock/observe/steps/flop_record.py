"""FLOPs of steps: by type of number in columns of the rows, and beside them what they are shares of.

Columns are called ``flops.useful.bfloat16`` and are there where FLOPs are counted. A small file of each rank and life names the device, and what
nobody could count: then there is no MFU, however many steps were counted.
"""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penstock.errors import PenstockError
from penstock.observe.flops import StepFlops
from penstock.observe.steps.columns import FOLDER
from penstock.observe.steps.recorder import StepRecorder

KINDS = ("useful", "executed", "palm")
_DTYPES = ("float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4", "int8")
COLUMNS = tuple(f"flops.{kind}.{dtype}" for kind in KINDS for dtype in _DTYPES)
_NAME = re.compile(r"(\d{1,9})-(\d{1,9})\.flops\.json")
#: Reasons and warnings of a file.
_WORDS_MAX = 8
_log = logging.getLogger("penstock.observe")


class FlopCount(Protocol):
    """What ``penstock.torch.flops`` gives."""

    def step(self, batch: Any) -> StepFlops:
        """The FLOPs of a step with this batch."""


class FlopNote(msgspec.Struct, frozen=True):
    """What the counts of one rank of one life are of."""

    device: str
    #: What could not be counted.
    unknown: tuple[str, ...] = ()
    #: What to say beside a number.
    warnings: tuple[str, ...] = ()


class FlopRecord:
    """Counts the steps of one rank of one life. Nothing here raises into training."""

    def __init__(self, count: FlopCount, recorder: StepRecorder, device: str) -> None:
        self._count, self._recorder = count, recorder
        self._note = FlopNote(device)
        self._is_written = False

    def add(self, batch: Any) -> None:
        """The batch of the step that is under way."""
        unknown: tuple[str, ...] = ()
        warnings: tuple[str, ...] = ()
        try:
            flops = self._count.step(batch)
        except (PenstockError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as problem:
            unknown = (f"the batch could not be counted: {problem}",)
        else:
            strange = sorted({*(flops.executed or ())} - {*_DTYPES})
            unknown = (*map(str, flops.unknown), *(f"numbers of type {dtype}" for dtype in strange))
            warnings = flops.warnings
            for kind in KINDS:
                self._tell(kind, getattr(flops, kind))
        self._describe(unknown, warnings)

    def _tell(self, kind: str, counts: Mapping[str, int] | None) -> None:
        if counts is None:
            return
        for dtype, count in counts.items():
            if count:
                self._recorder.count(f"flops.{kind}.{dtype}", count)
        if kind != "palm":
            self._recorder.fact(f"flops_{kind}", sum(counts.values()))

    def _describe(self, unknown: tuple[str, ...], warnings: tuple[str, ...]) -> None:
        """Written at the first step, and again only when there is something new to say."""
        note = FlopNote(
            self._note.device,
            tuple(dict.fromkeys((*self._note.unknown, *unknown)))[:_WORDS_MAX],
            tuple(dict.fromkeys((*self._note.warnings, *warnings)))[:_WORDS_MAX],
        )
        if self._is_written and note == self._note:
            return
        self._note, self._is_written = note, True
        try:
            self._recorder.beside(".flops.json").write_bytes(msgspec.json.encode(note))
        except OSError as problem:
            _log.warning("there will be no MFU, training goes on: %s", problem)


def read_flop_notes(run_dir: str | os.PathLike[str]) -> list[FlopNote]:
    """Of every rank of every life whose FLOPs were counted; of a file that is damaged only that."""
    folder = Path(run_dir) / FOLDER
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    notes = []
    for name in names:
        if _NAME.fullmatch(name):
            try:
                notes.append(msgspec.json.decode((folder / name).read_bytes(), type=FlopNote))
            except (OSError, msgspec.MsgspecError):
                notes.append(FlopNote("", (f"{name} cannot be read",)))
    return notes
