"""When a compiler was at work in a rank, what it compiled, and why it had to do it again."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.observe.steps.columns import FOLDER

#: Of one file; a program that compiles more often than that is known by then (O5).
BYTES_MAX = 4 << 20
_WORDS_MAX = 200
_NAME = re.compile(r"(\d{1,9})-(\d{1,9})\.compiles")
#: Nanoseconds that a clock can show.
_AT_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CompileSpan:
    """One compilation, on the clock of its rank (CLOCK_BOOTTIME in ns)."""

    life: int
    rank: int
    begin: int
    end: int
    #: ``file:line function``; empty where it is not known.
    what: str = ""
    #: Why something was compiled again; empty the first time.
    why: str = ""


class _Line(msgspec.Struct, frozen=True):
    begin: int
    end: int
    what: str = ""
    why: str = ""


class CompileFile:
    """Written after each compilation, which took a thousand times as long. A disk that has no room costs lines and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, begin: int, end: int, what: str, why: str) -> None:
        """Keep a compilation, while there is room."""
        line = msgspec.json.encode(_Line(begin, end, what[:_WORDS_MAX], why[:_WORDS_MAX])) + b"\n"
        try:
            with self._path.open("ab", buffering=0) as file:
                if file.tell() + len(line) <= BYTES_MAX:
                    file.write(line)
        except OSError:
            return


def read_compiles(run_dir: str | os.PathLike[str], faults: list[str] | None = None) -> list[CompileSpan]:
    """All compilations, by life, rank and time. Lines that a kill or a flip spoiled are passed over; files that cannot be read are told in
    ``faults``.
    """
    folder = Path(run_dir) / FOLDER
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    spans = []
    for name in names:
        place = _NAME.fullmatch(name)
        if place is not None:
            try:
                spans += _read_file(folder / name, int(place[1]), int(place[2]))
            except OSError as problem:
                if faults is not None:
                    faults.append(f"{folder / name}: {problem.strerror}")
    return sorted(spans, key=lambda span: (span.life, span.rank, span.begin))


def _read_file(path: Path, life: int, rank: int) -> list[CompileSpan]:
    spans = []
    for text in path.read_bytes().split(b"\n"):
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if 0 <= line.begin < line.end <= _AT_MAX:
            spans.append(CompileSpan(life, rank, line.begin, line.end, line.what, line.why))
    return spans


def stretches_of(spans: Iterable[CompileSpan]) -> list[tuple[int, int]]:
    """When a rank of a life was compiling: compilations inside of others are not counted twice."""
    stretches: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda one: one.begin):
        if stretches and span.begin <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], span.end))
        else:
            stretches.append((span.begin, span.end))
    return stretches
