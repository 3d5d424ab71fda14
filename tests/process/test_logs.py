"""P5: logs are lossless, with places; a slow terminal holds ranks back instead of losing bytes."""

import hashlib
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from tests.process.jobs import PATIENCE_S, Running, penstock, wait_until

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
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0
    assert b"".join(line[4:] for line in out.splitlines(keepends=True)) == log.read_bytes()
    assert log.stat().st_size == 400_000 * 59


def test_logs_can_be_read_from_any_place_and_followed(run: Run) -> None:
    script = "echo one $RANK; echo oops >&2; until [ -e $MARKS/go ]; do :; done; echo two $RANK"
    running = run("--detach", "--ranks", "2", "--", "bash", "-c", script)
    wait_until(
        lambda: "one 1" in penstock(running.home, "logs", running.job.id).stdout, "the first line is there"
    )
    (running.marks / "go").touch()

    followed = penstock(running.home, "logs", running.job.id, "-f")
    part = penstock(running.home, "logs", running.job.id, "--rank", "1", "--stream", "stdout", "--start", "6")

    assert sorted(followed.stdout.splitlines()) == sorted(
        f"[{rank}] {text}" for rank in range(2) for text in (f"one {rank}", "oops", f"two {rank}")
    )
    assert part.stdout == "two 1\n"


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


def test_what_does_not_fit_on_the_disk_is_counted_and_the_job_goes_on(run: Run) -> None:
    """Goal: P5, losses are told. Method: files may not grow beyond 64 KiB; the rank writes 200 KB and succeeds."""
    running = run(
        "--", sys.executable, "-c", "print('z' * 99_999 + '\\n' + 'z' * 99_999)", preexec_fn=_no_large_files
    )
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    kept = (running.job.directory / "logs/rank-0.stdout").stat().st_size
    assert kept == 64 << 10
    assert running.state().log_lost_bytes == 200_000 - kept
    assert f"{200_000 - kept} bytes of output did not fit".encode() in err


def _no_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
