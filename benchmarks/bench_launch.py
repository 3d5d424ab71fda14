"""How long it takes to start a gang, to start it again after a kill, and how fast its output flows.

Launching is measured from the start of the launcher to the moment when every rank has said so in a file, against
`posix_spawn` of the same ranks in the same run. The command's own start-up (Python, options) is a row of its own.
"""

import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Table
from penstock.process import Launch, Restarts, find, prepare
from penstock.process.launching import agent_path

READY = "import os, signal; open(f\"{os.environ['MARKS']}/{os.getpid()}\", 'w'); signal.pause()"
RANK = [sys.executable, "-S", "-c", READY]
FLOOD_BYTES = 200_000_000
PATIENCE_S = 60.0
ROUNDS = 5


def run() -> Table:
    """Measure in one run."""
    table = Table(
        "launch to all ranks ready ≤ 1.15 × posix_spawn; other rows are seconds or MB/s as noted", "s"
    )
    for ranks in (8, 64):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            spawned, launched = [], []
            for _ in range(ROUNDS if ranks == 8 else 3):
                spawned.append(_spawn(Path(folder), ranks))
                launched.append(_launch(Path(folder), ranks))
            table.add(f"posix_spawn, {ranks} ranks", statistics.median(spawned))
            ratio = statistics.median(launched) / statistics.median(spawned)
            table.add(f"penstock, {ranks} ranks", statistics.median(launched), f"{ratio:.2f} × posix_spawn")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        table.add("kill -9 of a rank → 8 ranks ready again", _recover(Path(folder)))
        speed, lost, cpu_s = _flow(Path(folder))
        table.add(
            "4 ranks write 200 MB",
            FLOOD_BYTES / 1e6 / speed,
            f"{speed:.0f} MB/s with prefix, {lost} bytes lost, "
            f"{cpu_s * 1e8 / FLOOD_BYTES:.3f} s of processor for supervision per 100 MB",
        )
        table.add("penstock run -- true, whole command", _command(Path(folder)))
    return table


def _marks(home: Path) -> Path:
    marks = home / "marks"
    shutil.rmtree(marks, ignore_errors=True)
    marks.mkdir(parents=True)
    return marks


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the ranks did not become ready")
        time.sleep(0.001)


def _spawn(home: Path, ranks: int) -> float:
    marks = _marks(home)
    environment = {**os.environ, "MARKS": str(marks)}
    begun = time.perf_counter()
    # In sessions of their own, like ranks: the scheduler shares out time by session.
    pids = [os.posix_spawn(RANK[0], RANK, environment, setsid=True) for _ in range(ranks)]
    _wait(lambda: len(os.listdir(marks)) == ranks)
    took = time.perf_counter() - begun
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return took


def _start(home: Path, launch: Launch, **options: object) -> "tuple[str, subprocess.Popen[bytes]]":
    job = prepare(home, launch)
    environment = {**os.environ, "MARKS": str(home / "marks")}
    words = [str(agent_path()), "launch", str(job.directory)]
    return job.id, subprocess.Popen(words, env=environment, **options)  # type: ignore[call-overload]


def _end(launcher: "subprocess.Popen[bytes]") -> None:
    launcher.send_signal(signal.SIGTERM)
    launcher.wait(PATIENCE_S)


def _launch(home: Path, ranks: int) -> float:
    marks = _marks(home)
    begun = time.perf_counter()
    _, launcher = _start(home, Launch(command=RANK, ranks=ranks), stderr=subprocess.DEVNULL)
    _wait(lambda: len(os.listdir(marks)) == ranks)
    took = time.perf_counter() - begun
    _end(launcher)
    return took


def _recover(home: Path) -> float:
    marks = _marks(home)
    launch = Launch(command=RANK, ranks=8, restarts=Restarts(most=ROUNDS, backoff_s=0))
    name, launcher = _start(home, launch, stderr=subprocess.DEVNULL)
    took = []
    for life in range(1, ROUNDS + 1):
        _wait(lambda life=life: len(os.listdir(marks)) == 8 * life)  # type: ignore[misc]
        state = find(home, name).state()
        assert state is not None
        begun = time.perf_counter()
        os.kill(state.gangs[0].workers[3]["pid"], signal.SIGKILL)
        _wait(lambda life=life: len(os.listdir(marks)) == 8 * (life + 1))  # type: ignore[misc]
        took.append(time.perf_counter() - begun)
    _end(launcher)
    return statistics.median(took)


def _flow(home: Path) -> tuple[float, int, float]:
    """MB/s of four ranks that write lines of 120 bytes, read by a reader that only counts; and what the supervision costs."""
    each = FLOOD_BYTES // 4
    program = f"import os\nblock = (b'x' * 119 + b'\\n') * 546\nfor _ in range({each} // len(block)): os.write(1, block)"
    launch = Launch(command=[sys.executable, "-S", "-c", program], ranks=4)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    name, launcher = _start(home, launch, stdout=subprocess.PIPE)
    assert launcher.stdout is not None
    shown = 0
    while piece := launcher.stdout.read(1 << 20):
        shown += len(piece)
    launcher.wait(PATIENCE_S)
    took = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    state = find(home, name).state()
    assert state is not None
    # All processes of the job but its ranks: launcher, keeper, agent, coordinator.
    all_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cpu_s = all_s - sum(worker["cpu_s"] or 0 for _, worker in state.workers)
    logs = find(home, name).directory / "logs"
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
