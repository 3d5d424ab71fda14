"""Memory of a slot: a limit where the system allows one, and who runs into it is known exactly."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.jobs import Running
from tests.process.slotted import LOOK, let_go, machine, python, role, saw

Begin = Callable[..., Running]
LIMIT_BYTES = 256 << 20
#: The first life needs too much; later ones look and wait.
GREEDY = f"import os\nif os.environ['PENSTOCK_INCARNATION'] == '0': bytearray({2 * LIMIT_BYTES})\n" + LOOK
#: A child needs too much, as a worker of a loader might, and its parent fails because of it.
GREEDY_CHILD = f"""
import subprocess, sys
child = subprocess.run([sys.executable, "-c", "bytearray({2 * LIMIT_BYTES})"])
sys.exit("my worker is gone" if child.returncode else 0)
"""
RANK = [sys.executable, "-c"]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    with machine(tmp_path) as start:
        yield start


def incident(running: Running) -> dict[str, Any]:
    """The first incident of a job."""
    document: dict[str, Any] = json.loads((running.job.directory / running.state().incidents[0]).read_text())
    return document


@pytest.mark.parametrize("how", ["exec", "zygote"])
def test_a_rank_beyond_its_limit_is_out_of_memory_and_charged_to_memory(begin: Begin, how: str) -> None:
    """Goal: a real kill by the kernel is told apart. Method: the budget allows a restart for want of memory and for nothing else."""
    greedy = python(GREEDY, how=how)
    running = begin(role(**greedy, slots={"memory_bytes": LIMIT_BYTES}, budget={"memory": 1}))
    saw(running, life=1)
    state = running.state()

    assert state.gangs[0].memory_limit in ("cgroup v1", "cgroup v2")
    failure = state.gangs[0].failures[0]
    assert failure["cause"] == "memory"
    assert failure["what"] == "rank 0 was killed by SIGKILL (the kernel was out of memory)"
    report = incident(running)
    assert report["cause"] == "memory"
    assert any("Killed process" in line for line in report["kernel"]), report["kernel"]

    # What the group counted in an earlier life says nothing about a later one.
    os.kill(state.workers[0][1]["pid"], signal.SIGKILL)
    state = running.wait_phase("failed")
    assert [failure["cause"] for failure in state.gangs[0].failures] == ["memory", "crash"]
    assert state.gangs[0].failures[1]["what"] == "rank 0 was killed by SIGKILL"


def test_a_rank_that_fails_because_its_child_was_out_of_memory_is_charged_to_memory(begin: Begin) -> None:
    """Goal: the group counts for all of a rank. Method: the rank itself exits with an ordinary error."""
    running = begin(role(*RANK, GREEDY_CHILD, slots={"memory_bytes": LIMIT_BYTES}))
    state = running.wait_phase("failed")

    assert state.exit_code == 1
    assert state.gangs[0].failures[0]["cause"] == "memory"
    assert incident(running)["kernel"]


def test_the_limit_of_one_rank_is_not_its_peers(begin: Begin) -> None:
    """Goal: a limit is a slot's. Method: two ranks with half each run beside each other; nobody is killed."""
    half = f"bytearray({LIMIT_BYTES // 2})\n" + LOOK
    running = begin(role(*RANK, half, ranks=2, slots={"memory_bytes": LIMIT_BYTES}))
    for rank in (0, 1):
        saw(running, f"rank-{rank}")
    let_go(running)
    assert running.wait_phase("succeeded").exit_code == 0


def test_without_control_groups_the_state_says_that_only_the_lock_counts(begin: Begin) -> None:
    running = begin(role(*RANK, LOOK, slots={"memory_bytes": LIMIT_BYTES}), cgroup=False)
    saw(running)
    assert running.state().gangs[0].memory_limit == "the lock alone"


def test_groups_are_gone_with_their_job(begin: Begin) -> None:
    """Goal: nothing is left behind. Method: look for directories of the job's name among control groups."""
    running = begin(role(*RANK, LOOK, slots={"memory_bytes": LIMIT_BYTES}))
    pid = saw(running)["pid"]
    groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    (memory,) = [line.split(":")[2] for line in groups if running.job.id in line and "memory" in line] or [""]
    let_go(running)
    running.wait_phase("succeeded")
    assert running.launcher is not None
    running.launcher.wait(20)

    assert memory
    assert not Path("/sys/fs/cgroup/memory", memory.lstrip("/")).exists()


def test_memory_is_held_like_everything_else(begin: Begin) -> None:
    """Goal: two jobs that do not fit wait for each other. Method: each wants more than half of the machine."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    need = {"memory_bytes": pages * page_bytes * 6 // 10}
    first = begin(role(*RANK, LOOK, slots=need), name="first")
    saw(first)
    second = begin(role(*RANK, LOOK, slots=need), name="second")
    assert second.wait_phase("queued").reason.endswith(f"are held by {first.job.id}")
    let_go(first)
    saw(second)
