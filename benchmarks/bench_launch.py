"""How long it takes to start a gang, and how fast its output flows.

Launching is measured from the start of the launcher to the moment when every rank has said so in a file, against
`posix_spawn` and torchrun with the same ranks in the same run. The command's own start-up (Python, options) is a row of its own;
torchrun has no launcher without it. Ranks are executed here; `bench_zygote` has those that are forked.
"""

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gangs import PATIENCE_S, RANK, end, fresh_marks, start, wait_ready
from benchmarks.table import Table
from penstock.process import Launch

FLOOD_BYTES = 200_000_000
ROUNDS = 5


def run() -> Table:
    """Measure in one run."""
    table = Table(
        "launch to all ranks ready ≤ 1.15 × posix_spawn; other rows are seconds or MB/s as noted", "s"
    )
    for ranks, rounds in ((8, ROUNDS), (64, 3), (256, 3)):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            spawned, launched = [], []
            for _ in range(rounds):
                spawned.append(_spawn(Path(folder), ranks))
                launched.append(_launch(Path(folder), ranks))
            table.add(f"posix_spawn, {ranks} ranks", statistics.median(spawned))
            ratio = statistics.median(launched) / statistics.median(spawned)
            table.add(f"penstock, {ranks} ranks", statistics.median(launched), f"{ratio:.2f} × posix_spawn")
            took = _torchrun(Path(folder), ranks)
            table.add(
                f"torchrun, {ranks} ranks", took, f"{took / statistics.median(spawned):.2f} × posix_spawn"
            )
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        speed, lost, cpu_s = _flow(Path(folder))
        table.add(
            "4 ranks write 200 MB",
            FLOOD_BYTES / 1e6 / speed,
            f"{speed:.0f} MB/s with prefix, {lost} bytes lost, "
            f"{cpu_s * 1e8 / FLOOD_BYTES:.3f} s of processor for supervision per 100 MB",
        )
        table.add("penstock run -- true, whole command", _command(Path(folder)))
    return table


def _spawn(home: Path, ranks: int) -> float:
    marks = fresh_marks(home)
    environment = {**os.environ, "MARKS": str(marks)}
    begun = time.perf_counter()
    # In sessions of their own, like ranks: the scheduler shares out time by session.
    pids = [os.posix_spawn(RANK[0], RANK, environment, setsid=True) for _ in range(ranks)]
    wait_ready(marks, ranks)
    took = time.perf_counter() - begun
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return took


def _launch(home: Path, ranks: int) -> float:
    marks = fresh_marks(home)
    launch = Launch(command=RANK, ranks=ranks, zygote="never")
    begun = time.perf_counter()
    _, launcher = start(home, launch, stderr=subprocess.DEVNULL)
    wait_ready(marks, ranks)
    took = time.perf_counter() - begun
    end(launcher)
    return took


def _torchrun(home: Path, ranks: int) -> float:
    """The same ranks under torchrun; it needs torch, and takes it along."""
    marks = fresh_marks(home)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "MARKS": str(marks), "OMP_NUM_THREADS": "1"}
    begun = time.perf_counter()
    launcher = subprocess.Popen(
        [*words, "--no-python", *RANK], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_ready(marks, ranks)
    took = time.perf_counter() - begun
    end(launcher)
    return took


def _flow(home: Path) -> tuple[float, int, float]:
    """MB/s of four ranks that write lines of 120 bytes, read by a reader that only counts; and what the supervision costs."""
    share_bytes = FLOOD_BYTES // 4
    program = f"import os\nblock = (b'x' * 119 + b'\\n') * 546\nfor _ in range({share_bytes} // len(block)): os.write(1, block)"
    launch = Launch(command=[sys.executable, "-S", "-c", program], ranks=4)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    job, launcher = start(home, launch, stdout=subprocess.PIPE)
    assert launcher.stdout is not None
    shown = 0
    while piece := launcher.stdout.read(1 << 20):
        shown += len(piece)
    launcher.wait(PATIENCE_S)
    took = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    state = job.state()
    assert state is not None
    # All processes of the job but its ranks: launcher, keeper, agent, coordinator.
    all_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cpu_s = all_s - sum(worker["cpu_s"] or 0 for _, worker in state.workers)
    logs = job.directory / "logs"
    written = sum(path.stat().st_size for path in logs.glob("*.stdout"))
    # Every line of 120 bytes is shown with four more.
    return written / 1e6 / took, written - shown * 120 // 124, cpu_s


def _command(home: Path) -> float:
    words = [sys.executable, "-m", "penstock.cli.main", "run", "--", "true"]
    environment = {**os.environ, "PENSTOCK_HOME": str(home)}
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run(words, env=environment, check=True)
        took.append(time.perf_counter() - begun)
    return statistics.median(took)
