"""`penstock top`: one row for each worker, in an order that helps, and one line about all."""

import io
import json
import os
import pty
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.cli.job.top import order, picture, summary
from penstock.process import pulses_of
from penstock.process.watch.gpus import GpuUse, parsed
from penstock.process.watch.usage import Row, Seen, last_line
from tests.process.jobs import PENSTOCK, Running, penstock, wait_until

Run = Callable[..., Running]
#: Steps until told; rank 1 stays at step 3 and saves.
TRAIN = """
import os, threading
from penstock.process import phase, pulse
rank, step, pace = int(os.environ['RANK']), 0, threading.Event()
print('begun', flush=True)
while pulse(step) is None:
    if step == 3 and rank == 1:
        phase('checkpoint')
        print('saves', flush=True)
        threading.Event().wait()
    step += 1
    pace.wait(0.005)
"""
#: As a driver of this year prints it.
PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
    0        501     C     99      5      -      -      -      -    900      0    python3
    1        501     C     50      5      -      -      -      -    100      0    python3
    2          -     -      -      -      -      -      -      -      -      -    -
    3        777     C      -      -      -      -      -      -      7      0    python3
"""


def test_top_shows_steps_phases_and_last_lines_of_a_real_job(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    running = run(
        "--ranks", "3", "--grace", "1", "--grace-save", "1", "--detach", "--", str(tmp_path / "train.py")
    )
    wait_until(
        lambda: [p.phase for p in pulses_of(running.job).values()].count("step") == 2, "two make steps"
    )
    wait_until(lambda: "saves" in (running.job.directory / "logs/rank-1.stdout").read_text(), "one saves")
    seen = json.loads(penstock(running.home, "top", "--json").stdout)
    assert (seen["job"], seen["phase"], len(seen["workers"])) == (running.job.id, "running", 3)
    saving = seen["workers"][1]
    assert (saving["step"], saving["phase"], saving["last_line"], saving["state"]) == (
        3,
        "checkpoint",
        "saves",
        "S",
    )
    assert saving["cpu_percent"] is not None
    assert saving["rss_bytes"] > 1 << 20
    assert saving["phase_age_s"] < saving["step_age_s"]
    lines = penstock(running.home, "top", running.job.id).stdout.splitlines()
    assert lines[3].split()[0] == "rank-1"
    assert "3 workers · 2 step, 1 checkpoint" in lines[-1]
    penstock(running.home, "stop", running.job.id)
    over = penstock(running.home, "top", running.job.id).stdout
    assert "stopped after" in over
    nothing = penstock(running.home, "top")
    assert (nothing.returncode, nothing.stderr.splitlines()[0]) == (2, "error: no job runs")


def test_on_a_terminal_top_ends_with_the_job(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    running = run("--grace", "5", "--detach", "--", str(tmp_path / "train.py"))
    wait_until(lambda: pulses_of(running.job), "the rank pulses")
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "PENSTOCK_HOME": str(running.home),
        "COLUMNS": "120",
        "LINES": "20",
        "TERM": "xterm",
    }
    words = [*PENSTOCK, "top", running.job.id, "--every", "0.1"]
    shown = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text = b""
    while b"running for" not in text:
        text += os.read(ours, 65536)
    assert penstock(running.home, "stop", running.job.id).returncode == 0
    while b"stopped after" not in text:
        text += os.read(ours, 65536)
    with os.fdopen(ours, "rb", closefd=True):
        assert shown.wait(20) == 0


def test_q_leaves_and_the_terminal_is_as_before(run: Run) -> None:
    """Goal: as in every pager. Method: a real terminal, other keys first, then `q`; the job goes on."""
    running = run("--detach", "--", "bash", "-c", "touch $MARKS/$$.pid; sleep 1000; true")
    running.pids(1)
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, "PENSTOCK_HOME": str(running.home), "TERM": "xterm"}
    words = [*PENSTOCK, "top", running.job.id, "--every", "3600"]
    shown = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    text = b""
    while b"running for" not in text:
        text += os.read(ours, 65536)
    os.write(ours, b"x")
    os.write(ours, b"q")
    assert shown.wait(20) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)
    assert running.job.phase() == "running"


STEPS = st.one_of(st.none(), st.integers(0, 5))
ROWS = st.lists(
    st.builds(
        Row,
        role=st.just("rank"),
        rank=st.integers(0, 300),
        pid=st.just(1),
        incarnation=st.just(0),
        state=st.sampled_from(["S", "R", "D", "T", "exit 1"]),
        step=STEPS,
    ),
    max_size=20,
)


@given(ROWS)
def test_who_does_not_run_and_who_is_behind_comes_first(rows: list[Row]) -> None:
    ordered = order(rows)
    assert sorted(map(repr, ordered)) == sorted(map(repr, rows))
    troubled = [row.state not in ("R", "S") for row in ordered]
    assert troubled == sorted(troubled, reverse=True)
    healthy = [-1 if row.step is None else row.step for row in ordered if row.state in ("R", "S")]
    assert healthy == sorted(healthy)
    assert summary(rows).startswith(f"{len(rows)} workers" if rows else "no workers")


def test_of_hundreds_of_ranks_those_behind_are_shown_and_the_rest_is_counted() -> None:
    rows = [
        Row(
            role="rank",
            rank=n,
            pid=n + 1,
            incarnation=0,
            state="S",
            step=7 if n == 200 else 9,
            phase="step",
            phase_age_s=1.0,
        )
        for n in range(256)
    ]
    seen = Seen(job="big", phase="running", reason="as asked for", at=0.0, age_s=3.0, rows=rows)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(picture(seen, rows_max=10, width=80))
    lines = console.export_text().splitlines()
    assert lines[3].startswith("rank-200")
    assert "… and 246 more" in lines[-2]
    assert lines[-1].startswith("256 workers · 256 step · steps 7 to 9")
    assert max(map(len, lines)) <= 80


def test_gpus_are_added_up_by_process() -> None:
    assert parsed(PMON) == {501: GpuUse(149.0, 1000 << 20), 777: GpuUse(0.0, 7 << 20)}
    assert parsed("No devices were found") == {}


@given(st.binary(max_size=300))
def test_any_output_has_a_last_line_that_a_terminal_can_show(content: bytes) -> None:
    path = Path(f"/proc/self/fd/{_file(content)}")
    line = last_line([path, Path("/nowhere")])
    os.close(int(path.name))
    assert line.isprintable()


def test_the_last_line_is_of_the_stream_that_was_written_last(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\n")
    (tmp_path / "b").write_text("10 %\r20 %\n\n")
    os.utime(tmp_path / "a", ns=(1, 1))
    assert last_line([tmp_path / "a", tmp_path / "b"]) == "20 %"


def _file(content: bytes) -> int:
    file = os.memfd_create("output")
    os.write(file, content)
    return file
