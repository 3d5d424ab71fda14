"""Ranks on an accelerator, executed and forked from a warm Python: does CUDA work in a fork, and how soon do all ranks compute?

Eight ranks import torch, multiply on the device and say so; one is killed, and all say so again. Rank 0 compiles a function for the device in
its first life. Only the agent and the standard library are needed. Run: `python -m benchmarks.gpu.zygote OUT.json`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TREE = Path(__file__).parents[2] / "python/penstock/process"
RANKS = 8
PATIENCE_S = 180.0
RANK = """
import os, signal, time
begun = time.time()
import torch, torch.distributed as dist
life, rank = os.environ["PENSTOCK_INCARNATION"], os.environ["RANK"]
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == int(os.environ["WORLD_SIZE"])
x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
y = (x @ x).float().sum().item()
assert y == y
if rank == "0" and life == "0":
    compiled = torch.compile(lambda v: torch.relu(v) * 2 + 1)
    assert torch.equal(compiled(x), torch.relu(x) * 2 + 1)
with open(f"{os.environ['MARKS']}/{life}-{rank}.new", "w") as mark:
    mark.write(str(time.time() - begun))
os.rename(mark.name, mark.name[:-4])
if life == "2":
    dist.destroy_process_group()
else:
    signal.pause()
"""


def measure(home: Path, *, forked: bool) -> dict[str, Any]:
    """Seconds from launch to all ranks computing, and from a kill to all ranks computing again, twice."""
    shutil.rmtree(home, ignore_errors=True)
    for name in ("logs", "incidents", "marks"):
        (home / "job" / name).mkdir(parents=True)
    script = home / "rank.py"
    script.write_text(RANK)
    warm = {
        "interpreter": sys.executable,
        "entry": str(TREE / "zygote/__main__.py"),
        "preload": ["torch", "torch._dynamo", "torch.distributed"],
        "argv": [str(script)],
        "module": False,
    }
    policy = {
        "restart": "gang",
        "budget": {"crash": 2, "memory": 2, "hang": 2, "preemption": 2},
        "refill_steps": 0,
        "backoff_ms": 0,
        "backoff_max_ms": 0,
        "same_failure_max": 0,
        "stop_grace_ms": 5000,
        "failure_grace_ms": 100,
        "hang": None,
    }
    role = {
        "name": "rank",
        "kind": "gang",
        "command": [sys.executable, str(script)],
        "ranks": RANKS,
        "zygote": warm if forked else None,
        "policy": policy,
    }
    job = {"id": "job", "detached": False, "colour": False, "cgroup": False, "directory": str(home)}
    (home / "job/job.json").write_text(json.dumps({**job, "roles": [role]}))
    marks = home / "job/marks"
    begun = time.time()
    launcher = subprocess.Popen(
        [TREE / "bin/penstock-agent", "launch", home / "job"],
        env={**os.environ, "MARKS": str(marks)},
    )
    took = [_wait(marks, 0, launcher) - begun]
    for life in (1, 2):
        state = json.loads((home / "job/state.json").read_text())
        killed = time.time()
        os.kill(state["gangs"][0]["workers"][3]["pid"], signal.SIGKILL)
        took.append(_wait(marks, life, launcher) - killed)
    code = launcher.wait(PATIENCE_S)
    state = json.loads((home / "job/state.json").read_text())
    own = [float(path.read_text()) for path in sorted(marks.glob("2-*"))]
    return {
        "first_s": took[0],
        "again_s": took[1:],
        "own_first_line_to_computed_s": [min(own), max(own)],
        "code": code,
        "how": sorted({worker["how"] for worker in state["gangs"][0]["workers"]}),
        "zygote": state["gangs"][0]["zygote"],
    }


def _wait(marks: Path, life: int, launcher: "subprocess.Popen[bytes]") -> float:
    until = time.monotonic() + PATIENCE_S
    while len([path for path in marks.glob(f"{life}-*") if path.suffix != ".new"]) < RANKS:
        if time.monotonic() > until or launcher.poll() is not None:
            launcher.kill()
            raise TimeoutError(f"life {life} did not compute")
        time.sleep(0.002)
    return time.time()


def main() -> None:
    """Measure both ways, in one run."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        report = {
            name: measure(Path(folder) / name, forked=name == "forked") for name in ("executed", "forked")
        }
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
