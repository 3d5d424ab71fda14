"""Whose a process is, whatever it did with its environment, session, descriptors and parents: known while all is well, when its worker
ends, and when keeper and agent are killed in the same instant. And what a worker sees of its own children: what it would see alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.process import Launch
from penstock.process.sweep import sweep
from penstock.process.watch.lineage import mark_of
from tests.process.jobs import PATIENCE_S, Running, is_alive, penstock, role, wait_until
from tests.process.ordinary_user import ordinary_job

Run = Callable[..., Running]
#: Empty environment, a session of its own, no descriptors, forked twice, deaf; and the same with another environment.
STRAYS = """
trap '' TERM HUP INT
exec 3>&-
for stray in 1 2; do
    (setsid env -i bash -c 'trap "" TERM; echo '"$RANK"' > '"$MARKS"'/$$.pid; exec sleep 1000' < /dev/null > /dev/null 2>&1 &)
    (setsid env -i PENSTOCK_JOB_DIRECTORY=/elsewhere PENSTOCK_WORKER=other-9 bash -c 'echo '"$RANK"' > '"$MARKS"'/$$.pid; exec sleep 1000' \
        < /dev/null > /dev/null 2>&1 &)
done
trap - TERM
echo "$RANK" > "$MARKS/$$.pid"
exec sleep 1000
"""
STRAYS_SIZE = 5


def killed_at_once(running: Running) -> None:
    """Neither can act for the other: both are stopped first."""
    state = running.state()
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(state.keeper, signum)
        os.kill(state.agent, signum)
    wait_until(lambda: running.job.phase() == "lost", "the job is known to be lost")


def test_strays_are_swept_after_keeper_and_agent_were_killed_at_once(run: Run) -> None:
    """Goal: the sweep finds who cannot be found by environment, and says so truly. Method: no control group; another job of the same
    kind, which has to live on."""
    other = run("--detach", "--no-cgroup", "--", "bash", "-c", STRAYS)
    running = run("--detach", "--no-cgroup", "--ranks", "2", "--", "bash", "-c", STRAYS)
    others, pids = other.pids(STRAYS_SIZE), running.pids(2 * STRAYS_SIZE)
    killed_at_once(running)

    done = penstock(running.home, "jobs")

    assert "what was left of it is swept" in done.stderr
    assert not any(map(is_alive, pids))
    assert all(map(is_alive, others))
    assert (running.job.directory / "swept").exists()


@pytest.fixture
def ordinary() -> Iterator[Running]:
    with ordinary_job(lambda _: Launch(command=["bash", "-c", STRAYS], ranks=2, cgroup=False)) as running:
        yield running


def test_an_ordinary_user_sweeps_strays_and_names_who_cannot_be_ended(ordinary: Running) -> None:
    """Goal: P2 without privileges, and no "swept" that is not so. Method: the sweep as that user, who may not end one process that
    carries the job's mark but became root's; then as root."""
    pids = ordinary.pids(2 * STRAYS_SIZE)
    state = ordinary.state()
    launcher, agent = ordinary.launcher, str(ordinary.home / "penstock-agent")
    assert launcher is not None
    raised = None
    if os.geteuid() == 0:
        # As a program that changes its user, like sudo: same mark, another owner.
        limit = [mark_of(state.workers[0][1]["pid"])] * 2
        code = f"import resource, time; resource.setrlimit(resource.RLIMIT_RTTIME, tuple({limit})); print(1, flush=True); time.sleep(1000)"
        raised = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert raised.stdout is not None
        raised.stdout.readline()
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (launcher.pid, state.keeper, state.agent):
            os.kill(pid, signum)
    wait_until(lambda: ordinary.job.phase() == "lost", "the job is known to be lost")
    owner = {"user": 65534, "extra_groups": []} if os.geteuid() == 0 else {}

    done = subprocess.run(  # type: ignore[call-overload]
        [agent, "sweep", ordinary.job.directory], stdout=subprocess.PIPE, timeout=30, check=False, **owner
    )

    assert not any(map(is_alive, pids))
    answer = json.loads(done.stdout)
    if raised is not None:
        assert [(process["pid"], process["why"]) for process in answer["left"]] == [
            (raised.pid, "belongs to user 0")
        ]
        assert done.returncode == 1
        assert is_alive(raised.pid)
        assert sweep(ordinary.job.directory).left == []
        raised.wait(PATIENCE_S)
        raised.stdout.close()  # type: ignore[union-attr]
    else:
        assert answer["left"] == []


WAITER = """
import json, os, pathlib, subprocess, sys, time
marks = pathlib.Path(os.environ["MARKS"])
for _ in range(30):
    subprocess.run(["bash", "-c", "(sleep 0.01 &) ; true"], check=True)
own = subprocess.Popen(["sleep", "0.3"])
seen = []
try:
    while True:
        seen.append(os.wait()[0])
except ChildProcessError:
    pass
children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
(marks / f"seen-{os.environ['RANK']}").write_text(json.dumps([seen == [own.pid], children]))
subprocess.run(["bash", "-c", "(setsid sleep 1000 &)"], check=True)
(marks / f"{os.getpid()}.pid").touch()
time.sleep(1000 if os.environ["RANK"] != "0" or not (marks / "go").exists() else 0)
"""


@pytest.mark.parametrize("zygote", ["never", "always"])
def test_a_rank_waits_for_whom_it_started_and_collects_nobody_else(
    run: Run, tmp_path: Path, zygote: str
) -> None:
    """Goal: a rank's view of its children is its own, and what it leaves still counts as its. Method: thirty background commands, one
    child; then `ps` shows what was left below its rank, and it ends with it and not before."""
    script = tmp_path / "waiter.py"
    script.write_text(WAITER)
    running = run("--ranks", "2", "--zygote", zygote, "--", sys.executable, str(script))
    running.pids(2)
    for rank in "01":
        assert json.loads((running.marks / f"seen-{rank}").read_text()) == [True, []]
    shown = penstock(running.home, "ps", "--json", running.job.id).stdout
    left = [json.loads(line) for line in shown.splitlines()]
    strays = [row for row in left if row["command"].endswith("sleep 1000")]
    assert sorted(row["rank"] for row in strays) == [0, 1], left
    assert all(is_alive(row["pid"]) for row in strays)
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGTERM)
    running.launcher.communicate(timeout=PATIENCE_S)
    assert not any(is_alive(row["pid"]) for row in strays)


def test_what_a_rank_left_ends_with_it_and_what_its_peer_left_does_not(
    run_roles: Callable[..., Running],
) -> None:
    """Goal: P2 for the adopted. Method: ranks that restart alone, each with strays; one rank is killed."""
    running = run_roles(role("rank", STRAYS, ranks=2, restart="one"))
    before = running.pids(2 * STRAYS_SIZE)
    wait_until(
        lambda: all(path.read_text().strip() for path in running.marks.glob("*.pid")),
        "everybody wrote its rank",
    )
    owner = {int(path.stem): path.read_text().strip() for path in running.marks.glob("*.pid")}
    victim = next(worker["pid"] for _, worker in running.state().workers if worker["rank"] == 1)

    os.kill(victim, signal.SIGKILL)

    gone = [pid for pid in before if owner[pid] == "1"]
    assert len(gone) == STRAYS_SIZE
    wait_until(lambda: not any(map(is_alive, gone)), "what rank 1 left is gone")
    running.pids(3 * STRAYS_SIZE)
    assert all(is_alive(pid) for pid in before if owner[pid] == "0")
