"""How long it takes to see where 64 ranks are, and what a pulse costs.

The ranks are forked from one process that has imported torch (any Python where there is none), so that they have the libraries of
real ranks. The command's own start-up counts.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.table import Table, best_of, timed
from penstock.process.watch.pulse_file import FORM, HEADER, MAGIC, SLOT_BYTES

RANKS = 64
ROUNDS = 3
#: Forks the ranks; every eighth is elsewhere, as in a hang.
WARM = """
import os, signal, sys, threading, time
try:
    import torch, torch.distributed
except ImportError:
    pass
def wait_for_data():
    time.sleep(100000)
def all_reduce():
    threading.Event().wait()
def train(rank):
    threading.Thread(target=threading.Event().wait, daemon=True, name="loader").start()
    wait_for_data() if rank % 8 == 3 else all_reduce()
pids = []
for rank in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        train(rank)
    pids.append(pid)
print(*pids, flush=True)
signal.pause()
"""
PULSES = """
import time
from penstock.process import pulse
pulse(0)
begun = time.perf_counter()
for step in range(200_000):
    pulse(step)
print((time.perf_counter() - begun) / 200_000)
"""


def run() -> Table:
    """Measure in one run."""
    table = Table(
        f"stacks of {RANKS} torch ranks < 2 s, with native frames < 6 s; a pulse in microseconds", "s"
    )
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        room = Path(folder)
        warm = subprocess.Popen(
            [sys.executable, "-c", WARM, str(RANKS)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert warm.stdout is not None
            pids = [int(word) for word in warm.stdout.readline().split()]
            _describe(room, pids)
            table.add("py-spy dump, one rank after the other", timed(lambda: list(map(_spy, pids))))
            table.add("penstock stacks, Python", best_of(lambda: _stacks(room, "no"), rounds=ROUNDS))
            table.add(
                "penstock stacks, native of one of each group",
                best_of(lambda: _stacks(room, "one"), rounds=ROUNDS),
            )
            table.add("penstock stacks, native of all", timed(lambda: _stacks(room, "all")))
        finally:
            os.killpg(warm.pid, signal.SIGKILL)
            warm.wait()
        table.add("one pulse", _pulse(room))
    return table


def _describe(room: Path, pids: list[int]) -> None:
    workers = [{"rank": rank, "pid": pid, "exit": None} for rank, pid in enumerate(pids)]
    gang: dict[str, Any] = {
        "role": "rank",
        "kind": "gang",
        "phase": "running",
        "reason": "",
        "incarnation": 0,
        "zygote": "",
    }
    gang |= {"master_port": 0, "workers": workers, "failures": []}
    state: dict[str, Any] = {
        "job": "bench",
        "phase": "running",
        "reason": "",
        "exit_code": None,
        "started_at": 0.0,
    }
    state |= {"ended_at": None, "keeper": 0, "agent": 0, "coordinator": 0, "zygote": 0, "cgroup": None}
    state |= {"gangs": [gang], "incidents": [], "log_lost_bytes": 0}
    (room / "state.json").write_text(json.dumps(state))
    (room / "job.json").write_text(json.dumps({"roles": [{"name": "rank", "ranks": len(pids)}]}))


def _spy(pid: int) -> None:
    from penstock.process.stacks.py_spy import spy_path

    subprocess.run([spy_path(), "dump", "--json", "--pid", str(pid)], check=True, stdout=subprocess.DEVNULL)


def _stacks(room: Path, native: str) -> None:
    words = ["-m", "penstock.process.stacks", str(room), "--json", "--native", native, "--deadline", "120"]
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True)
    answer = json.loads(done.stdout)
    seen = sum(len(group["workers"]) for group in answer["groups"] if group["threads"])
    assert (seen, len(answer["groups"])) == (RANKS, 2), answer["groups"]


def _pulse(room: Path) -> float:
    (room / "pulses").write_bytes(HEADER.pack(MAGIC, FORM, 1).ljust(2 * SLOT_BYTES, b"\0"))
    environment = {**os.environ, "PENSTOCK_PULSES": f"{room / 'pulses'}:0"}
    done = subprocess.run(
        [sys.executable, "-c", PULSES], env=environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout)
