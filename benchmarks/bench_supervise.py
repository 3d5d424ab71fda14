"""What supervision does when something dies, and what it costs when nothing does.

Reaction is the time from `kill -9` to the moment that the agent wrote down, on the clock that both read. What is gone is timed from the
kill to the last death, seen through pidfds; its ranks have descendants that ignore SIGTERM, in sessions of their own.
"""

import json
import os
import select
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.gangs import RANK, end, fresh_marks, start, wait, wait_ready
from benchmarks.table import Table
from penstock.process import Job, JobState, Launch, Restarts

ROUNDS = 5
RANKS = 8
IDLE_S = 10.0
#: A rank, a deaf child, and a deaf child in a session of its own.
FAMILY = "trap '' TERM; sleep 1000 & setsid sleep 1000 & trap - TERM; touch $MARKS/$$; exec sleep 1000"


def run() -> Table:
    """Measure in one run."""
    table = Table("who dies is noticed in < 20 ms, and what belonged to it is gone within 1 s", "s")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        home = Path(folder)
        noticed, executed = _recover(home, "never")
        table.add("kill -9 of a rank → noticed", noticed)
        table.add("kill -9 of a rank → 8 ranks ready again, executed", executed)
        table.add("kill -9 of a rank → 8 ranks ready again, forked", _recover(home, "always")[1])
        for victim in ("rank", "agent", "keeper", "launcher"):
            took, count = _gone(home, victim)
            table.add(f"kill -9 of {victim} → the last of {count} gone", took)
        memory_mb, share = _idle(home)
        table.add(
            "keeper, agent and coordinator idle",
            IDLE_S,
            f"{memory_mb:.1f} MB PSS, {share:.3%} of a processor",
        )
    return table


def _state(job: Job) -> JobState:
    state = job.state()
    assert state is not None
    return state


def _recover(home: Path, zygote: str) -> tuple[float, float]:
    """Medians from the kill to its notice, and to eight ranks that are ready again."""
    marks = fresh_marks(home)
    restarts = Restarts(most=ROUNDS, backoff_s=0)
    job, launcher = start(
        home, Launch(command=RANK, ranks=RANKS, restarts=restarts, zygote=zygote), stderr=subprocess.DEVNULL
    )
    kills, took = [], []
    for life in range(1, ROUNDS + 1):
        wait_ready(marks, RANKS * life)
        victim = _state(job).gangs[0].workers[3]["pid"]
        begun = time.perf_counter()
        kills.append(time.clock_gettime(time.CLOCK_BOOTTIME))
        os.kill(victim, signal.SIGKILL)
        wait_ready(marks, RANKS * (life + 1))
        took.append(time.perf_counter() - begun)
    end(launcher)
    lines = map(json.loads, (job.directory / "journal.jsonl").read_text().splitlines())
    # Moments are written down in whole milliseconds.
    noticed = [line["failure"]["at_ms"] / 1000 for line in lines if line["event"] == "failed"]
    return statistics.median(
        max(0.0, at - kill) for at, kill in zip(noticed, kills, strict=True)
    ), statistics.median(took)


def _gone(home: Path, victim: str) -> tuple[float, int]:
    """From the kill to the last death among those who belong to the victim, and how many they are."""
    marks = fresh_marks(home)
    job, launcher = start(
        home, Launch(command=["bash", "-c", FAMILY], ranks=RANKS), stderr=subprocess.DEVNULL
    )
    wait_ready(marks, RANKS)
    wait(lambda: len(_marked(job, "rank-")) == 3 * RANKS)
    state = _state(job)
    numbers = {
        "rank": state.gangs[0].workers[3]["pid"],
        "agent": state.agent,
        "keeper": state.keeper,
        "launcher": launcher.pid,
    }
    family = _marked(job, "rank-3" if victim == "rank" else "rank-")
    watched = select.poll()
    for pid in family:
        watched.register(os.pidfd_open(pid), select.POLLIN)
    begun = time.perf_counter()
    os.kill(numbers[victim], signal.SIGKILL)
    left = len(family)
    while left:
        for number, _ in watched.poll(10_000):
            watched.unregister(number)
            os.close(number)
            left -= 1
    took = time.perf_counter() - begun
    launcher.wait(60)
    return took, len(family)


def _marked(job: Job, worker: str) -> list[int]:
    """Living processes that came from such workers of the job."""
    wanted = (b"PENSTOCK_JOB=" + job.id.encode(), b"PENSTOCK_WORKER=" + worker.encode())
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if wanted[0] in variables and any(variable.startswith(wanted[1]) for variable in variables):
            pids.append(int(entry.name))
    return pids


def _idle(home: Path) -> tuple[float, float]:
    """Memory in MB, and the share of a processor, while eight ranks sleep."""
    marks = fresh_marks(home)
    job, launcher = start(home, Launch(command=RANK, ranks=RANKS, zygote="never"), stderr=subprocess.DEVNULL)
    wait_ready(marks, RANKS)
    state = _state(job)
    pids = [state.keeper, state.agent, state.coordinator]
    before = sum(map(_ticks, pids))
    time.sleep(IDLE_S)
    used_s = (sum(map(_ticks, pids)) - before) / os.sysconf("SC_CLK_TCK")
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids]
    pss_kb = sum(int(line.split()[1]) for lines in rollups for line in lines if line.startswith("Pss:"))
    end(launcher)
    return pss_kb / 1024, used_s / IDLE_S


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
