"""Whoever failed first is named, whoever exits first; and what counts as the same failure, or as being sent away."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.state.ranks.clock import Clock
from tests.process.jobs import PATIENCE_S, Running, penstock

Run = Callable[..., Running]
#: With torch.
SLOW_S = 120.0
#: Rank 1 raises, closes its connections while it ends, and needs a second for that; the others lose a peer at once.
RAISES = """
import atexit, os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def close():
    dist.destroy_process_group()
    time.sleep(1)

if rank == 1:
    atexit.register(close)
total = torch.ones(4)
dist.all_reduce(total)
if rank == 1:
    raise ValueError("no layer 7")
while True:
    dist.all_reduce(total)
"""


def incident(running: Running, number: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((running.job.directory / f"incidents/{number}.json").read_text())
    return document


def finished(running: Running, patience_s: float = PATIENCE_S) -> tuple[int, str]:
    """Exit code and standard error of a foreground job."""
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=patience_s)
    return running.launcher.returncode, err.decode()


def test_a_rank_that_raised_and_ends_slowly_is_named_and_its_peers_connection_errors_are_effects(
    run: Run, tmp_path: Path
) -> None:
    """Goal: blame. Method: a real gang of torch whose peers are gone a second before the rank that failed."""
    (tmp_path / "train.py").write_text(RAISES)
    running = run("--ranks", "3", str(tmp_path / "train.py"))
    code, err = finished(running, SLOW_S)

    assert code == 1
    about = incident(running)
    assert (about["rank"], about["cause"]) == (1, "crash")
    assert about["first_cause"].startswith("rank 1 ")
    assert about["first_cause"].endswith("ValueError: no layer 7")
    first, *others = about["ranks"]
    assert (first["rank"], first["part"], first["error"]) == (1, "cause", "ValueError: no layer 7")
    assert {rank["part"] for rank in others} <= {"effect", "bystander"}
    assert "effect" in {rank["part"] for rank in others}
    assert first["failed_ms"] <= min(rank["exit_ms"] for rank in others)
    assert "error: rank 1 " in err
    shown = penstock(running.home, "incident", running.job.id).stdout
    assert "(an effect: it lost a connection)" in shown


#: A program, which lives it needs and how it ends: `None` succeeds.
RULES = {
    "an address in its message": (
        "raise RuntimeError(f'bad object at {id(object()):#x} of {os.getpid()}')",
        2,
        "the same failure 2 times in a row",
    ),
    "another bare assert": (
        "if life == 0:\n    assert len(sys.argv) == 9\nif life == 1:\n    assert len(sys.argv) == 9",
        3,
        None,
    ),
    "a connection that was reset": (
        "if life < 3:\n    raise ConnectionResetError(104, 'Connection reset by peer')",
        4,
        None,
    ),
    "the same line after seconds of work": (
        "if life < 2:\n    time.sleep(3.5)\n    raise KeyError('weight')",
        3,
        None,
    ),
    "the same words from another function": (
        "def one(): raise KeyError(1)\ndef two(): raise KeyError(1)\nif life < 2: (one, two)[life]()",
        3,
        None,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_the_same_failure_is_the_same_place_in_the_program(run: Run, tmp_path: Path, name: str) -> None:
    text, lives, reason = RULES[name]
    (tmp_path / "train.py").write_text(
        f"import os, sys, time\nlife = int(os.environ['PENSTOCK_INCARNATION'])\n{text}\n"
    )
    # The cases are about single ranks that are executed: nothing is imported that takes as long as work.
    running = run("--restarts", "9", "--zygote", "never", "--backoff", "0s", str(tmp_path / "train.py"))
    code, err = finished(running)

    assert running.state().incarnation == lives - 1, err
    assert (code == 0) is (reason is None), err
    assert reason is None or reason in err


def test_a_restart_is_one_line_on_the_terminal(run: Run) -> None:
    """Goal: what failed, what was decided, which command tells more."""
    text = "import os\nif os.environ['PENSTOCK_INCARNATION'] == '0': raise KeyError('\\x1b[2Jweight')"
    running = run("--restarts", "3", "--", sys.executable, "-c", text)
    code, err = finished(running)

    assert code == 0
    (line,) = (line for line in err.splitlines() if "restart" in line)
    assert line == (
        "[penstock] rank 0 exited with code 1: KeyError: '\\x1b[2Jweight'; restart 1 of 3; "
        f"`penstock incident {running.job.id}` tells more"
    )


def test_a_rank_that_gets_sigterm_spends_the_budget(run: Run) -> None:
    running = run("--restarts", "1", "--", "bash", "-c", "kill -TERM $$")
    code, err = finished(running)

    assert (code, running.state().incarnation) == (128 + signal.SIGTERM, 1)
    assert "rank 0 was killed by SIGTERM; all 1 restarts are spent" in err
    assert [failure["cause"] for failure in running.state().gangs[0].failures] == ["crash", "crash"]


@pytest.mark.parametrize("first", ["rank", "agent"])
def test_sigterm_of_rank_and_agent_together_is_preemption_in_either_order(run: Run, first: str) -> None:
    """Goal: Slurm signals every process of a job; which comes first is chance."""
    running = run("--restarts", "9", "--", "bash", "-c", "touch $MARKS/$$.pid; exec sleep 1000")
    (rank,) = running.pids(1)
    agent = running.state().agent
    order = [rank, agent] if first == "rank" else [agent, rank]
    os.kill(order[0], signal.SIGTERM)
    if first == "rank":
        # Long after the rank is gone, but within the two seconds.
        Clock().pause(0.5)
    with suppress(ProcessLookupError):
        # The agent may have ended the rank already.
        os.kill(order[1], signal.SIGTERM)
    code, _ = finished(running)

    state = running.state()
    assert (code, state.phase, state.incarnation) == (128 + signal.SIGTERM, "stopped", 0)
    assert {failure["cause"] for failure in state.gangs[0].failures} <= {"preemption"}
    assert first == "agent" or incident(running)["cause"] == "preemption"
