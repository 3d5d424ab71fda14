"""A job in a pid namespace of its own: whatever is killed, in whatever instant, nothing of it is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.process import ask
from penstock.process.job.launch import agent_path
from tests.process.jobs import PATIENCE_S, Running, is_alive, wait_until
from tests.process.slotted import LOOK, describe, everybody, let_go, machine, python, role, saw

Begin = Callable[..., Running]
RANK = [sys.executable, "-c", LOOK]
#: From where a job of `begin` starts.
FAMILY = ["bash", "../family.sh"]
#: Rank, three descendants, keeper, agent, coordinator.
FAMILY_SIZE = 7
NOBODY = 65534
#: Two ranks that meet and add up.
TORCH = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("total", int(total.sum()), "pid", os.getpid() < 100)
dist.destroy_process_group()
"""


@pytest.fixture(params=["root", "nobody"])
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """Starts jobs as root, which needs no user namespace, and as an ordinary user, who does."""
    user = NOBODY if request.param == "nobody" else None
    with tempfile.TemporaryDirectory(prefix="penstock-isolate-") as folder:
        # Where such a user can read it.
        shutil.copy(Path(__file__).with_name("family.sh"), folder)
        with machine(Path(folder), user=user) as start:
            yield start


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Begin]:
    """Starts jobs as whoever runs the tests, for ranks in Python."""
    with machine(tmp_path) as start:
        yield start


def test_keeper_and_agent_killed_in_the_same_instant_leave_nothing(begin: Begin) -> None:
    """Goal: P2 without a gap. Method: both are stopped first, so neither can act; nobody sweeps."""
    other = begin(role(*FAMILY), isolate=True)
    running = begin(role(*FAMILY), isolate=True)
    for started in (other, running):
        wait_until(lambda job=started: len(everybody(job)) == FAMILY_SIZE, f"a family: {everybody(started)}")
    state = running.state()
    others = everybody(other)

    for signum in (signal.SIGSTOP, signal.SIGKILL):
        # The keeper last: with it the kernel ends the others at once.
        os.kill(state.agent, signum)
        os.kill(state.keeper, signum)

    wait_until(lambda: not everybody(running), f"nobody is left: {everybody(running)}")
    assert running.job.phase() == "lost"
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == 1
    assert everybody(other) == others
    assert other.job.phase() == "running"


@pytest.mark.parametrize("victim", ["launcher", "keeper", "agent", "worker"])
def test_whoever_is_killed_takes_the_tree_along(begin: Begin, victim: str) -> None:
    running = begin(role(*FAMILY), isolate=True)
    wait_until(lambda: len(everybody(running)) == FAMILY_SIZE, "a family")
    state = running.state()
    assert running.launcher is not None
    numbers = {
        "launcher": running.launcher.pid,
        "keeper": state.keeper,
        "agent": state.agent,
        "worker": state.workers[0][1]["pid"],
    }

    os.kill(numbers[victim], signal.SIGKILL)

    wait_until(lambda: not everybody(running), f"nobody is left: {everybody(running)}")
    expected = {"launcher": "stopped", "keeper": "lost", "agent": "failed", "worker": "failed"}
    assert running.job.phase() == expected[victim]


def test_files_and_processes_keep_their_owner(begin: Begin) -> None:
    """Goal: ids inside are ids outside. Method: a shell says who it is and makes a file."""
    script = 'id -u; id -g; touch "$MARKS/made"; echo $$'
    running = begin(role("sh", "-c", script), isolate=True)
    assert running.launcher is not None
    out, words = running.launcher.communicate(timeout=PATIENCE_S)
    lines = [line.split()[-1] for line in out.decode().splitlines()]
    status = (running.marks / "made").stat()

    assert running.launcher.returncode == 0, words
    assert lines[:2] == [str(status.st_uid), str(status.st_gid)]
    assert int(lines[2]) < 100, "a small number: the namespace is new"


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -SEGV $$", 128 + signal.SIGSEGV)])
def test_exit_codes_come_out(begin: Begin, script: str, code: int) -> None:
    running = begin(role("bash", "-c", script), isolate=True)
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == code


@pytest.mark.parametrize("how", ["exec", "zygote"])
def test_numbers_in_the_state_are_those_that_one_sees_from_outside(own: Begin, how: str) -> None:
    """Goal: `ps`, `stacks` and `exec` work from outside. Method: numbers of the state against /proc, also in a second life."""
    running = own(role(**python(LOOK, how=how), ranks=2, budget={"crash": 1}), isolate=True)
    for life in (0, 1):
        inner = [saw(running, f"rank-{rank}", life)["pid"] for rank in (0, 1)]
        wait_until(lambda life=life: running.state().gangs[0].incarnation == life, "the life is shown")
        state = running.state()
        outer = [worker["pid"] for _, worker in state.workers]
        assert [last_number(pid) for pid in outer] == inner
        assert last_number(state.keeper) == 1
        servants = {state.keeper, state.agent, state.coordinator, state.zygote} - {0}
        assert set(outer) | servants == set(everybody(running))
        shown = ask(running.job, {"ask": "ps"})["processes"]
        assert {process["pid"] for process in shown} == set(outer)
        assert {process["parent"] for process in shown} == {state.agent}
        if life == 0:
            os.kill(outer[0], signal.SIGKILL)
    let_go(running)
    ended = running.wait_phase("succeeded")
    assert [worker["pid"] for _, worker in ended.workers] == outer, "also when they are gone"


def last_number(pid: int) -> int:
    """Of a process in its own namespace."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in status if line.startswith("NSpid:")]
    return int(line.split()[-1])


def test_who_looks_from_inside_sees_its_own_numbers_and_takes_nobody_for_dead(own: Begin) -> None:
    """Goal: `stacks` of a hang are taken inside, and nothing is swept from there. Method: a rank looks at its own job and at another."""
    other = own(role(*RANK))
    saw(other)
    code = (
        "import json, os, pathlib, time\n"
        "from penstock.process import Job\n"
        "from penstock.process.stacks.targets import targets_of\n"
        "mine = Job(pathlib.Path(os.environ['PENSTOCK_JOB_DIRECTORY']))\n"
        "while not targets_of(mine): time.sleep(0.01)\n"
        f"phases = [mine.phase(), Job(pathlib.Path({str(other.job.directory)!r})).phase()]\n"
        "print(json.dumps([phases, [target.pid for target in targets_of(mine)] == [os.getpid()]]))\n"
    )
    running = own(role(sys.executable, "-c", code), isolate=True)
    assert running.launcher is not None
    out, words = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, words.decode()
    assert json.loads(out.decode().partition("] ")[2]) == [["running", "running"], True]


def test_another_agent_takes_over_inside(own: Begin) -> None:
    """Goal: a killed agent costs a life, not the job. Method: kill it by the number of the state."""
    running = own(role(*RANK, budget={"crash": 1}), isolate=True)
    saw(running)
    agent = running.state().agent
    os.kill(agent, signal.SIGKILL)
    saw(running, life=1)
    assert running.state().agent != agent
    assert is_alive(running.state().agent)
    let_go(running)
    assert running.wait_phase("succeeded").exit_code == 0


def test_torch_works_inside(own: Begin) -> None:
    running = own(role(sys.executable, "-c", TORCH, ranks=2), isolate=True)
    assert running.launcher is not None
    out, words = running.launcher.communicate(timeout=3 * PATIENCE_S)
    assert running.launcher.returncode == 0, words.decode()
    assert out.decode().count("total 9 pid True") == 2


def test_where_the_kernel_forbids_it_an_error_says_so(tmp_path: Path) -> None:
    """Goal: no job that only seems isolated. Method: inside a user namespace whose kernel allows no further pid namespace."""
    directory = describe(tmp_path, role("true"), isolate=True)
    script = 'echo 0 > /proc/sys/user/max_pid_namespaces && exec "$0" launch "$1"'
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", script, str(agent_path()), str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: cannot isolate the job: the system does not let it make a namespace"
    )
    state = json.loads((directory / "state.json").read_text())
    assert (state["phase"], state["exit_code"]) == ("failed", 2)
