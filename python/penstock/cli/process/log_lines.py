"""How ``penstock logs`` shows what it reads: names before lines, lines that match, JSON."""

import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.cli.output import print_json, say, size
from penstock.process.reading import Gap, Piece, Worker

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


def is_colourful() -> bool:
    """Whether a person looks who wants colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


@dataclass
class Display:
    """Shows pieces. Without prefix, pattern and JSON the bytes go out as they are."""

    prefixes: dict[Worker, bytes] | None
    pattern: "re.Pattern[bytes] | None"
    json: bool
    #: Show only so many of the last lines of each log that match, when asked to; 0 shows all.
    last: int = 0
    _held: dict[tuple[Worker, str], deque[tuple[int, bytes]]] = field(default_factory=dict)

    @property
    def is_raw(self) -> bool:
        """Whether lines need not be whole."""
        return self.prefixes is None and self.pattern is None and not self.json

    def show(self, found: Piece | Gap) -> None:
        """One thing that was read."""
        if isinstance(found, Gap):
            why = "were removed" if found.removed else "did not fit on the disk"
            sys.stdout.flush()
            say(
                f"note: {found.worker.name}.{found.stream}: {size(found.byte_count)} from offset {found.offset} {why}"
            )
        elif self.is_raw:
            sys.stdout.buffer.write(found.content)
        elif self.pattern is None and not self.json:
            self._show_prefixed(found)
        else:
            for offset, line in self._matching(found):
                if self.last:
                    key = (found.worker, found.stream)
                    self._held.setdefault(key, deque(maxlen=self.last)).append((offset, line))
                else:
                    self._show_line(found.worker, found.stream, offset, line)

    def release(self) -> None:
        """Show the last matching lines; later ones come as they are read."""
        self.last = 0
        for (worker, stream), lines in self._held.items():
            for offset, line in lines:
                self._show_line(worker, stream, offset, line)
        self._held.clear()

    def _show_prefixed(self, piece: Piece) -> None:
        assert self.prefixes is not None
        prefix = self.prefixes[piece.worker]
        text = _OVERWRITTEN.sub(b"", piece.content) if b"\r" in piece.content else piece.content
        body = text.removesuffix(b"\n").replace(b"\n", b"\n" + prefix)
        sys.stdout.buffer.write(prefix + body + b"\n")

    def _matching(self, piece: Piece) -> Iterator[tuple[int, bytes]]:
        offset = piece.offset
        for line in piece.content.splitlines(keepends=True) if b"\r" not in piece.content else _lines(piece):
            shown = line.removesuffix(b"\n")
            if self.pattern is None or self.pattern.search(shown):
                yield offset, shown
            offset += len(line)

    def _show_line(self, worker: Worker, stream: str, offset: int, line: bytes) -> None:
        if self.json:
            text = line.decode(errors="replace")
            print_json(
                {"role": worker.role, "rank": worker.rank, "stream": stream, "offset": offset, "text": text}
            )
        else:
            sys.stdout.flush()
            prefix = b"" if self.prefixes is None else self.prefixes[worker]
            sys.stdout.buffer.write(prefix + _OVERWRITTEN.sub(b"", line) + b"\n")


def _lines(piece: Piece) -> list[bytes]:
    """Lines as newlines end them: ``splitlines`` would also end them at carriage returns."""
    lines = [line + b"\n" for line in piece.content.split(b"\n")]
    lines[-1] = lines[-1].removesuffix(b"\n")
    return [line for line in lines if line]
