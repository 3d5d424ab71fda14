"""How soon ranks run that are forked from a warm Python, beside the same ranks executed.

A life begins when a rank of the one before it is killed, so that the zygote is warm, and is there when every rank has said so in a file: the agent's
notice of the death, the end of the peers, and the fork are in it. The first life, in which the zygote gets warm, is a row of its own.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_launch import _spawn
from benchmarks.gangs import READY, end, fresh_marks, start, wait, wait_ready
from benchmarks.table import Table
from penstock.process import Launch, Restarts

BARE = [sys.executable, "-S", "-c", READY]
TORCH = [sys.executable, "-c", f"import torch, torch._dynamo, torch.distributed\n{READY}"]


def run() -> Table:
    """Measure in one run."""
    table = Table(
        "8 ranks with torch are back after a kill in a small part of the time that they need by exec", "s"
    )
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        home = Path(folder)
        for name, command, ranks, rounds in (
            ("torch", TORCH, 8, 2),
            ("bare", BARE, 8, 5),
            ("bare", BARE, 64, 3),
        ):
            executed, _ = _lives(home, command, ranks, zygote="never", rounds=rounds)
            forked, first = _lives(home, command, ranks, zygote="always", rounds=rounds * 2)
            called = f"{ranks} ranks, {name}"
            table.add(f"{called}: killed → all ready, exec", executed)
            table.add(f"{called}: killed → all ready, fork", forked, f"{forked / executed:.3f} × exec")
            table.add(f"{called}: first life, fork", first, "with the making of the zygote")
        spawned = statistics.median(_spawn(home, 64) for _ in range(3))
        table.add("64 ranks, bare: posix_spawn", spawned)
    return table


def _lives(home: Path, command: list[str], ranks: int, *, zygote: str, rounds: int) -> tuple[float, float]:
    """Seconds from a kill to all ranks ready again, and from launch to all ranks ready."""
    marks = fresh_marks(home)
    restarts = Restarts(most=rounds, backoff_s=0, same_failure_max=0, failure_grace_s=0)
    launch = Launch(command=command, ranks=ranks, restarts=restarts, zygote=zygote)
    begun = time.perf_counter()
    job, launcher = start(home, launch, stderr=subprocess.DEVNULL)
    wait_ready(marks, ranks)
    first = time.perf_counter() - begun
    took = []
    for life in range(1, rounds + 1):
        state = job.state()
        assert state is not None
        victim = state.workers[ranks // 2][1]["pid"]
        begun = time.perf_counter()
        os.kill(victim, signal.SIGKILL)
        wait(lambda life=life: len(os.listdir(marks)) == ranks * (life + 1))  # type: ignore[misc]
        took.append(time.perf_counter() - begun)
    end(launcher)
    return statistics.median(took), first
