"""P5: logs are lossless, with places; a slow terminal holds ranks back instead of losing bytes."""

import hashlib
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from tests.process.jobs import PATIENCE_S, Running, memory_bytes, penstock, wait_until

Run = Callable[..., Running]
RANKS = 4
LINES = 110_000
#: Lines of about 120 bytes that no two ranks share; the digest of what was written is left in $MARKS.
FLOOD = f"""
import hashlib, os, sys
rank = os.environ["RANK"]
text = b"".join(b"%s:%07d:%s\\n" % (rank.encode(), n, b"x" * 110) for n in range({LINES}))
view = memoryview(text)
while view:
    view = view[os.write(1, view[:65536]):]
os.write(2, b"done without an end of line")
open(os.path.join(os.environ["MARKS"], rank), "w").write(hashlib.sha256(text).hexdigest())
"""


def test_a_flood_is_in_the_files_byte_for_byte_and_on_the_terminal_line_for_line(
    run: Run, tmp_path: Path
) -> None:
    """Goal: P5. Method: 4 ranks write 53 MB at once; files are compared by digest, the terminal by its lines."""
    with (tmp_path / "terminal").open("wb") as terminal:
        running = run("--ranks", str(RANKS), "--", sys.executable, "-c", FLOOD, stdout=terminal)
        assert running.launcher is not None
        assert running.launcher.wait(PATIENCE_S * 3) == 0
    shown: dict[bytes, list[bytes]] = {}
    for line in (tmp_path / "terminal").read_bytes().splitlines():
        shown.setdefault(line[:4], []).append(line[4:])
    for rank in range(RANKS):
        log = (running.job.directory / f"logs/rank-{rank}.stdout").read_bytes()
        assert hashlib.sha256(log).hexdigest() == (running.marks / str(rank)).read_text()
        assert shown[b"[%d] " % rank] == log.splitlines()
        assert (
            running.job.directory / f"logs/rank-{rank}.stderr"
        ).read_bytes() == b"done without an end of line"
    assert running.state().log_lost_bytes == 0


def test_a_terminal_that_does_not_read_holds_the_ranks_back_and_gets_everything_later(run: Run) -> None:
    """Goal: back-pressure. Method: nobody reads until the log stands still, with less in it than was meant to be written."""
    script = "import sys\nfor n in range(400_000): sys.stdout.write('%07d %s\\n' % (n, 'y' * 50))"
    running = run("--", sys.executable, "-c", script, environment={"PYTHONUNBUFFERED": ""})
    log = running.job.directory / "logs/rank-0.stdout"
    wait_until(lambda: log.exists() and log.stat().st_size > 1 << 20, "the rank has begun to write")
    sizes = [-1]

    def stands_still() -> bool:
        sizes.append(log.stat().st_size)
        return len(sizes) > 60 and len(set(sizes[-60:])) == 1

    wait_until(stands_still, "the log stands still because nobody reads")
    assert log.stat().st_size < 400_000 * 59
    # The agent keeps no more than a buffer, what waits for the terminal, and a line.
    assert memory_bytes(running.state().agent) < 32 << 20
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0
    assert b"".join(line[4:] for line in out.splitlines(keepends=True)) == log.read_bytes()
    assert log.stat().st_size == 400_000 * 59


def test_the_reader_of_the_output_leaving_ends_the_job(run: Run) -> None:
    """Goal: `penstock run … | head` ends. Method: the reading end is closed while the rank writes for ever."""
    running = run("--", "bash", "-c", "while :; do echo more; done")
    assert running.launcher is not None
    assert running.launcher.stdout is not None
    assert os.read(running.launcher.stdout.fileno(), 9)
    running.launcher.stdout.close()
    running.launcher.stdout = None
    running.launcher.wait(PATIENCE_S)
    assert running.job.phase() == "stopped"


def test_a_file_that_may_not_grow_is_continued_in_another_one(run: Run) -> None:
    """Goal: P5 under `ulimit -f`. Method: no file may grow beyond 64 KiB; the rank writes 200 KB."""
    text = b"".join(b"%06d\n" % n for n in range(200_000 // 7))
    script = f"import os\nos.write(1, b''.join(b'%06d\\n' % n for n in range({200_000 // 7})))"
    running = run("--zygote", "never", "--", sys.executable, "-c", script, preexec_fn=_no_large_files)
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    files = sorted((running.job.directory / "logs").glob("rank-0.stdout*"))
    assert [path.name for path in files] == [
        "rank-0.stdout",
        *(f"rank-0.stdout.{at << 16:016}" for at in (1, 2, 3)),
    ]
    assert b"".join(path.read_bytes() for path in files) == text
    assert penstock(running.home, "logs", running.job.id, "--rank", "0").stdout.encode() == text
    assert running.state().log_lost_bytes == 0


def _no_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))


def test_a_life_begins_on_a_line_of_its_own(run: Run) -> None:
    """Goal: half a line of a rank that was killed is not the beginning of the next life's first line. Method: half lines in both streams."""
    script = (
        "import os, sys; life = os.environ['PENSTOCK_INCARNATION']\n"
        "for stream in (sys.stdout, sys.stderr): print('half of', life, end='', file=stream, flush=True)\n"
        "os.kill(os.getpid(), 9 if life == '0' else 0)\n"
    )
    running = run("--restarts", "1", "--", sys.executable, "-c", script)
    assert running.launcher is not None
    running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0
    for stream in ("stdout", "stderr"):
        assert (running.job.directory / f"logs/rank-0.{stream}").read_text() == "half of 0\nhalf of 1"
