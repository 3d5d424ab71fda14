"""``penstock logs``: what ranks wrote."""

import sys
import time
from typing import Annotated, Literal

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json
from penstock.cli.process.home import home
from penstock.errors import UsageError
from penstock.process.jobs import FINAL, Job, find
from penstock.process.reading import STREAMS, Piece, Reader

LOOK_S = 0.05

app = command_app(
    "logs",
    "Print what ranks wrote, lossless, with places.",
    examples=(
        "  penstock logs train-3f2a -f\n"
        "  penstock logs train-3f2a --rank 3 --stream stderr\n"
        "  penstock logs train-3f2a --rank 3 --stream stdout --start 1048576"
    ),
)


@app.default
def logs(
    job: str,
    *,
    rank: Annotated[
        int | None, Parameter(help="Only this rank; its bytes as they are, without prefix.")
    ] = None,
    stream: Annotated[Literal["stdout", "stderr", "both"], Parameter(help="Which output.")] = "both",
    start: Annotated[int, Parameter(help="Byte of the logs to begin at.")] = 0,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative=(), help="Go on until the job is over.")
    ] = False,
    json: Json = False,
) -> int:
    """Ranks one after the other; with --follow, as they write.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    found = find(home(), job)
    ranks = found.description()["roles"][0]["ranks"]
    if rank is not None and not 0 <= rank < ranks:
        raise UsageError(f"job {found.id} has ranks 0 to {ranks - 1}, not {rank}")
    if start < 0:
        raise UsageError(f"--start {start}: a log begins at byte 0")
    streams = STREAMS if stream == "both" else (stream,)
    reader = Reader(found, list(range(ranks)) if rank is None else [rank], streams, start=start)
    while follow and not _over(found):
        for piece in reader.pieces():
            _show(piece, prefixed=rank is None, json=json)
        sys.stdout.flush()
        time.sleep(LOOK_S)
    for piece in reader.pieces(whole_lines=False):
        _show(piece, prefixed=rank is None, json=json)
    sys.stdout.flush()
    return 0


def _over(job: Job) -> bool:
    return job.phase() in (*FINAL, "lost")


def _show(piece: Piece, *, prefixed: bool, json: bool) -> None:
    if json:
        text = piece.content.decode(errors="replace")
        print_json({"rank": piece.rank, "stream": piece.stream, "offset": piece.offset, "text": text})
    elif prefixed:
        lines = piece.content.splitlines(keepends=True)
        sys.stdout.buffer.write(b"".join(f"[{piece.rank}] ".encode() + line for line in lines))
        if lines and not lines[-1].endswith(b"\n"):
            sys.stdout.buffer.write(b"\n")
    else:
        sys.stdout.buffer.write(piece.content)
