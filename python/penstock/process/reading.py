"""Logs of a job: every byte of every rank, with the place where it stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.process.jobs import Job

STREAMS = ("stdout", "stderr")
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Piece:
    """Consecutive bytes of one stream of one rank."""

    rank: int
    stream: str
    #: Where in the log the bytes begin.
    offset: int
    content: bytes


def log_path(job: Job, rank: int, stream: str) -> Path:
    """The file that has all that a rank wrote, one incarnation after the other."""
    return job.directory / "logs" / f"rank-{rank}.{stream}"


class Reader:
    """Reads logs on from where it was."""

    def __init__(
        self, job: Job, ranks: list[int], streams: tuple[str, ...] = STREAMS, *, start: int = 0
    ) -> None:
        self._job = job
        self._places = {(rank, stream): start for rank in ranks for stream in streams}

    def pieces(self, *, whole_lines: bool = True) -> Iterator[Piece]:
        """What is new since the last call; a line whose end is not written yet comes later."""
        for (rank, stream), place in self._places.items():
            path = log_path(self._job, rank, stream)
            while path.exists() and (piece := self._piece(path, place, whole_lines=whole_lines)):
                yield Piece(rank, stream, place, piece)
                place += len(piece)
                self._places[rank, stream] = place

    def _piece(self, path: Path, place: int, *, whole_lines: bool) -> bytes:
        with path.open("rb") as file:
            file.seek(place)
            content = file.read(PIECE_BYTES)
        end = content.rfind(b"\n") + 1
        return content[:end] if whole_lines and (end or len(content) < PIECE_BYTES) else content
