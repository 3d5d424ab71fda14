"""A terminal that is slower than its workers, and very many workers at once."""

import re
import sys
from collections.abc import Callable

from tests.process.jobs import PATIENCE_S, Running, memory_bytes, wait_until

Run = Callable[..., Running]
LINES = 200_000
WIDTH = 60
#: Writes more than any buffer on the way holds, says so, and waits for somebody to look.
FLOOD = f"""
import os, time
text = b"".join(b"%07d %s\\n" % (n, b"y" * {WIDTH - 9}) for n in range({LINES}))
view = memoryview(text)
while view:
    view = view[os.write(1, view[:65536]):]
open(os.environ["MARKS"] + "/written", "w")
while not os.path.exists(os.environ["MARKS"] + "/go"):
    time.sleep(0.01)
os.write(1, b"the end\\n")
"""
NOTE = re.compile(rb"\[0\] \xe2\x80\xa6 (\d+) bytes from offset (\d+) are not shown, the terminal is slow\n")


def test_with_drop_ranks_do_not_wait_and_the_terminal_is_told_what_it_misses(run: Run) -> None:
    """Goal: a stated policy. Method: nobody reads until the rank has written 12 MB; then what is shown and what is missing add up."""
    running = run("--on-pressure", "drop", "--zygote", "never", "--", sys.executable, "-c", FLOOD, stderr=-3)
    wait_until(lambda: (running.marks / "written").exists(), "the rank does not wait for a reader")
    assert memory_bytes(running.state().agent) < 32 << 20
    (running.marks / "go").touch()
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S)
    log = (running.job.directory / "logs/rank-0.stdout").read_bytes()
    assert log == b"".join(b"%07d %s\n" % (n, b"y" * (WIDTH - 9)) for n in range(LINES)) + b"the end\n"
    place = 0
    for line in out.splitlines(keepends=True):
        if note := NOTE.fullmatch(line):
            assert int(note[2]) == place
            place += int(note[1])
        else:
            assert line == b"[0] " + log[place : place + len(line) - 4]
            place += len(line) - 4
    assert place == len(log)
    assert NOTE.search(out)


def test_a_line_without_an_end_is_shown_in_pieces_and_kept_whole(run: Run) -> None:
    """Goal: no unbounded memory. Method: 24 MB without an end of line, through a reader that reads."""
    script = "import os\nfor _ in range(384): os.write(1, b'z' * 65536)"
    running = run("--zygote", "never", "--", sys.executable, "-c", script, stderr=-3)
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S)
    assert out.count(b"z") == 384 << 16
    assert (running.job.directory / "logs/rank-0.stdout").read_bytes() == b"z" * (384 << 16)
    assert max(map(len, out.splitlines())) < 1 << 20


def test_256_ranks_at_once_lose_nothing(run: Run) -> None:
    """Goal: P5 at width. Method: every rank writes to both outputs; lines on the terminal and in files are compared."""
    script = "for n in 1 2 3 4 5; do echo out $RANK $n; echo err $RANK $n >&2; done"
    running = run("--ranks", "256", "--", "sh", "-c", script, stderr=-2)
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S * 3)
    assert running.launcher.returncode == 0
    expected = []
    for rank in range(256):
        for stream, word in (("stdout", "out"), ("stderr", "err")):
            lines = [f"{word} {rank} {n}" for n in range(1, 6)]
            log = (running.job.directory / f"logs/rank-{rank}.{stream}").read_text()
            assert log.splitlines() == lines
            expected += [f"[{rank:>3}] {line}" for line in lines]
    assert sorted(out.decode().splitlines()) == sorted(expected)
