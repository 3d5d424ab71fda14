"""Step files after kills, flips, cuts, full disks and set clocks: what is there is read, what is missing is named (O1, O2, O5, O7)."""

import gc
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.observe.steps import (
    HOST,
    UNMEASURED,
    StepRecorder,
    StepRows,
    read_anchors,
    read_stacks,
    read_steps,
)
from tests.process.jobs import wait_until

ROOT = Path(__file__).parents[2]


def recorded(folder: Path, steps: int, **options: int) -> StepRecorder:
    """A recorder with rows of known values."""
    recorder = StepRecorder(folder, 0, 0, **options)
    for step in range(steps):
        recorder.begin(step)
        with recorder.part("user"):
            recorder.fact("tokens", 1000 + step)
        recorder.scalar(step, "loss", 1 / (step + 1))
        recorder.end(step)
        if step % 4000 == 0:
            assert recorder.flush()
    return recorder


def check_sums(rows: StepRows) -> None:
    """O1: the parts of every whole row are disjoint and sum to it, and rows follow each other."""
    columns = rows.columns
    whole = columns["end"] != UNMEASURED
    parts = np.array([columns[name][whole] for name in HOST])
    measured = np.where(parts == UNMEASURED, 0, parts)
    assert (measured >= 0).all()
    assert (measured.sum(0) == (columns["end"] - columns["begin"])[whole]).all()
    assert (columns["begin"][1:] >= columns["end"][:-1]).all()


def test_rows_come_back_as_they_were_given(tmp_path: Path) -> None:
    """Goal: the format. Method: more rows than two blocks; values, gaps and late values, while it is written and when it is closed."""
    steps = 9000
    recorder = recorded(tmp_path, steps)
    recorder.scalar(steps - 1, "late", 2.5)
    assert recorder.flush()
    for is_closed in (False, True):
        if is_closed:
            recorder.close()
        (rows,) = read_steps(tmp_path)
        assert (len(rows), rows.faults, rows.lost_rows, rows.is_closed) == (steps, [], 0, is_closed)
        check_sums(rows)
        assert rows.columns["step"].tolist() == list(range(steps))
        assert rows.columns["tokens"].tolist() == [1000 + step for step in range(steps)]
        assert rows.columns["scalar.loss"].tolist() == [1 / (step + 1) for step in range(steps)]
        assert rows.columns["scalar.late"].tolist() == [UNMEASURED] * (steps - 1) + [2.5]
        assert (rows.columns["device.forward"] == UNMEASURED).all()
        (few,) = read_steps(tmp_path, columns=["tokens"])
        assert set(few.columns) == {"step", "begin", "end", "tokens"}
        assert all((few.columns[name] == rows.columns[name]).all() for name in few.columns)
    assert sorted(path.suffix for path in (tmp_path / "steps").iterdir()) == [".pst", ".stacks"]


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_moment_leaves_a_beginning_of_the_rows(tmp_path: Path, seed: int) -> None:
    """Goal: O1, O2. Method: kill -9 a process that records thousands of steps a second, after a random number of steps."""
    progress = tmp_path / "progress"
    progress.write_bytes(bytes(8))
    words = [sys.executable, "-m", "tests.observe.step_writer", str(tmp_path), str(progress)]
    process = subprocess.Popen(words, cwd=ROOT)
    count = random.Random(seed).choice([50, 3000, 4160, 9000]) + seed

    def over() -> int:
        return int.from_bytes(progress.read_bytes(), "little")

    try:
        wait_until(lambda: over() >= count, "steps")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    (rows,) = read_steps(tmp_path)
    assert (rows.life, rows.rank, rows.is_closed) == (3, 1, False)
    torn = int((rows.columns["end"] == UNMEASURED).sum())
    number = len(rows) - torn
    # Whatever the thread had not written yet: never a row that was not recorded, none twice, and none missing between.
    assert rows.columns["step"].tolist() == list(range(number + torn))
    assert number <= over() + 1
    assert count < 1000 or number > 0
    assert all(fault.reason.startswith("the file ends inside") for fault in rows.faults)
    check_sums(rows)
    # The last row may lack the value that is written behind it.
    if number > 1:
        assert rows.columns["scalar.loss"][: number - 1].tolist() == [step / 7 for step in range(number - 1)]


@pytest.mark.parametrize("suffix", [".pst", ".tail"])
def test_flips_and_cuts_cost_what_they_hit_and_are_named(tmp_path: Path, suffix: str) -> None:
    """Goal: damaged files are read around the damage. Method: flip a byte at many places, and cut at many lengths."""
    recorder = recorded(tmp_path, 4300)
    recorder.flush()
    (whole,) = read_steps(tmp_path)
    values = dict(zip(whole.columns["step"].tolist(), whole.columns["end"].tolist(), strict=True))
    (path,) = (tmp_path / "steps").glob(f"*{suffix}")
    good = path.read_bytes()
    places = sorted(random.Random(3).sample(range(len(good)), 40))
    for place in (0, 9, 13, 17, len(good) - 1, *places):
        for damaged in (good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :], good[:place]):
            path.write_bytes(damaged)
            (rows,) = read_steps(tmp_path)
            ends = zip(rows.columns["step"].tolist(), rows.columns["end"].tolist(), strict=True)
            # A last row that is hit leaves its beginning: a step without an end.
            found = {step: end for step, end in ends if end != UNMEASURED}
            assert found.items() <= values.items()
            if damaged != good and len(damaged) == len(good) and place not in (9, 10, 11):
                assert [fault for fault in rows.faults if fault.file == str(path)], place
                assert all(fault.offset <= place for fault in rows.faults), place
                # One frame of the tail is one row; one of the blocks has many.
                assert len(found) >= len(values) - (1 if suffix == ".tail" else 4096)
    path.write_bytes(good)
    recorder.close()


def test_files_that_are_gone_or_foreign_are_faults(tmp_path: Path) -> None:
    recorded(tmp_path, 10).close()
    (path,) = (tmp_path / "steps").glob("*.pst")
    path.with_name("000001-0000-0.pst").write_bytes(b"something else")
    path.with_name("000002-0000-0.tail").write_bytes(b"")
    path.with_name("notes.txt").write_text("hello")
    tables = {rows.life: rows for rows in read_steps(tmp_path)}
    assert [len(tables[life]) for life in (0, 1, 2)] == [10, 0, 0]
    assert tables[0].faults == []
    assert [fault.offset for life in (1, 2) for fault in tables[life].faults][:1] == [0]
    assert "No such file" in tables[2].faults[0].reason
    assert read_steps(tmp_path / "nowhere") == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "penstock", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_stops_rows_and_says_so_and_nothing_else(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: O2. Method: fill the disk while steps are recorded; make room again. Steps are never held up, and what is lost is counted."""
    recorder = recorded(small_disk, 100)
    assert recorder.flush()
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        file.writelines(itertools.repeat(bytes(4096)))
    for step in range(100, 9000):
        recorder.begin(step)
        recorder.end(step)
        if step % 1000 == 0:
            recorder.flush()
    assert recorder.flush()
    recorder.every_second(1)
    assert "training goes on" in caplog.text
    assert recorder.statistics()[6] is not None
    filler.unlink()
    wait_until(lambda: recorder.flush() and recorder.statistics()[6] is None, "writing again")
    for step in range(9000, 9010):
        recorder.begin(step)
        recorder.end(step)
    recorder.close()

    (rows,) = read_steps(small_disk)
    steps = rows.columns["step"].tolist()
    assert rows.lost_rows > 0
    assert rows.lost_rows + len(rows) == 9010
    assert steps == sorted(set(steps))
    assert steps[-10:] == list(range(9000, 9010))


def test_the_oldest_rows_are_thinned_to_sums_that_end_at_checkpoints(tmp_path: Path) -> None:
    """Goal: O5, and ``lost`` stays exact. Method: a budget of 60 kB; sums of all parts, tokens and rows stay what they were."""
    recorder = StepRecorder(tmp_path, 0, 0, bytes_max=60_000)
    totals = dict.fromkeys(HOST, 0)
    steps = 40_000
    for step in range(steps):
        recorder.begin(step)
        with recorder.part("user"):
            recorder.fact("tokens", 1000 + step % 7)
        recorder.end(step)
        if step % 3000 == 2999:
            recorder.commit(step + 1)
            assert recorder.flush()
    recorder.close()

    (rows,) = read_steps(tmp_path)
    rolled, columns = rows.rolled, rows.columns
    assert rows.lost_rows == 0
    assert rolled["rows"].sum() + len(rows) == steps
    assert rolled["tokens"].sum() + columns["tokens"].sum() == sum(1000 + step % 7 for step in range(steps))
    for name in HOST:
        totals[name] = sum(
            int(values[values != UNMEASURED].sum()) for values in (rolled[name], columns[name])
        )
    assert sum(totals.values()) == columns["end"][-1] - rolled["begin"][0]
    assert rolled["first_step"].tolist()[0] == 0
    assert (rolled["first_step"][1:] == rolled["step"][:-1] + 1).all()
    assert columns["step"][0] == rolled["step"][-1] + 1
    for commit in range(3000, int(rolled["step"][-1]), 3000):
        assert commit in rolled["first_step"]
    used = sum(path.stat().st_size for path in (tmp_path / "steps").glob("*.pst"))
    assert used < 70_000


def test_collections_are_a_part_and_parts_inside_of_parts_keep_their_own_time(tmp_path: Path) -> None:
    recorder = StepRecorder(tmp_path, 0, 0)
    for step in range(3):
        recorder.begin(step)
        with recorder.part("user"):
            if step == 1:
                gc.collect()
            with recorder.part("eval"), recorder.part("data"):
                sum(range(1000))
        recorder.end(step)
    recorder.close()
    (rows,) = read_steps(tmp_path)
    check_sums(rows)
    collected = rows.columns["host.gc"]
    assert collected[1] > 0
    assert collected[1] > collected[0] + collected[2]
    assert (rows.columns["host.data"] > 0).all()


def test_a_slow_step_has_stacks_with_file_and_line(tmp_path: Path) -> None:
    """Goal: own code gets a place. Method: usual steps, then one that waits for the sampler itself to have looked at it often."""
    recorder = StepRecorder(tmp_path, 2, 0)
    for step in range(8):
        recorder.begin(step)
        if step == 7:
            wait_until(lambda: len([s for s in read_stacks(tmp_path) if s.step == 7]) >= 10, "samples")
        recorder.end(step)
    recorder.close()
    samples = [sample for sample in read_stacks(tmp_path) if sample.step == 7]
    assert {(sample.life, sample.rank) for sample in samples} == {(2, 0)}
    assert all(any(frame.startswith(f"{__file__}:") for frame in sample.frames) for sample in samples)
    assert [sample.at for sample in samples] == sorted(sample.at for sample in samples)


SHIFT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
static long shift(void) { static int calls; return calls++ > 40 ? 3600 : 0; }
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += shift();
    return rc;
}
"""
SHIFTED = """
import sys, time
from pathlib import Path
from penstock.observe.steps import StepRecorder
before = time.time()
recorder = StepRecorder(Path(sys.argv[1]), 0, 0)
for step in range(200):
    recorder.begin(step); time.time(); recorder.end(step)
assert time.time() - before > 3000, "the clock was set"
recorder.close()
"""


def test_a_wall_clock_that_is_set_shifts_no_row_and_shows_in_the_anchors(tmp_path: Path) -> None:
    """Goal: clocks. Method: a preloaded library sets the wall clock of one process forward by an hour between its steps."""
    source, library = tmp_path / "shift.c", tmp_path / "shift.so"
    source.write_text(SHIFT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    words = [sys.executable, "-c", SHIFTED, str(tmp_path)]
    subprocess.run(words, cwd=ROOT, env={**os.environ, "LD_PRELOAD": str(library)}, check=True, timeout=60)

    (rows,) = read_steps(tmp_path)
    check_sums(rows)
    assert len(rows) == 200
    columns = rows.columns
    assert (columns["begin"][1:] == columns["end"][:-1]).all()
    first, *_, last = read_anchors(tmp_path)
    took = last.boottime - first.boottime
    assert columns["end"][-1] - columns["begin"][0] <= took < 3600 * 10**9
    assert last.wall - first.wall - took > 3500 * 10**9
    assert abs(last.monotonic - first.monotonic - took) < 10**9
