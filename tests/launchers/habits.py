"""Programs and habits that people have, under `torchrun` and under `penstock run`: the same program, the same hands, outcomes side by side.

A habit is a small program, what a person does while it runs, and a sentence made from what is left: marks that ranks wrote, the exit code,
and processes that outlived the launcher.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.state.ranks.clock import Clock

Launcher = Literal["torchrun", "penstock run"]
LAUNCHERS: tuple[Launcher, ...] = ("torchrun", "penstock run")
PATIENCE_S = 120.0
LOOK_S = 0.02
#: What every program begins with: ranks write down how far they came.
PRELUDE = """
import atexit, os, sys, time
rank = int(os.environ["RANK"])
def mark(word, text=""):
    with open(f"{os.environ['MARKS']}/{rank}.{word}", "w") as file:
        file.write(text or str(os.getpid()))
"""


@dataclass(frozen=True)
class Started:
    """A launcher that runs."""

    process: "subprocess.Popen[str]"
    marks: Path

    def wait_marks(self, word: str, ranks: int = 2) -> list[int]:
        """The processes of all ranks, once each has come so far."""
        until = time.monotonic() + PATIENCE_S
        while len(paths := sorted(self.marks.glob(f"*.{word}"))) < ranks:
            assert time.monotonic() < until, (
                f"no {word}: {sorted(path.name for path in self.marks.iterdir())}"
            )
            assert self.process.poll() is None or len(list(self.marks.glob(f"*.{word}"))) >= ranks, word
            Clock().pause(LOOK_S)
        Clock().pause(LOOK_S)
        return [int(path.read_text()) for path in paths]

    def signal_group(self, number: int) -> None:
        """As a terminal does: to the launcher and whoever is in its group."""
        os.killpg(self.process.pid, number)


@dataclass(frozen=True)
class Ended:
    """What is left of it."""

    code: int
    marks: dict[str, str]
    out: str
    err: str
    survivors: int

    def words(self) -> str:
        """What both ranks, or one of them, did."""
        done = sorted({name.partition(".")[2] for name in self.marks} - {"ready"})
        shown = []
        for word in done:
            ranks = [name[0] for name in self.marks if name.endswith(f".{word}")]
            shown.append(word if len(ranks) == 2 else f"{word} on rank {', '.join(sorted(ranks))} only")
        return ", ".join(shown) or "nothing"

    def ending(self) -> str:
        """How the launcher ended, and whether anybody outlived it."""
        how = f"signal {-self.code}" if self.code < 0 else f"exit {self.code}"
        return how if not self.survivors else f"{how}, {self.survivors} processes left"


def usual(ended: Ended) -> str:
    """What most habits leave."""
    return f"{ended.words()}; {ended.ending()}"


@dataclass(frozen=True)
class Habit:
    """A program and what a person does with it."""

    name: str
    program: str
    #: Why the outcomes differ, where they do.
    why: str = ""
    act: Callable[[Started], None] = field(default=lambda _: None)
    tell: Callable[[Ended], str] = usual
    #: Options of `penstock run` that belong to it.
    options: Sequence[str] = ()
    #: Words before the launcher, as `nohup`.
    before: Sequence[str] = ()
    given: str | None = None
    #: Whether it needs a framework, so that it takes seconds to begin.
    is_heavy: bool = False


def outcome(habit: Habit, launcher: Launcher, folder: Path) -> str:
    """Run it once; what came of it."""
    marks = folder / "marks"
    marks.mkdir(parents=True)
    script = folder / "program.py"
    script.write_text(PRELUDE + habit.program)
    words = {
        "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
        "penstock run": ["-m", "penstock.cli.main", "run", "--ranks", "2", *habit.options],
    }[launcher]
    variables = {
        **os.environ,
        "MARKS": str(marks),
        "PENSTOCK_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
    }
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    if habit.name == ENVIRONMENT:
        del variables["OMP_NUM_THREADS"]
    process = subprocess.Popen(
        [*habit.before, sys.executable, *words, str(script)],
        env=variables,
        cwd=folder,
        stdin=subprocess.DEVNULL if habit.given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        habit.act(Started(process, marks))
        out, err = process.communicate(habit.given, timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
    survivors = _survivors(marks)
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    texts = {path.name: path.read_text() for path in marks.iterdir()}
    return habit.tell(Ended(process.returncode, texts, out, err, len(survivors)))


def _survivors(marks: Path) -> list[int]:
    """Processes that carry the marks a second after the launcher is gone."""
    mark, until = b"MARKS=" + os.fsencode(marks), time.monotonic() + 1.0
    while True:
        pids = []
        for entry in Path("/proc").iterdir():
            try:
                is_ours = entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if is_ours:
                pids.append(int(entry.name))
        if not pids or time.monotonic() > until:
            return pids
        Clock().pause(LOOK_S)


def _interrupt(started: Started) -> None:
    started.wait_marks("ready")
    started.signal_group(signal.SIGINT)


def _hang_up(started: Started) -> None:
    started.wait_marks("ready")
    started.signal_group(signal.SIGHUP)


def _pause(started: Started) -> None:
    held = started.wait_marks("ready")[1]
    os.kill(held, signal.SIGSTOP)
    Clock().pause(3.0)
    os.kill(held, signal.SIGCONT)


def _hold_with_gdb(started: Started) -> None:
    held = started.wait_marks("ready")[1]
    subprocess.run(
        ["gdb", "--batch", "-nx", "-p", str(held), "-ex", "shell sleep 3"],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )


def _blamed(ended: Ended) -> str:
    """Whom the launcher names first."""
    if "Root Cause (first observed failure)" in ended.err:
        rank = ended.err.partition("Root Cause (first observed failure)")[2].partition("rank      : ")[2][:1]
    else:
        rank = ended.err.partition("error: rank ")[2][:1]
    return f"rank {rank or '?'} is named; {ended.ending()}"


def _texts(word: str) -> Callable[[Ended], str]:
    def tell(ended: Ended) -> str:
        by_rank = {name[0]: text for name, text in ended.marks.items() if name.endswith(f".{word}")}
        texts = [f"rank {rank}: {by_rank[rank]}" for rank in sorted(by_rank)]
        alike = len(set(by_rank.values())) == 1 and len(by_rank) == 2
        return f"{'both ranks: ' + next(iter(by_rank.values())) if alike else '; '.join(texts)}; {ended.ending()}"

    return tell


ENVIRONMENT = "thread counts set in `os.environ` before the import"
_STEPS = """
from penstock.process import phase, pulse
mark("ready")
for step in range(20):
    pulse(step)
    time.sleep(0.05)
"""
HABITS = (
    Habit(
        "`except KeyboardInterrupt: save`, and Ctrl-C",
        """
atexit.register(mark, "atexit")
try:
    mark("ready")
    time.sleep(100)
except KeyboardInterrupt:
    mark("saved")
    raise
finally:
    mark("finally")
""",
        act=_interrupt,
        why="Ranks get the same signal and have the same time. `penstock run` exits as a shell expects of Ctrl-C; torchrun ends with an error of its own.",
    ),
    Habit(
        "`nohup`, and the end of the ssh session",
        "mark('ready')\ntime.sleep(1.5)\nmark('finished')\n",
        act=_hang_up,
        before=("nohup",),
        why="torchrun handles SIGHUP even where `nohup` asked for it to be ignored, and ends the run.",
    ),
    Habit(
        "a pipeline into the launcher; rank 0 is the later one to read",
        "time.sleep(0 if rank else 0.5)\nmark('read', f'{len(sys.stdin.read().split())} numbers')\n",
        given="1\n2\n3\n",
        options=("--stdin", "0"),
        tell=_texts("read"),
        why="Under torchrun ranks share one input, and whoever reads first takes what it gets. With `--stdin 0` it is rank 0's; without, nobody's, and a note says so.",
    ),
    Habit(
        "DDP: rank 1 raises, and takes a second to exit",
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if rank == 1:
    atexit.register(time.sleep, 1)
    dist.destroy_process_group()
    raise ValueError("the first cause")
dist.all_reduce(torch.ones(1))
""",
        tell=_blamed,
        is_heavy=True,
        why="The rank whose traceback came first is the cause; a broken connection is an effect. torchrun names whoever exits first.",
    ),
    Habit(
        "loader workers",
        """
import torch
from torch.utils.data import DataLoader
total = sum(int(batch.sum()) for batch in DataLoader(torch.arange(64), batch_size=4, num_workers=2))
mark("total", str(total))
""",
        tell=_texts("total"),
        is_heavy=True,
    ),
    Habit(
        ENVIRONMENT,
        """
os.environ.update({"OMP_NUM_THREADS": "2"})
import torch
mark("threads", f"{torch.get_num_threads()} threads")
""",
        tell=_texts("threads"),
        is_heavy=True,
    ),
    Habit(
        "background commands that nobody waits for",
        """
import glob
for _ in range(20):
    os.system("sleep 0.01 &")
time.sleep(1)
def is_zombie_of_mine(path):
    fields = open(path).read().rpartition(")")[2].split()
    return fields[0] == "Z" and int(fields[1]) == os.getpid()
zombies = 0
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        zombies += is_zombie_of_mine(path)
    except OSError:
        pass
mark("zombies", f"{zombies} zombies")
""",
        tell=_texts("zombies"),
    ),
    Habit(
        "a stall of 14 s in the loop (evaluation, a slow disk)",
        _STEPS + "time.sleep(14)\npulse(20)\nmark('finished')\n",
    ),
    Habit(
        "15 s of work after the last step (export)",
        _STEPS + "time.sleep(15)\nmark('finished')\n",
    ),
    Habit(
        "one rank stopped and continued (SIGSTOP, SIGCONT)",
        _STEPS + "time.sleep(4)\nmark('finished')\n",
        act=_pause,
    ),
    Habit(
        "one rank held by gdb",
        _STEPS + "time.sleep(4)\nmark('finished')\n",
        act=_hold_with_gdb,
    ),
    Habit(
        "JAX, two processes that meet",
        """
import socket
place = f"{os.environ['MARKS']}/address"
if rank == 0:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(place + ".new", "w") as file:
        file.write(f"127.0.0.1:{port}")
    os.rename(place + ".new", place)
while not os.path.exists(place):
    time.sleep(0.01)
import jax
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(open(place).read(), num_processes=2, process_id=rank)
from jax.experimental import multihost_utils
found = multihost_utils.process_allgather(jax.numpy.ones(1) * (rank + 1))
os.unlink(place) if rank == 0 else None
mark("sum", f"sum {float(found.sum())}")
jax.distributed.shutdown()
""",
        tell=_texts("sum"),
        is_heavy=True,
    ),
)
