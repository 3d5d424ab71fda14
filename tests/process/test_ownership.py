"""P2: every process has one owner and is gone with it; P6: one job never touches another's processes.

Each rank has a child, a child that ignores SIGTERM, one in a session of its own, and one that was forked twice. Something is
killed with SIGKILL, and then it is asserted who is gone *and* who is untouched.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.process import Job
from tests.process.jobs import PATIENCE_S, Running, is_alive, marked, penstock, role, wait_until

Run = Callable[..., Running]
FAMILY = [sys.executable, str(Path(__file__).with_name("family.py"))]
RANKS = 3
#: A rank and its four descendants.
FAMILY_SIZE = 5


def begin(run: Run, *options: str) -> tuple[Running, list[int]]:
    """A job of three families, and the numbers of all of its processes."""
    running = run("--ranks", str(RANKS), *options, "--", *FAMILY)
    return running, running.pids(RANKS * FAMILY_SIZE)


def wait_gone(pids: list[int]) -> None:
    wait_until(
        lambda: not any(map(is_alive, pids)), f"of {pids} these are alive: {[p for p in pids if is_alive(p)]}"
    )


@pytest.mark.parametrize("victim", ["launcher", "keeper", "agent", "rank"])
def test_whoever_is_killed_takes_the_tree_along_and_no_other_job(run: Run, victim: str) -> None:
    """Goal: P2 and P6. Method: two jobs, a kill in one, a look at both."""
    other, others = begin(run, "--detach")
    running, pids = begin(run)
    state = running.state()
    assert running.launcher is not None
    numbers = {
        "launcher": running.launcher.pid,
        "keeper": state.keeper,
        "agent": state.agent,
        "rank": state.gangs[0].workers[1]["pid"],
    }

    os.kill(numbers[victim], signal.SIGKILL)

    wait_gone([*pids, state.keeper, state.agent])
    running.launcher.wait(PATIENCE_S)
    phase = "stopped" if victim == "launcher" else "failed"
    assert running.job.phase() == phase
    assert all(map(is_alive, others))
    assert other.job.phase() == "running"


@pytest.mark.parametrize("victim", ["coordinator", "zygote"])
def test_who_owns_nothing_takes_nobody_along_and_comes_back(run: Run, victim: str) -> None:
    """Goal: P2 for those that only help. Method: kill one; every process is the same, there is another helper, and `stop` still works."""
    running, pids = begin(run, "--detach", "--grace", "0.2", "--restarts", "1")
    state = running.state()
    number = getattr(state, victim)
    assert is_alive(number)

    os.kill(number, signal.SIGKILL)

    wait_until(lambda: getattr(running.state(), victim) not in (0, number), f"there is another {victim}")
    after = running.state()
    assert (after.keeper, after.agent, after.incarnation) == (state.keeper, state.agent, 0)
    assert [worker["pid"] for _, worker in after.workers] == [worker["pid"] for _, worker in state.workers]
    assert all(map(is_alive, [*pids, state.keeper, state.agent]))
    assert penstock(running.home, "stop", running.job.id).returncode == 0
    wait_gone([*pids, state.keeper, state.agent, after.coordinator, after.zygote])


def test_a_rank_that_restarts_alone_takes_its_own_family_along_and_no_other(
    run_roles: Callable[..., Running],
) -> None:
    """Goal: P2, descendants belong to their rank. Method: three families that restart alone; kill one rank, then look at all."""
    running = run_roles(role("rank", "", ranks=RANKS, restart="one", command=FAMILY))
    before = running.pids(RANKS * FAMILY_SIZE)
    # A file is there before its text is.
    wait_until(lambda: all(path.read_text() for path in running.marks.glob("*.pid")), "all wrote their rank")
    family = {int(path.stem): path.read_text() for path in running.marks.glob("*.pid")}
    victim = next(worker["pid"] for _, worker in running.state().workers if worker["rank"] == 1)

    os.kill(victim, signal.SIGKILL)

    wait_gone([pid for pid in before if family[pid] == "1"])
    after = running.pids((RANKS + 1) * FAMILY_SIZE)
    assert all(is_alive(pid) for pid in before if family[pid] != "1")
    assert all(is_alive(pid) for pid in after if pid not in before)
    assert [gang.incarnation for gang in running.state().gangs] == [0, 1, 0]


def test_a_killed_grandchild_is_its_ranks_business(run: Run) -> None:
    """Goal: P2, exactly those that must go. Method: kill one descendant; its rank, its sisters and the job live on."""
    running, pids = begin(run)
    ranks = {rank["pid"] for rank in running.state().gangs[0].workers}
    victim = next(pid for pid in pids if pid not in ranks)

    os.kill(victim, signal.SIGKILL)

    wait_gone([victim])
    assert all(is_alive(pid) for pid in pids if pid != victim)
    assert running.job.phase() == "running"


def test_what_a_rank_leaves_when_it_succeeds_is_ended_and_its_peers_run_on(run: Run, tmp_path: Path) -> None:
    """Goal: descendants belong to their rank, also when it ends well. Method: rank 0 leaves a deaf orphan and exits with 0."""
    script = tmp_path / "leaver.py"
    script.write_text(
        "import os, signal, pathlib\n"
        "mark = lambda: pathlib.Path(os.environ['MARKS'], f'{os.getpid()}.pid').touch()\n"
        "if os.environ['RANK'] == '0' and os.fork():\n"
        "    r = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)\n"
        "    while not len(list(pathlib.Path(os.environ['MARKS']).glob('*.pid'))) >= 2: pass\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN) if os.environ['RANK'] == '0' else None\n"
        "mark()\n"
        "signal.pause()\n"
    )
    running = run("--ranks", "2", "--", sys.executable, str(script))
    pids = running.pids(2)
    peer = running.state().gangs[0].workers[1]["pid"]
    orphan = next(pid for pid in pids if pid != peer)

    wait_gone([orphan])

    assert is_alive(peer)
    assert running.job.phase() == "running"


def test_a_detached_job_survives_its_launcher_and_ends_with_stop(run: Run) -> None:
    """Goal: a detached job belongs to `stop` only. Method: its launcher is gone already; deaf processes are killed."""
    running, pids = begin(run, "--detach", "--grace", "0.2")
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == 0
    assert all(map(is_alive, pids))

    done = penstock(running.home, "stop", running.job.id)

    assert done.returncode == 0, done.stderr
    wait_gone([*pids, running.state().keeper, running.state().agent])
    assert running.job.phase() == "stopped"


def test_keeper_and_agent_killed_at_once_are_swept_by_the_next_command(run: Run) -> None:
    """Goal: the one gap of P2 is closed by the next command. Method: both are stopped first, so neither can act."""
    other, others = begin(run, "--detach")
    running, pids = begin(run, "--detach")
    state = running.state()
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(state.keeper, signum)
        os.kill(state.agent, signum)
    wait_until(lambda: running.job.phase() == "lost", "the job is known to be lost")

    assert penstock(running.home, "stop", running.job.id).returncode == 0

    wait_gone(pids)
    assert all(map(is_alive, others))
    assert other.job.phase() == "running"


def test_a_number_that_was_used_again_is_not_taken_for_the_agent(run: Run, tmp_path: Path) -> None:
    """Goal: P6. Method: another job's directory with this job's numbers in it."""
    running, _ = begin(run, "--detach")
    stranger = Job(tmp_path / "stranger")
    stranger.directory.mkdir()
    (stranger.directory / "state.json").write_bytes((running.job.directory / "state.json").read_bytes())
    assert stranger.phase() == "lost"
    assert running.job.phase() == "running"


@pytest.mark.parametrize("cgroup", [True, False])
@pytest.mark.parametrize("victim", ["launcher", "agent"])
def test_a_process_that_changes_its_number_all_the_time_does_not_escape(
    run: Run, victim: str, cgroup: bool
) -> None:
    """Goal: P2 against who forks and ends for ever. Method: each hop leaves a byte in a file, which then stands still; and nobody
    is left who carries the job's mark."""
    options = ["--grace", "0.2"] if cgroup else ["--grace", "0.2", "--no-cgroup"]
    running = run(*options, "--", sys.executable, str(Path(__file__).with_name("hopping.py")))
    hops = running.marks / "hops"
    wait_until(lambda: hops.exists() and hops.stat().st_size > 20, "somebody hops")
    wait_until(lambda: marked(running.job), "who hops carries the mark")
    state = running.state()
    assert running.launcher is not None

    os.kill(running.launcher.pid if victim == "launcher" else state.agent, signal.SIGKILL)

    wait_gone([state.agent, state.keeper])
    # A hop takes a fraction of a millisecond; between two of these looks there is time for many.
    sizes = [hops.stat().st_size]
    seen: list[int] = []

    def looked_often() -> bool:
        seen.extend(marked(running.job))
        sizes.append(hops.stat().st_size)
        return len(sizes) > 40

    wait_until(looked_often, "looked forty times")
    assert len(set(sizes)) == 1, "nobody hops any more"
    assert seen == []
