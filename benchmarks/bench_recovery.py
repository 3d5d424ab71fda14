"""How soon a gang makes its next optimizer step after one of its ranks was killed with SIGKILL, and how many steps it had to make again.

Four torch ranks with DDP on gloo train the same small model, saved every ten steps: in a run under `penstock run`, with ranks forked from a warm Python and with
ranks that are executed, and as a loop with DCP and torchdata's StatefulDataLoader under torchrun. Measured from the kill to the
moment when the slowest rank has finished its first step.
"""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import penstock as ps
from benchmarks.recovery_program import LENGTH, ROWS, VOCABULARY
from benchmarks.table import Table
from penstock.data.recipe.document import written
from penstock.process import Launch, Restarts, prepare
from penstock.process.job.launch import agent_path

RANKS, KILLS, PATIENCE_S = 4, 4, 120.0
PROGRAM = Path(__file__).with_name("recovery_program.py")
PRELOAD = ["torch", "torch._dynamo", "torch.distributed", "penstock.run", "penstock.torch"]
#: Steps of a life before it is killed; no multiple of what lies between two checkpoints.
BEFORE_KILL = 17


def run() -> Table:
    """Measure in one run."""
    table = Table(
        "kill -9 of a rank → next step of all 4 ranks < 1.0 s, ranks forked from a warm Python", "s"
    )
    contenders: dict[str, Callable[[Path], subprocess.Popen[bytes]]] = {
        "penstock run, ranks forked": lambda place: _penstock(place, "always"),
        "penstock run, ranks executed": lambda place: _penstock(place, "never"),
        "torchrun, DCP, StatefulDataLoader": _torchrun,
    }
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        _prepare(Path(folder) / "data")
        for name, begin in contenders.items():
            place = Path(folder) / "place"
            shutil.copytree(Path(folder) / "data", place)
            (place / "marks").mkdir()
            try:
                took, lost = _measure(place, begin)
            except TimeoutError as late:
                table.add(name, PATIENCE_S, f"given up: {late}")
                continue
            finally:
                shutil.rmtree(place, ignore_errors=True)
            steps = f"{statistics.mean(lost):.1f} steps made again"
            table.add(name, statistics.median(took), f"{min(took):.2f} to {max(took):.2f} s, {steps}")
    return table


def _measure(
    place: Path, begin: Callable[[Path], "subprocess.Popen[bytes]"]
) -> tuple[list[float], list[int]]:
    launcher = begin(place)
    took, lost = [], []
    draw = random.Random(3)
    try:
        for life in range(KILLS):
            _wait(place, life, BEFORE_KILL, launcher)
            reached = max(_steps(place, life, rank)[-1][0] for rank in range(RANKS))
            at = time.time()
            os.kill(_pids(place, launcher.pid)[draw.randrange(RANKS)], signal.SIGKILL)
            _wait(place, life + 1, 1, launcher)
            firsts = [_steps(place, life + 1, rank)[0] for rank in range(RANKS)]
            took.append(max(when for _, when in firsts) - at)
            lost.append(max(0, reached + 1 - firsts[0][0]))
    finally:
        launcher.terminate()
        launcher.wait(PATIENCE_S)
    return took, lost


def _penstock(place: Path, zygote: str) -> "subprocess.Popen[bytes]":
    wish = Launch(
        command=[sys.executable, str(PROGRAM), "ours", str(place)],
        ranks=RANKS,
        restarts=Restarts(most=KILLS + 1, backoff_s=0, same_failure_max=0, stop_grace_s=0.5),
        zygote=zygote,
        preload=PRELOAD if zygote == "always" else [],
    )
    job = prepare(place / "home", wish)
    # Ranks that lost a peer say so at length.
    return subprocess.Popen(
        [agent_path(), "launch", job.directory], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _torchrun(place: Path) -> "subprocess.Popen[bytes]":
    options = ["--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", str(KILLS + 1)]
    words = [sys.executable, "-m", "torch.distributed.run", *options, str(PROGRAM), "theirs", str(place)]
    # As it is, ranks of a new life find the addresses of the killed one in the store that they share, and never meet again.
    variables = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)


def _prepare(place: Path) -> None:
    """Tokens for both."""
    place.mkdir()
    draw = random.Random(1)
    words = [" ".join(str(draw.randrange(1000)) for _ in range(400)) for _ in range(2000)]
    (place / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in words))
    vocabulary = {str(number): number for number in range(1000)} | {"?": 1000}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(place / "tokenizer.json"))
    registry = ps.Registry(place / "registry")
    registry.register("text", place / "text.jsonl")
    recipe = ps.Recipe(
        sources=(ps.Source("text@1"),),
        batch=ROWS,
        stages=(ps.Tokenize(str(place / "tokenizer.json")), ps.Pack(LENGTH + 1)),
    )
    ps.batch_at(recipe, step=0, registry=registry)
    (place / "recipe.json").write_bytes(msgspec.json.encode(written(recipe)))
    torch.save(torch.randint(0, VOCABULARY, (4000, LENGTH + 1)), place / "tokens.pt")


def _steps(place: Path, life: int, rank: int) -> list[tuple[int, float]]:
    """Steps of a life that a rank has finished, and when."""
    path = place / "marks" / f"{rank}.txt"
    lines = [line.split() for line in path.read_text().splitlines() if line] if path.exists() else []
    return [
        (int(fields[1]), float(fields[2])) for fields in lines if len(fields) == 3 and int(fields[0]) == life
    ]


def _wait(place: Path, life: int, count: int, launcher: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE_S
    while min(len(_steps(place, life, rank)) for rank in range(RANKS)) < count:
        if time.monotonic() > until or launcher.poll() is not None:
            raise TimeoutError(f"life {life} did not come to {count} steps")
        time.sleep(0.01)


def _pids(place: Path, root: int) -> list[int]:
    """The processes of the ranks: as the job says, or found among the descendants of torchrun."""
    for state in place.glob("home/jobs/*/state.json"):
        (gang,) = json.loads(state.read_text())["gangs"]
        return [worker["pid"] for worker in gang["workers"]]
    pids: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ours = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
        if b"RANK" in ours and _descends(int(entry.name), root):
            # Helpers of a rank have its variables too; they are younger.
            number = int(ours[b"RANK"])
            pids[number] = min(pids.get(number, 1 << 30), int(entry.name))
    return [pids[number] for number in sorted(pids)]


def _descends(pid: int, root: int) -> bool:
    for _ in range(8):
        if pid == root:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False
