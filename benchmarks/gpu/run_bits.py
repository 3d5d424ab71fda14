"""A run on one accelerator, killed again and again: is it bit-equal to one that was not, what does that cost, and how soon does it go on?

Three default runs and a deterministic one without kills; a deterministic one under `penstock run` that is killed with SIGKILL at random steps, once with
ranks that are executed and once with ranks forked from a warm Python. Run: `python -m benchmarks.gpu.run_bits OUT.json RECIPE.json REGISTRY`; with
`killed` behind it, without the default runs, for a machine that is lent for minutes.
"""

import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.process.job.catalogue import Job
from penstock.process.job.launch import Launch, Restarts, agent_path, prepare
from penstock.report import ledger
from penstock.run.journal import step_records as records
from penstock.run.proof.proof import differences, prove

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "benchmarks/gpu/bits_program.py"
STEPS, KILLS, PATIENCE_S = 120, 5, 240.0
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def command(arguments: list[str], out: Path, deterministic: str) -> list[str]:
    """What is started."""
    return [sys.executable, str(PROGRAM), *arguments, str(out), str(STEPS), deterministic]


def whole(arguments: list[str], out: Path, deterministic: str) -> dict[str, Any]:
    """A run without kills: its last digests and how long steps took."""
    subprocess.run(
        command(arguments, out, deterministic),
        env={**os.environ, **ENVIRONMENT},
        check=True,
        timeout=PATIENCE_S,
    )
    return described(out)


def described(out: Path) -> dict[str, Any]:
    """The end of a run, and its usual step."""
    steps = records.read(out)
    last = steps[STEPS - 1].ranks[0]
    ends = [step.ranks[0].ended for step in steps.values()]
    gaps = [after - before for before, after in itertools.pairwise(ends[20:])]
    return {
        "parameters": last.parameters,
        "loss bits": last.loss_bits,
        "ms a step": 1000 * statistics.median(gaps),
    }


def killed(arguments: list[str], out: Path, home: Path, *, zygote: str) -> dict[str, Any]:
    """A supervised run that is killed at random steps; how soon it went on each time."""
    wish = Launch(
        command=command(arguments, out, "yes"),
        restarts=Restarts(most=KILLS + 2, backoff_s=0, same_failure_max=0),
        zygote=zygote,
        preload=["torch", "torch._dynamo", "torch.distributed", "penstock.run", "penstock.torch"]
        if zygote == "always"
        else [],
    )
    home.mkdir(parents=True)
    job = prepare(home, wish)
    launcher = subprocess.Popen(
        [agent_path(), "launch", job.directory],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.DEVNULL,
    )
    draw = random.Random(7)
    kills, hows = [], []
    for life in range(KILLS):
        wanted = 8 + life * 18 + draw.randrange(16)
        _wait_step(out, life, wanted, launcher)
        state = job.state()
        assert state is not None
        worker = state.gangs[0].workers[0]
        hows.append(worker["how"])
        kills.append(time.time())
        os.kill(worker["pid"], signal.SIGKILL)
    assert launcher.wait(PATIENCE_S) == 0, "the job succeeded"
    return {**described(out), "kills": KILLS, "how": sorted(set(hows)), **_recovery(out, kills, job)}


def _recovery(out: Path, kills: list[float], job: Job) -> dict[str, Any]:
    lives = list(records.lives(out))
    gone_on = [
        next(moment.at for moment in life.moments if moment.kind == "step") - at
        for life, at in zip(lives[1:], kills, strict=False)
    ]
    rank = ledger(out).ranks[0]
    state = job.state()
    assert state is not None
    return {
        "kill to next step s": [round(seconds, 3) for seconds in gone_on],
        "lost steps": [life.lost_steps for life in rank.lives],
        "account s": {name: round(ns / 1e9, 3) for name, ns in rank.accounts.items() if ns},
        "wall s": round(rank.wall / 1e9, 3),
        "zygote": state.gangs[0].zygote,
    }


def _wait_step(out: Path, life: int, step: int, launcher: "subprocess.Popen[bytes]") -> None:
    """Until a life has come so far."""
    path = out / records.FOLDER / f"{life:06d}-0000.rec"
    until = time.monotonic() + PATIENCE_S
    while True:
        lives = (
            [record for record in records.lives(out) if record.incarnation == life] if path.exists() else []
        )
        if lives and max(lives[0].steps, default=-1) >= step:
            return
        if time.monotonic() > until or launcher.poll() is not None:
            launcher.kill()
            raise TimeoutError(f"life {life} did not come to step {step}")
        time.sleep(0.01)


def main() -> None:
    """Measure and write."""
    out, arguments = Path(sys.argv[1]), sys.argv[2:4]
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        place = Path(folder)
        numbers = () if "killed" in sys.argv[4:] else (1, 2, 3)
        rows = {f"default {number}": ("no", place / f"default-{number}") for number in numbers}
        for name, (deterministic, where) in {**rows, "deterministic": ("yes", place / "whole")}.items():
            report[name] = whole(arguments, where, deterministic)
            _tell(out, report, name)
        for zygote in ("never", "always"):
            name = f"deterministic, killed, zygote {zygote}"
            report[name] = killed(arguments, place / zygote, place / f"home-{zygote}", zygote=zygote)
            report[name]["differences"] = [
                difference.sentence for difference in differences(place / "whole", place / zygote)
            ][:5]
            _tell(out, report, name)
        proof = prove(place / "never", steps=(0, 100))
        shown = proof.to_json() | {
            "differences": [difference.sentence for difference in proof.differences[:5]]
        }
        report["proof of the killed run"] = shown | {"directory": "never"}
        _tell(out, report, "proof of the killed run")


def _tell(out: Path, report: dict[str, Any], name: str) -> None:
    print(name, json.dumps(report[name]), flush=True)
    out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
