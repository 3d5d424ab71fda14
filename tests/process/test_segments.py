"""Logs in segments: places never change their meaning, and what was removed is told."""

import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.process import Job
from penstock.process.logs.reader import Gap, Piece, Reader, Worker, last_lines_place, segments
from tests.process.jobs import PATIENCE_S, Running, penstock

Run = Callable[..., Running]
#: Each life writes 3000 lines of 30 bytes; the first one fails.
LIVES = """
import os, sys
life = int(os.environ["PENSTOCK_INCARNATION"])
for n in range(3000):
    sys.stdout.write("%d:%d:%s\\n" % (life, n + 1000, "x" * 22))
sys.stdout.flush()
sys.exit(1 - life)
"""
EACH = 3000 * 30


def text(*lives: int) -> str:
    """What these lives wrote."""
    return "".join(f"{life}:{n + 1000}:{'x' * 22}\n" for life in lives for n in range(3000))


def begun(run: Run, *words: str) -> Running:
    """A job of two lives, that is over."""
    running = run(
        "--segment-bytes", "16384", "--restarts", "1", *words, "--", sys.executable, "-c", LIVES, stdout=-3
    )
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    return running


def test_segments_are_named_by_place_and_hold_whole_lines_over_lives(run: Run) -> None:
    running = begun(run)
    files = sorted((running.job.directory / "logs").glob("rank-0.stdout*"))
    place = 0
    for path in files:
        assert path.name == "rank-0.stdout" + (f".{place:016}" if place else "")
        assert path.read_bytes().endswith(b"\n")
        assert path == files[-1] or 16384 <= path.stat().st_size < 16384 + 30
        place += path.stat().st_size
    assert place == 2 * EACH
    assert len(files) == 11

    def logs(*words: str) -> str:
        done = penstock(running.home, "logs", running.job.id, "--rank", "0", "--stream", "stdout", *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert logs() == text(0, 1)
    assert logs("--start", "50000") == text(0, 1)[50_000:]
    assert logs("--since", "incarnation") == text(1)
    assert logs("--tail", "1000") == text(1)[-30_000:]
    assert logs("--since", "1h") == text(0, 1)
    assert running.state().gangs[0].workers[0]["stdout_from"] == EACH
    assert running.state().log_missing == []


def test_old_segments_are_removed_and_that_is_told(run: Run) -> None:
    running = begun(run, "--segments-kept", "3")
    files = sorted((running.job.directory / "logs").glob("rank-0.stdout*"))
    assert len(files) == 3
    first = int(files[0].suffix[1:])
    assert running.state().log_missing == [
        {"log": "rank-0.stdout", "offset": 0, "bytes": first, "why": "removed"}
    ]
    done = penstock(running.home, "logs", running.job.id, "--rank", "0")
    assert done.stdout == text(0, 1)[first:]
    assert done.stderr == f"note: rank-0.stdout: {first / 1000:.3g} KB from offset 0 were removed\n"
    assert penstock(running.home, "logs", running.job.id, "--rank", "0", "--tail", "2").stderr == ""


def test_segments_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for words, message in (
        (["--segment-bytes", "100"], "must be 0 or at least 4096, got 100"),
        (["--segments-kept", "3"], "without segment_bytes a log has one segment"),
        (["--segment-bytes", "4096", "--segments-kept", "-1"], "0 or more"),
    ):
        done = penstock(tmp_path, "run", *words, "--", "true")
        assert done.returncode == 2
        assert message in done.stderr


@given(
    content=st.text("ab\n", max_size=60).map(str.encode),
    cuts=st.sets(st.integers(1, 59), max_size=5),
    missing=st.sets(st.integers(0, 5), max_size=2),
    start=st.integers(0, 70),
)
def test_a_reader_gives_every_byte_that_is_there_once_and_names_what_is_not(
    content: bytes, cuts: set[int], missing: set[int], start: int
) -> None:
    """Goal: P5 for readers. Method: a log cut anywhere, some segments of it gone; pieces and gaps together are the stream."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        (job.directory / "job.json").write_text('{"roles": [{"name": "rank", "ranks": 1}]}')
        (job.directory / "logs").mkdir()
        bounds = [0, *sorted(cut for cut in cuts if cut < len(content)), len(content)]
        kept = []
        for number, (begin, end) in enumerate(pairwise(bounds)):
            if number not in missing and begin < end:
                name = "rank-0.stdout" + (f".{begin:016}" if begin else "")
                (job.directory / "logs" / name).write_bytes(content[begin:end])
                kept.append((begin, end))
        worker = Worker("rank", 0)
        reader = Reader(job, [worker], ("stdout",), places={(worker, "stdout"): start})
        pieces = [*reader.pieces(), *reader.pieces(whole_lines=False)]
        place = start
        for piece in pieces:
            assert piece.offset == place
            if isinstance(piece, Gap):
                place += piece.byte_count
                assert not any(begin <= piece.offset < end for begin, end in kept)
            else:
                assert piece.content == content[place : place + len(piece.content)]
                place += len(piece.content)
        assert place == max(start, kept[-1][1] if kept else 0)
        assert [part for part in reader.pieces(whole_lines=False) if isinstance(part, Piece)] == []


@given(lines=st.lists(st.text("ab", max_size=9), max_size=30), count=st.integers(1, 12), ended=st.booleans())
def test_the_last_lines_begin_where_they_should(lines: list[str], count: int, ended: bool) -> None:
    content = "\n".join(lines) + ("\n" if ended else "")
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        (job.directory / "logs").mkdir()
        half = len(content) // 2
        (job.directory / "logs/rank-0.stdout").write_text(content[:half])
        if half:
            (job.directory / f"logs/rank-0.stdout.{half:016}").write_text(content[half:])
        else:
            (job.directory / "logs/rank-0.stdout").write_text(content)
        place = last_lines_place(segments(job).get("rank-0.stdout", []), count)
        assert content[place:].splitlines() == content.splitlines()[-count:]
