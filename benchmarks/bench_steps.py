"""What recording a step costs the loop's thread, what a value takes on disk, what a kill costs, and how fast rows are read back.

Rows are those of a real loop: steps of a few milliseconds that compute, allocate and are interrupted by whatever the machine does.
"""

import itertools
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.table import Table, best_of
from penstock.observe.steps import StepRecorder, read_steps
from penstock.observe.steps.clock import boottime_ns
from penstock.observe.steps.columns import INTEGERS

STEPS = 20_000
REAL_STEPS = 4_096 + 64
KILLS = 20


def run() -> Table:
    """Measure in one run."""
    table = Table("a step's row costs the loop at most 20 µs", "µs per step")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        table.add("one JSON line per step, written by the loop", json_lines(place / "lines.jsonl"))
        recorder = StepRecorder(place / "cost", 0, 0)
        cost = per_step(recorder)
        recorder.flush()
        lost = recorder.statistics()[1]
        recorder.close()
        size = bytes_per_value(place / "real")
        read = rows_per_second(place / "cost")
        table.add("recorded: 6 parts, 5 facts, 2 scalars", cost, f"{lost} rows lost")
        table.rows[-1].note += f"; {size:.2f} bytes per column of real rows; {read:.2f} M rows/s read"
        missing = [missing_ms(place / f"kill{number}") for number in range(KILLS)]
        note = f"{statistics.median(missing):.1f} ms of rows missing after kill -9, worst of {KILLS} {max(missing):.1f}"
        table.rows[-1].note += f"; {note}"
    return table


def json_lines(path: Path) -> float:
    """Microseconds for the same facts as one line of JSON."""
    with path.open("w") as file:

        def work() -> None:
            for step in range(STEPS // 5):
                row = {name: boottime_ns() for name in INTEGERS}
                file.write(json.dumps({**row, "step": step, "loss": 2.5}) + "\n")
                file.flush()

        return best_of(work) / (STEPS // 5) * 1e6


def per_step(recorder: StepRecorder) -> float:
    """Microseconds of the loop's thread for what a run tells about one step."""
    steps = itertools.count()

    def work() -> None:
        for _ in range(STEPS // 5):
            tell(recorder, next(steps))

    return best_of(work) / (STEPS // 5) * 1e6


def tell(recorder: StepRecorder, step: int) -> None:
    """What a loop of one rank tells."""
    recorder.begin(step)
    with recorder.part("data"):
        pass
    recorder.fact("tokens", 4096)
    recorder.fact("padding", 17)
    recorder.fact("bytes_read", 8192)
    recorder.feed(3, (step * 1e-5, step * 1e-4, step * 1e-6, 0.0))
    with recorder.part("user"):
        for part in ("forward", "backward", "optimizer"):
            recorder.enter(part)
            recorder.leave()
    with recorder.part("judge"):
        pass
    recorder.scalar(step, "loss", 2.5 / (step + 1))
    recorder.scalar(step, "grad_norm", 0.5)
    recorder.end(step)


def bytes_per_value(place: Path) -> float:
    """Of a block of rows of a loop that computes."""
    recorder = StepRecorder(place, 0, 0)
    numbers = np.random.default_rng(0)
    weights = numbers.normal(size=(256, 256))
    for step in range(REAL_STEPS + 1):
        recorder.begin(step)
        recorder.fact("tokens", 4096 - int(numbers.integers(0, 99)))
        recorder.fact("padding", int(numbers.integers(0, 99)))
        recorder.feed(int(numbers.integers(0, 4)), (0.0, step * 1e-4, 0.0, 0.0))
        with recorder.part("user"):
            for part in ("forward", "backward", "optimizer"):
                with recorder.part(part):
                    loss = float((weights @ weights).sum())
        recorder.scalar(step, "loss", loss / (step + 1))
        recorder.end(step)
    recorder.flush()
    seen = recorder.statistics()
    recorder.close()
    return float(seen[4] / seen[5])


def rows_per_second(place: Path) -> float:
    """Millions, of all columns."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        (rows,) = read_steps(place)
        times.append((time.perf_counter() - began) / len(rows))
    assert set(INTEGERS) <= set(rows.columns)
    return 1 / min(times) / 1e6


PROGRAM = """
import mmap, sys
from pathlib import Path
from benchmarks.bench_steps import tell
from penstock.observe.steps import StepRecorder
from penstock.observe.steps.clock import boottime_ns
recorder = StepRecorder(Path(sys.argv[1]), 0, 0)
with open(sys.argv[2], "r+b") as file, mmap.mmap(file.fileno(), 8) as over:
    for step in range(10_000_000):
        tell(recorder, step)
        over[:] = boottime_ns().to_bytes(8, "little")
"""


def missing_ms(place: Path) -> float:
    """How much older the last row is than the last step that was over when the process was killed."""
    place.mkdir()
    progress = place / "progress"
    progress.write_bytes(bytes(8))
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(place), str(progress)])
    with progress.open("r+b") as file, mmap.mmap(file.fileno(), 8) as over:
        until = boottime_ns() + 20 * 10**9
        while not any(over[:]) and boottime_ns() < until:
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        last = int.from_bytes(over[:], "little")
    (rows,) = read_steps(place, columns=[])
    ends = rows.columns["end"]
    return float(last - ends[ends > 0].max()) / 1e6
