"""How many seconds a real deadlock takes to be named, and whether anything is named that is none.

Ten programs that hang and ten that only seem to, all at once, under the default rule with one restart; the limits are the real ones, so
this takes three minutes. Seconds are counted from the last step of the rank that is furthest behind to the entry of the journal.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hang_programs import HANGS, HANGS_TAIL, HEAD, STALLS, STALLS_TAIL
from benchmarks.table import Table

PATIENCE_S = 420.0
#: How long what only seems to hang is held from outside.
HELD_S = 80.0
TRACER = """
import ctypes, os, sys, time
libc, pid = ctypes.CDLL(None), int(sys.argv[1])
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
assert libc.ptrace(16, pid, None, None) == 0
os.waitpid(pid, 0x40000000)
time.sleep(float(sys.argv[2]))
libc.ptrace(17, pid, None, None)
"""


@dataclass
class Trial:
    """A job that was started, and what it is expected to do."""

    name: str
    home: Path
    launcher: "subprocess.Popen[bytes]"
    deed: str = ""

    @property
    def directory(self) -> Path:
        """Of its only job."""
        return next(iter((self.home / "jobs").iterdir()))

    def state(self) -> dict[str, object]:
        """What the agent says."""
        state: dict[str, object] = json.loads((self.directory / "state.json").read_text())
        return state


def run() -> Table:
    """Measure in one run."""
    table = Table("a real deadlock is named within 75 s by the default rule; of ten stalls none is", "s")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        place = Path(folder)
        hangs = [
            _start(place, name, HEAD + text + HANGS_TAIL, "--ranks", str(ranks), "--restarts", "1")
            for name, (text, ranks, _) in HANGS.items()
        ]
        chosen = _start(
            place, "gloo with --hang 10", HEAD + HANGS[_FIRST][0] + HANGS_TAIL, "--ranks", "2", "--restarts", "1",
            "--hang", "10",
        )  # fmt: skip
        stalls = [
            _start(place, name, HEAD + text + STALLS_TAIL, "--ranks", "2", "--restarts", "1", deed=deed)
            for name, (text, deed) in STALLS.items()
        ]
        threads = [threading.Thread(target=_disturb, args=(trial,)) for trial in stalls if trial.deed]
        for thread in threads:
            thread.start()
        for trial, (_, _, rank) in [*zip(hangs, HANGS.values(), strict=True), (chosen, HANGS[_FIRST])]:
            _report(table, trial, rank)
        for thread in threads:
            thread.join()
        wrong = [trial.name for trial in stalls if not _is_healthy(trial)]
        healthy = float(len(stalls) - len(wrong))
        table.add(f"of {len(stalls)} stalls, a number: not taken for hangs", healthy, "; ".join(wrong))
    return table


_FIRST = next(iter(HANGS))


def _start(place: Path, name: str, text: str, *words: str, deed: str = "") -> Trial:
    home = place / "".join(letter if letter.isalnum() else "-" for letter in name)
    (home / "marks").mkdir(parents=True)
    (home / "program.py").write_text(text)
    variables = {
        **os.environ,
        "PENSTOCK_HOME": str(home),
        "MARKS": str(home / "marks"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "penstock.cli.main", "run", *words, "--", str(home / "program.py")]
    output = subprocess.PIPE if deed == "unread" else subprocess.DEVNULL
    launcher = subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL
    )
    return Trial(name, home, launcher, deed)


def _disturb(trial: Trial) -> None:
    """Holds a job from outside for a while, when all of its ranks stand."""
    _wait(lambda: len(_pids(trial)) == 2 and _steps(trial) >= 20, trial)
    if trial.deed == "stop":
        pids = _pids(trial)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(HELD_S)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    elif trial.deed == "agent":
        agent = trial.state()["agent"]
        assert isinstance(agent, int)
        os.kill(agent, signal.SIGSTOP)
        time.sleep(HELD_S)
        os.kill(agent, signal.SIGCONT)
    elif trial.deed == "trace":
        subprocess.run([sys.executable, "-c", TRACER, str(_pids(trial)[1]), str(HELD_S)], check=True)
    else:
        time.sleep(HELD_S)
    (trial.home / "marks" / "go").touch()


def _pids(trial: Trial) -> list[int]:
    try:
        gangs = trial.state()["gangs"]
    except (OSError, StopIteration, ValueError):
        return []
    assert isinstance(gangs, list)
    return [worker["pid"] for worker in gangs[0]["workers"]]


def _steps(trial: Trial) -> int:
    from penstock.process.watch.pulse_file import read

    return min((pulse.steps if pulse else 0 for pulse in read(str(trial.directory / "pulses"))), default=0)


def _wait(condition: Callable[[], bool], trial: Trial) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(trial.name)
        time.sleep(0.2)


def _report(table: Table, trial: Trial, rank: int | None) -> None:
    """How long it took, and whether the right one was named."""
    try:
        trial.launcher.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        trial.launcher.terminate()
        trial.launcher.wait()
        table.add(trial.name, PATIENCE_S, "not named")
        return
    entries = map(json.loads, (trial.directory / "journal.jsonl").read_text().splitlines())
    failure = next(entry["failure"] for entry in entries if entry["event"] == "failed")
    about = json.loads((trial.directory / "incidents" / "0.json").read_text())
    last_ms = max(entry["pulse"]["step_at_ms"] for entry in about["ranks"])
    named = failure["what"].split(" hang")[0]
    wrong = "" if failure["rank"] == rank else f", not rank {rank}"
    table.add(
        trial.name, (failure["at_ms"] - last_ms) / 1000, f"{named}{wrong}; exit {trial.launcher.returncode}"
    )


def _is_healthy(trial: Trial) -> bool:
    out, _ = trial.launcher.communicate(timeout=PATIENCE_S)
    state = trial.state()
    shown = trial.deed != "unread" or out.count(b"y") >= 2 * 80 * 65535
    return trial.launcher.returncode == 0 and state["incidents"] == [] and shown
