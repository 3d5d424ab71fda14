"""How ``penstock logs`` shows what it reads: names and times before lines, lines that match, JSON."""

import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.cli.escape import coloured
from penstock.cli.output import print_json, say
from penstock.process.logs.chronology import Dated
from penstock.process.logs.reader import Gap, Piece, Worker
from penstock.report.quantities import size

#: As the terminal of a running job has them.
COLOURS = (36, 33, 32, 35, 34, 31)
#: What a carriage return was written over, as progress bars do; the last state of a line stays.
_OVERWRITTEN = re.compile(rb"[^\r\n]*\r+(?=[^\r\n])|\r+(?=\n|\Z)")


def labels(everybody: Sequence[Worker], *, colour: bool) -> dict[Worker, bytes]:
    """What stands before the lines of each worker: its rank, after its role where there are several."""
    one = len({worker.role for worker in everybody}) == 1
    names = [str(worker.rank) if one else worker.name for worker in everybody]
    width = max(map(len, names), default=0)
    plain = [f"[{name:>{width}}] " for name in names]
    if colour:
        plain = [f"\x1b[{COLOURS[at % len(COLOURS)]}m{text}\x1b[0m" for at, text in enumerate(plain)]
    return {worker: text.encode() for worker, text in zip(everybody, plain, strict=True)}


class GrowingLabels(dict[Worker, bytes]):
    """The same where nobody knows all ranks, because hosts come and go: numbers are as wide as the largest so far."""

    def __init__(self, roles: Sequence[str], *, colour: bool) -> None:
        super().__init__()
        self._one = len(roles) == 1
        self._colour = colour
        self._width = 0

    def __missing__(self, worker: Worker) -> bytes:
        name = str(worker.rank) if self._one else worker.name
        if len(name) > self._width:
            self._width = len(name)
            self.clear()
        text = f"[{name:>{self._width}}] "
        if self._colour:
            text = f"\x1b[{COLOURS[worker.rank % len(COLOURS)]}m{text}\x1b[0m"
        self[worker] = text.encode()
        return self[worker]


def is_colourful() -> bool:
    """Whether a person looks who wants colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


@dataclass
class Display:
    """Shows parts of logs. Without prefix, times, pattern and JSON the bytes go out as they are, unless a terminal would obey them."""

    prefixes: dict[Worker, bytes] | None
    pattern: "re.Pattern[bytes] | None"
    json: bool
    #: Whether the moment stands before every line.
    times: bool = False
    #: Show only so many of the last lines of each log that match, when asked to; 0 shows all.
    last: int = 0
    _held: dict[tuple[Worker, str], deque[tuple[int, int, bytes]]] = field(default_factory=dict)

    @property
    def is_raw(self) -> bool:
        """Whether lines need not be whole."""
        return self.prefixes is None and self.pattern is None and not self.json and not self.times

    def show(self, dated: Dated) -> None:
        """One thing that was read."""
        part = dated.part
        if isinstance(part, Gap):
            why = "were removed" if part.removed else "did not fit on the disk"
            sys.stdout.flush()
            say(
                f"note: {part.worker.name}.{part.stream}: {size(part.byte_count)} from offset {part.offset} {why}"
            )
        elif self.is_raw:
            _write(part.content)
        elif self.pattern is None and not self.json:
            self._show_prefixed(part, dated.at_ms)
        else:
            for offset, line in self._matching(part):
                if self.last:
                    key = (part.worker, part.stream)
                    self._held.setdefault(key, deque(maxlen=self.last)).append((dated.at_ms, offset, line))
                else:
                    self._show_line(part.worker, part.stream, offset, line, dated.at_ms)

    def release(self) -> None:
        """Show the last matching lines, by time; later ones come as they are read."""
        self.last = 0
        held = [
            (at_ms, key, offset, line) for key, lines in self._held.items() for at_ms, offset, line in lines
        ]
        for at_ms, (worker, stream), offset, line in sorted(held, key=lambda entry: entry[0]):
            self._show_line(worker, stream, offset, line, at_ms)
        self._held.clear()

    def _prefix(self, worker: Worker, at_ms: int) -> bytes:
        prefix = b"" if self.prefixes is None else self.prefixes[worker]
        return f"{clock_time(at_ms)} ".encode() + prefix if self.times else prefix

    def _show_prefixed(self, piece: Piece, at_ms: int) -> None:
        prefix = self._prefix(piece.worker, at_ms)
        text = _OVERWRITTEN.sub(b"", piece.content) if b"\r" in piece.content else piece.content
        text = coloured(text) if sys.stdout.isatty() else text
        body = text.removesuffix(b"\n").replace(b"\n", b"\n" + prefix)
        sys.stdout.buffer.write(prefix + body + b"\n")

    def _matching(self, piece: Piece) -> Iterator[tuple[int, bytes]]:
        offset = piece.offset
        for line in piece.content.splitlines(keepends=True) if b"\r" not in piece.content else _lines(piece):
            shown = line.removesuffix(b"\n")
            if self.pattern is None or self.pattern.search(shown):
                yield offset, shown
            offset += len(line)

    def _show_line(self, worker: Worker, stream: str, offset: int, line: bytes, at_ms: int) -> None:
        if self.json:
            about = {"role": worker.role, "rank": worker.rank, "stream": stream, "offset": offset}
            print_json({**about, "at": at_ms / 1000, "text": line.decode(errors="replace")})
        else:
            sys.stdout.flush()
            text = _OVERWRITTEN.sub(b"", line)
            sys.stdout.buffer.write(self._prefix(worker, at_ms))
            _write(text + b"\n")


def _write(output: bytes) -> None:
    sys.stdout.buffer.write(coloured(output) if sys.stdout.isatty() else output)


def clock_time(at_ms: int) -> str:
    """A moment as people compare it; local, to the millisecond."""
    if not at_ms:
        return f"{'?':<23}"
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _lines(piece: Piece) -> list[bytes]:
    """Lines as newlines end them: ``splitlines`` would also end them at carriage returns."""
    lines = [line + b"\n" for line in piece.content.split(b"\n")]
    lines[-1] = lines[-1].removesuffix(b"\n")
    return [line for line in lines if line]
