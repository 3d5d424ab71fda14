"""Real jobs that only seem to hang, because they are held, stopped, traced, or work; and who is named when one does hang."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.process import Budget, JobSpec, Policy, Role, prepare
from penstock.process.job.launch import agent_path
from penstock.state.ranks.clock import Clock
from tests.process.jobs import PATIENCE_S, Running, end, penstock, wait_until
from tests.process.test_liveness import STEPS, incident, script

Run = Callable[..., Running]
#: The limit that the default rule gets in a test; a person cannot choose it, because who chooses one is obeyed.
DEFAULT_LEAST_MS = 3000


def ended(running: Running, timeout_s: float = 60) -> str:
    """What a job that has to succeed wrote to standard error."""
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=timeout_s)
    assert running.launcher.returncode == 0, err
    return str(err.decode())


def rows(running: Running) -> list[dict[str, Any]]:
    """What `penstock top` sees."""
    workers: list[dict[str, Any]] = json.loads(
        penstock(running.home, "top", running.job.id, "--json").stdout
    )["workers"]
    return workers


def pid_of(running: Running, rank: int) -> int:
    """The process of a rank that makes steps."""
    pids: list[int] = []

    def look() -> bool:
        pids[:] = [worker["pid"] for _, worker in running.state().workers if worker["rank"] == rank]
        return bool(pids)

    wait_until(look, "the rank runs")
    return pids[0]


def start_default(home: Path, program: Path, *, ranks: int, restarts: int) -> Running:
    """A job under the default rule of hangs, with a limit that a test can wait for."""
    role = Role(
        command=[sys.executable, str(program)],
        ranks=ranks,
        policy=Policy(budget=Budget.of(restarts), backoff_s=0),
    )
    job = prepare(home, JobSpec(roles=[role], directory=home.parent, python=Path(sys.executable)))
    about = json.loads((job.directory / "job.json").read_text())
    about["roles"][0]["policy"]["hang"]["least_ms"] = DEFAULT_LEAST_MS
    (job.directory / "job.json").write_text(json.dumps(about))
    marks = home / "marks"
    marks.mkdir()
    launcher = subprocess.Popen(
        [agent_path(), "launch", job.directory],
        env={**os.environ, "MARKS": str(marks)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    return Running(home, launcher, marks, [job])


@pytest.fixture
def run_default(tmp_path: Path) -> "Any":
    """Starts jobs under the default rule."""
    started: list[Running] = []

    def begin(text: str, *, ranks: int = 2, restarts: int = 0) -> Running:
        program = tmp_path / f"default-{len(started)}.py"
        program.write_text(STEPS + text)
        started.append(
            start_default(tmp_path / f"default-{len(started)}", program, ranks=ranks, restarts=restarts)
        )
        return started[-1]

    yield begin
    for running in started:
        end(running)


def test_a_reader_that_pauses_is_no_hang_and_top_says_who_is_held(run: Run, tmp_path: Path) -> None:
    """Goal: time in which output is held back counts for nobody. Method: nobody reads, for several times the limit of both ranks."""
    text = (
        "steps(30)\n"
        "if rank == 0:\n"
        "    for _ in range(80):\n        os.write(1, b'y' * 65535 + b'\\n')\n"
        "else:\n    threading.Event().wait(6)\n"
        "steps(30)\n"
    )
    running = run("--ranks", "2", "--hang", "1", "--restarts", "1", "--", script(tmp_path, text))
    wait_until(lambda: any(row["held"] == "held by output" for row in rows(running)), "somebody is held")
    shown = penstock(running.home, "top", running.job.id, "--once").stdout
    assert "held by output" in shown
    assert "held by output" in penstock(running.home, "ps", running.job.id).stdout
    Clock().pause(4)
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    assert out.count(b"y") == 80 * 65535
    assert (running.state().incidents, running.state().incarnation) == ([], 0)


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


class _Tracer:
    """Holds a process as a debugger does."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # PTRACE_ATTACH
        assert LIBC.ptrace(16, pid, None, None) == 0, os.strerror(ctypes.get_errno())
        os.waitpid(pid, 0x40000000)

    def detach(self) -> None:
        """Lets it go on."""
        assert LIBC.ptrace(17, self._pid, None, None) == 0


def _held_by_signal(pids: list[int]) -> Callable[[], None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return lambda: [os.kill(pid, signal.SIGCONT) for pid in pids] and None


def _held_by_tracer(pids: list[int]) -> Callable[[], None]:
    tracer = _Tracer(pids[-1])
    return tracer.detach


HOLDS = {"stopped": _held_by_signal, "traced": _held_by_tracer}
FREEZER = Path("/sys/fs/cgroup/freezer")
if os.access(FREEZER, os.W_OK):

    def _held_by_freezer(pids: list[int]) -> Callable[[], None]:
        group = FREEZER / f"penstock-patience-{os.getpid()}"
        group.mkdir()
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")

        def thaw() -> None:
            (group / "freezer.state").write_text("THAWED")
            for pid in pids:
                (FREEZER / "cgroup.procs").write_text(str(pid))
            group.rmdir()

        return thaw

    HOLDS["frozen"] = _held_by_freezer


def test_ranks_that_are_held_are_not_hung_and_go_on(run: Run, tmp_path: Path) -> None:
    """Goal: a paused job is no hang. Method: a signal, a tracer and a frozen group hold ranks for several times the limit."""
    text = "steps(30)\nopen(f\"{os.environ['MARKS']}/{rank}.ready\", 'w')\nsteps(300)\n"
    program = script(tmp_path, text)
    started = {how: run("--ranks", "2", "--hang", "1", "--restarts", "1", "--", program) for how in HOLDS}
    releases = []
    try:
        for how, running in started.items():
            wait_until(lambda of=running: len(list(of.marks.glob("*.ready"))) == 2, "both make steps")
            releases.append(HOLDS[how]([pid_of(running, rank) for rank in range(2)]))
        for how, running in started.items():
            wait_until(
                lambda of=running, how=how: any(row["held"] == how for row in rows(of)), f"{how} is seen"
            )
        Clock().pause(3)
    finally:
        for release in releases:
            release()
    for how, running in started.items():
        ended(running)
        assert (how, running.state().incidents, running.state().incarnation) == (how, [], 0)


def test_a_rank_that_is_stopped_alone_is_the_one_to_blame(run: Run, tmp_path: Path) -> None:
    """Goal: blame by the state of processes. Method: `kill -STOP` of rank 1 at the very place where its peers wait."""
    text = "steps(30)\nopen(f\"{os.environ['MARKS']}/{rank}.ready\", 'w')\nwait_for_the_others() if life == 0 else None\n"
    program = script(tmp_path, text)
    words = ["--restarts", "1", "--stopped-limit", "1", "--", program]
    started = {ranks: run("--ranks", str(ranks), *words) for ranks in (2, 3)}
    for ranks, running in started.items():
        wait_until(lambda of=running, n=ranks: len(list(of.marks.glob("*.ready"))) == n, "all wait")
        os.kill(pid_of(running, 1), signal.SIGSTOP)
    for running in started.values():
        ended(running)
        about = incident(running)
        assert (about["rank"], about["cause"]) == (1, "hang")
        assert about["first_cause"].startswith("rank 1 is stopped since ")
        (own,) = [group for group in about["stacks"]["groups"] if ["rank", 1] in group["workers"]]
        assert own["workers"] == [["rank", 1]], "one that is stopped is not like those who wait"


def test_without_restarts_and_limit_a_suspicion_is_told_and_nothing_is_ended(
    run_default: Any, tmp_path: Path
) -> None:
    """Goal: the default ends no healthy job. Method: a stall of many times the limit, without any work; then steps go on."""
    os.mkfifo(tmp_path / "go")
    running = run_default(f"steps(30)\nopen('{tmp_path}/go').read()\nsteps(30)\n")
    wait_until(lambda: running.state().incidents, "people are told", timeout_s=60)
    (tmp_path / "go").write_text("on")
    err = ended(running)
    assert "warning: the gang hangs: no step for " in err
    assert "nothing is ended, because neither --restarts nor --hang was given" in err
    state = running.state()
    assert (len(state.incidents), state.incarnation, state.phase) == (1, 0, "succeeded")
    about = incident(running)
    assert (about["cause"], about["verdict"], about["step"]) == ("hang", {"do": "warn"}, 29)
    assert [group["workers"] for group in about["stacks"]["groups"]] == [[["rank", 0], ["rank", 1]]]
    shown = penstock(running.home, "incident", running.job.id).stdout
    assert "decided: end nothing, because " in shown
    assert "warning: " in penstock(running.home, "events", running.job.id).stdout


#: Keep one rank away from steps for several times the limit while it works, each in its own way.
WORK = {
    "writes": """
def work():
    with open(os.environ['MARKS'] + '/saved', 'wb') as file:
        for _ in range(45):
            file.write(b'x' * 100000)
            file.flush()
            time.sleep(0.2)
""",
    "its-child-reads": """
def work():
    import subprocess
    line = 'for n in 1 2 3 4 5 6 7 8 9; do head -c 100000 /dev/zero > /dev/null; sleep 1; done'
    subprocess.run(['sh', '-c', line])
""",
    "frames-change": """
def idle(depth):
    return idle(depth - 1) if depth else time.sleep(0.13)
def work():
    until = time.monotonic() + 9
    while time.monotonic() < until:
        for depth in range(11):
            idle(depth)
""",
    "somebody-thinks-in-pdb": """
def work():
    import pdb
    reads, writes = os.pipe()
    threading.Timer(9, lambda: os.write(writes, b'continue\\n')).start()
    pdb.Pdb(stdin=os.fdopen(reads), stdout=sys.stderr).set_trace()
""",
}


def test_a_rank_that_works_does_not_hang_nor_do_those_who_wait_for_it(run_default: Any) -> None:
    """Goal: evaluation, saving and export are no hangs. Method: rank 0 works for three times the limit, rank 1 waits for it."""
    started = {
        how: run_default(
            text + "done = os.environ['MARKS'] + '/done'\nsteps(30)\n"
            "if rank == 0:\n    work()\n    open(done, 'w')\n"
            "else:\n    while not os.path.exists(done):\n        time.sleep(0.05)\n"
            "steps(30)\n",
            restarts=1,
        )
        for how, text in WORK.items()
    }
    for how, running in started.items():
        ended(running)
        assert (how, running.state().incidents, running.state().incarnation) == (how, [], 0)


def test_with_restarts_a_hang_without_work_is_ended_by_the_default_rule(run_default: Any) -> None:
    """Goal: real hangs are ended without any option. Method: a program of C waits under the lock of the interpreter."""
    text = "steps(30)\nif life == 0:\n    import ctypes; ctypes.PyDLL(None).sleep(1000) if rank == 1 else wait_for_the_others()\n"
    running = run_default(text, ranks=3, restarts=1)
    ended(running)
    about = incident(running)
    assert (about["cause"], about["rank"], about["step"]) == ("hang", 1, 29)
    (learned,) = running.journal("learned")
    assert learned["incarnation"] == 0


def test_a_second_hang_at_a_step_that_moves_doubles_the_limit(run: Run, tmp_path: Path) -> None:
    """Goal: a step that is slow in every life is no hang for ever. Method: step 29 takes three times the limit, in Python."""
    text = WORK["frames-change"] + "steps(30)\nwork()\nsteps(30)\n"
    running = run("--restarts", "1", "--hang", "4", "--", script(tmp_path, text))
    ended(running)
    assert running.state().incarnation == 1
    doubled = running.journal("patience")
    assert [entry["times"] for entry in doubled] == [2, 4][: len(doubled)]
    assert doubled


def test_after_a_gap_of_the_agent_everybody_has_fresh_patience(run: Run, tmp_path: Path) -> None:
    """Goal: what the agent did not see is held against nobody. Method: it is stopped for longer than the limit, while the rank stalls."""
    text = "steps(30)\nopen(f\"{os.environ['MARKS']}/stalls\", 'w')\nthreading.Event().wait(10)\nsteps(30)\n"
    running = run("--hang", "4", "--restarts", "1", "--", script(tmp_path, text))
    wait_until(lambda: (running.marks / "stalls").exists(), "the rank stalls")
    agent = running.state().agent
    os.kill(agent, signal.SIGSTOP)
    Clock().pause(7.5)
    os.kill(agent, signal.SIGCONT)
    ended(running)
    assert (running.state().incidents, running.state().incarnation) == ([], 0)
    (gap,) = running.journal("gap")
    assert gap["about"]["to_ms"] - gap["about"]["from_ms"] > 5000


#: Life 0: rank 1 never comes to the collective. Life 1: both wait in one, and nobody is to blame. Life 2 ends.
COLLECTIVES = """
import torch, torch.distributed as dist
dist.init_process_group('gloo')
dist.barrier()
steps(30)
if life == 0:
    dist.all_reduce(torch.ones(2)) if rank == 0 else time.sleep(1000)
elif life == 1:
    dist.recv(torch.ones(2), src=1 - rank)
os._exit(0)  # taking torch apart takes seconds, which count
"""


def test_who_is_outside_the_collective_is_named_and_else_the_gang(run: Run, tmp_path: Path) -> None:
    """Goal: blame by where ranks stand. Method: two ranks with gloo, one outside the collective, then both inside one that never ends."""
    running = run("--ranks", "2", "--restarts", "2", "--hang", "2", "--", script(tmp_path, COLLECTIVES))
    ended(running, timeout_s=120)
    first, second = incident(running, 0), incident(running, 1)
    assert (first["rank"], second["rank"]) == (1, None)
    assert first["first_cause"].startswith("rank 1 hangs: no step for ")
    assert first["first_cause"].endswith("its peers wait in a collective")
    assert second["first_cause"].startswith("the gang hangs: no step for ")
