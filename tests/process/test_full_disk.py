"""P5 on a full disk: the job goes on, losses are told with their places, and logs go on when there is space again."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.process.logs.reader import Gap, Reader, Worker
from tests.process.jobs import PATIENCE_S, Running, penstock, wait_until

Run = Callable[..., Running]
#: Writes numbered lines: 3 MB at once, then on until it is enough. What was written is known from how many there were.
SPEAKER = """
import os, sys, time
marks, count = os.environ["MARKS"], 0
def speak(lines):
    global count
    os.write(1, b"".join(b"%08d %s\\n" % (count + n, b"x" * 90) for n in range(lines)))
    count += lines
while not os.path.exists(marks + "/begin"):
    time.sleep(0.005)
for _ in range(30):
    speak(1000)
open(marks + "/flooded", "w")
while not os.path.exists(marks + "/enough"):
    speak(1)
    time.sleep(0.005)
open(marks + "/count", "w").write(str(count))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 4 MB, where we may make one."""
    if os.geteuid() != 0:
        yield None
        return
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def check(running: Running, err: bytes) -> None:
    """Pieces and gaps together are what was written; every gap is told in the state, by `logs`, and by the launcher."""
    count = int((running.marks / "count").read_text())
    text = b"".join(b"%08d %s\n" % (n, b"x" * 90) for n in range(count))
    place = lost = 0
    worker = Worker("rank", 0)
    gaps = []
    for piece in Reader(running.job, [worker], ("stdout",)).pieces(whole_lines=False):
        assert piece.offset == place
        if isinstance(piece, Gap):
            gaps.append(
                {"log": "rank-0.stdout", "offset": place, "bytes": piece.byte_count, "why": "full disk"}
            )
            lost += piece.byte_count
            place += piece.byte_count
        else:
            assert piece.content == text[place : place + len(piece.content)]
            place += len(piece.content)
    assert place == len(text), "the end is there: writing went on"
    state = running.state()
    assert (state.phase, state.log_lost_bytes) == ("succeeded", lost)
    assert state.log_missing == gaps
    assert lost > 0
    assert f"{lost} bytes of output did not fit".encode() in err
    shown = penstock(running.home, "logs", running.job.id, "--rank", "0", "--stream", "stdout")
    assert shown.stderr.count("did not fit on the disk") == len(gaps)
    assert len(shown.stdout) == len(text) - lost


def test_a_full_disk_costs_output_but_no_supervision(
    small_disk: Path | None, run: Run, tmp_path: Path
) -> None:
    """Goal: P5, and a state that says how it ended. Method: a real disk of 4 MB, filled by others, later given back."""
    marks = tmp_path / "marks"
    marks.mkdir()
    home = small_disk or tmp_path / "home-0"
    running = run(
        "--zygote",
        "never",
        "--",
        sys.executable,
        "-c",
        SPEAKER,
        environment={"MARKS": str(marks), "PENSTOCK_HOME": str(home)},
        stdout=-3,
    )
    running.home, running.marks = home, marks
    filler = home / "filler"
    wait_until(lambda: bool(running.state().workers), "the rank runs")
    fill(running, filler, small_disk)
    (marks / "begin").touch()
    wait_until(lambda: (marks / "flooded").exists(), "the rank writes on, although nothing fits")
    assert running.job.phase() == "running"
    if small_disk is None:
        allow(running, resource.RLIM_INFINITY)
    else:
        filler.unlink()
    logs = running.job.directory / "logs"
    wait_until(lambda: list(logs.glob("rank-0.stdout.*")), "the log goes on in a new segment")
    (marks / "enough").touch()
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    check(running, err)


def test_a_job_that_ends_on_a_full_disk_says_how(small_disk: Path | None, run: Run, tmp_path: Path) -> None:
    """Goal: no lost verdict. Method: the disk is full to the last byte, a rank fails, is restarted, and the job ends."""
    marks = tmp_path / "marks"
    marks.mkdir()
    home = small_disk or tmp_path / "home-0"
    script = "touch $MARKS/$PENSTOCK_INCARNATION; until [ -e $MARKS/go ]; do sleep 0.01; done; exit $((3 + PENSTOCK_INCARNATION))"
    variables = {"MARKS": str(marks), "PENSTOCK_HOME": str(home)}
    running = run("--restarts", "1", "--", "bash", "-c", script, environment=variables)
    running.home, running.marks = home, marks
    wait_until(lambda: (marks / "0").exists(), "the rank runs")
    wait_until(lambda: running.state().phase == "running", "that is known")
    if small_disk is not None:
        fill(running, home / "filler", small_disk)
    (marks / "go").touch()
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 4, err
    state = running.state()
    assert (state.phase, state.incarnation, state.exit_code) == ("failed", 1, 4)


def fill(running: Running, filler: Path, disk: Path | None) -> None:
    """Leave no byte: of the disk, or of what the agent may write."""
    if disk is None:
        allow(running, 0)
        return
    with filler.open("wb", buffering=0) as file:
        for piece in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"f" * piece):
                    pass
            except OSError:
                continue


def allow(running: Running, byte_count: int) -> None:
    """How large files of the agent may become."""
    _, hard = resource.prlimit(running.state().agent, resource.RLIMIT_FSIZE)
    resource.prlimit(running.state().agent, resource.RLIMIT_FSIZE, (byte_count, hard))


def test_an_agent_that_may_write_nothing_for_a_while_goes_on(run: Run) -> None:
    """Goal: the same as an ordinary user. Method: the agent's files may not grow at all, later they may."""
    running = run("--zygote", "never", "--", sys.executable, "-c", SPEAKER, stdout=-3)
    wait_until(lambda: bool(running.state().workers), "the rank runs")
    allow(running, 0)
    (running.marks / "begin").touch()
    wait_until(lambda: (running.marks / "flooded").exists(), "the rank writes on, although nothing fits")
    allow(running, resource.RLIM_INFINITY)
    logs = running.job.directory / "logs"
    wait_until(lambda: list(logs.glob("rank-0.stdout.*")), "the log goes on in a new segment")
    (running.marks / "enough").touch()
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    check(running, err)


def test_a_persons_file_without_space_ends_no_job(run: Run) -> None:
    """Goal: a healthy job is not ended for want of space where its output is shown. Method: standard output on a device that is full."""
    with open("/dev/full", "wb") as full:
        running = run("--", "bash", "-c", "echo one; sleep 0.3; echo two; touch $MARKS/ended", stdout=full)
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert (running.launcher.returncode, running.job.phase()) == (0, "succeeded")
    assert (running.marks / "ended").exists()
    assert b"16 bytes of output were left out where there was no space for them" in err
    assert penstock(running.home, "logs", running.job.id).stdout == "[0] one\n[0] two\n"


def test_where_files_may_hardly_grow_jobs_run(run: Run) -> None:
    """Goal: a small limit of file sizes (`ulimit -f 8`) ends no job, and logs go on in other files. Method: more output than the limit."""
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (8 << 10, 8 << 10))
    script = "for ((line = 0; line < 2000; line++)); do echo 0123456789; done"
    running = run("--", "bash", "-c", script, preexec_fn=limit)
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert (running.launcher.returncode, out.count(b"0123456789")) == (0, 2000), err
    assert penstock(running.home, "logs", running.job.id).stdout.count("0123456789") == 2000
