"""`penstock exec`: beside a rank, with what the rank has, and without a trace afterwards."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.process.exec import Beside, start
from penstock.process.watch.lineage import children_of, descendants, everyone, process
from tests.process import jobs
from tests.process.jobs import PENSTOCK, Running, is_alive, penstock, wait_until

Run = Callable[..., Running]
#: In a directory and on processors of its own.
WORKER = "mkdir -p $MARKS/place-$RANK; cd $MARKS/place-$RANK; touch $MARKS/$$.pid; sleep 1000 & wait"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("exec")
    started = jobs.start(
        home, "--detach", "--ranks", "3", "--", "bash", "-c", WORKER, environment={"FLAVOUR": "mint"}
    )
    started.pids(3)
    for _, worker in started.state().workers:
        os.sched_setaffinity(worker["pid"], {min(os.sched_getaffinity(0))})
    yield started
    penstock(home, "stop", started.job.id, "--force")
    jobs.end(started)


def test_a_command_sees_what_the_rank_sees(running: Running) -> None:
    code = (
        "import os, json; print(json.dumps([dict(os.environ), os.getcwd(), sorted(os.sched_getaffinity(0))]))"
    )
    done = penstock(running.home, "exec", running.job.id, "--rank", "1", "--", sys.executable, "-c", code)
    variables, place, processors = json.loads(done.stdout)
    assert (variables["RANK"], variables["FLAVOUR"], variables["PENSTOCK_JOB"]) == (
        "1",
        "mint",
        running.job.id,
    )
    assert place == str(running.marks / "place-1")
    assert processors == [min(os.sched_getaffinity(0))]


def test_input_and_exit_code_are_passed_on(running: Running) -> None:
    words = [
        *PENSTOCK,
        "exec",
        running.job.id,
        "--rank",
        "rank-2",
        "--",
        "bash",
        "-c",
        "cat; echo oops >&2; exit 7",
    ]
    environment = {**os.environ, "PENSTOCK_HOME": str(running.home)}
    done = subprocess.run(words, env=environment, input="hello", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello", "oops\n")
    killed = penstock(running.home, "exec", running.job.id, "--", "bash", "-c", "kill -SEGV $$")
    assert killed.returncode == 128 + signal.SIGSEGV


def test_several_ranks_are_prefixed_and_the_first_bad_code_counts(running: Running) -> None:
    script = "echo rank $RANK; printf end >&2; exit $((RANK * 2))"
    done = penstock(running.home, "exec", running.job.id, "--rank", "0-1,2", "--", "bash", "-c", script)
    assert sorted(done.stdout.splitlines()) == [f"[rank-{rank}] rank {rank}" for rank in range(3)]
    assert sorted(done.stderr.splitlines()) == [f"[rank-{rank}] end" for rank in range(3)]
    assert done.returncode == 2
    answer = penstock(
        running.home, "exec", running.job.id, "--rank", "1", "--json", "--", "bash", "-c", script
    )
    assert json.loads(answer.stdout) == {"worker": "rank-1", "code": 2, "stdout": "rank 1\n", "stderr": "end"}


def test_python_expressions_and_statements(running: Running) -> None:
    def ask(text: str) -> "subprocess.CompletedProcess[str]":
        return penstock(running.home, "exec", running.job.id, "--rank", "2", "--python", text)

    assert ask("int(os.environ['RANK']) + 1").stdout == "3\n"
    assert ask("x = 2\nprint(x * 21)").stdout == "42\n"
    broken = ask("no_such_name")
    assert broken.returncode == 1
    assert "NameError" in broken.stderr


@pytest.mark.parametrize("end", ["by itself", "killed"])
def test_nothing_stays_behind(running: Running, tmp_path: Path, end: str) -> None:
    """Goal: no orphan. Method: a command that leaves a session of its own, and ends, or whose owner gets SIGTERM."""
    last = "exit 0" if end == "by itself" else "wait"
    script = f"setsid bash -c 'touch {tmp_path}/$$.pid; exec sleep 1000' & until [ -e {tmp_path}/*.pid ]; do :; done; {last}"
    environment = {**os.environ, "PENSTOCK_HOME": str(running.home)}
    words = [*PENSTOCK, "exec", running.job.id, "--", "bash", "-c", script]
    asker = subprocess.Popen(words, env=environment)
    wait_until(lambda: list(tmp_path.glob("*.pid")), "the child has begun")
    (pid,) = [int(path.stem) for path in tmp_path.glob("*.pid")]
    if end == "killed":
        asker.send_signal(signal.SIGTERM)
    assert asker.wait(jobs.PATIENCE_S) == (0 if end == "by itself" else 128 + signal.SIGTERM)
    assert not is_alive(pid)
    assert all(is_alive(worker["pid"]) for _, worker in running.state().workers)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rank", "9", "--", "true"], "ranks are 0 to 2"),
        (["--rank", "x", "--", "true"], "is not a rank"),
        (["--role", "data", "--", "true"], "there is no role data"),
        (["--python", "1", "--", "true"], "give a command after `--`, or --python"),
    ],
)
def test_bad_input_gets_a_sentence(running: Running, words: list[str], message: str) -> None:
    done = penstock(running.home, "exec", running.job.id, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_program_that_is_not_there_is_told(running: Running) -> None:
    done = penstock(running.home, "exec", running.job.id, "--", "no-such-program")
    assert done.returncode == 127
    assert "cannot run no-such-program beside rank-0: No such file" in done.stderr


def test_a_forked_rank_has_its_own_environment_and_not_its_zygotes(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(
        "import os, time; open(os.environ['MARKS'] + f'/{os.getpid()}.pid', 'w'); time.sleep(1000)"
    )
    started = jobs.start(
        tmp_path, "--detach", "--ranks", "2", "--zygote", "always", "--", str(tmp_path / "wait.py")
    )
    try:
        started.pids(2)
        assert {worker["how"] for _, worker in started.state().workers} == {"zygote"}
        text = "[os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'PENSTOCK_WORKER')]"
        done = penstock(tmp_path, "exec", started.job.id, "--rank", "1", "--python", text)
        assert done.stdout == "['1', '2', 'rank-1']\n"
    finally:
        penstock(tmp_path, "stop", started.job.id, "--force")
        jobs.end(started)


def test_a_process_in_namespaces_of_its_own_is_met_there(running: Running) -> None:
    """Goal: beside isolated workers too. Method: a process that is number 1 of its world; who is beside it has a small number."""
    gang, worker = running.state().workers[0]
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sleep",
        "1000",
    ]
    keeper = subprocess.Popen(words)
    try:
        wait_until(lambda: descendants(children_of(everyone()), keeper.pid), "it has a child")
        ((_, inside),) = descendants(children_of(everyone()), keeper.pid)
        wait_until(lambda: process(inside.pid).words()[:1] == ["sleep"], "it has mounted and begun")  # type: ignore[union-attr]
        reading, writing = os.pipe()
        beside = Beside(running.job, gang, {**worker, "how": "exec"}, inside)
        pid = start(
            beside, ["bash", "-c", "echo $$ $(readlink /proc/1/exe); exit 5"], outputs=(writing, writing)
        )
        os.close(writing)
        with os.fdopen(reading) as output:
            number, first = output.read().split()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        assert int(number) < 10
        assert first.endswith(("sleep", "coreutils"))
    finally:
        keeper.kill()
        keeper.wait()


def test_beside_a_rank_of_an_isolated_job(tmp_path: Path) -> None:
    started = jobs.start(
        tmp_path, "--isolate", "--detach", "--", "bash", "-c", "touch $MARKS/begun; sleep 1000 & wait"
    )
    try:
        wait_until((started.marks / "begun").exists, "the rank has begun")
        done = penstock(
            tmp_path,
            "exec",
            started.job.id,
            "--",
            "bash",
            "-c",
            "echo $RANK $(readlink /proc/self/ns/pid); exit 4",
        )
        (_, worker) = started.state().workers[0]
        assert done.stdout.split() == ["0", os.readlink(f"/proc/{worker['pid']}/ns/pid")]
        assert done.returncode == 4
    finally:
        penstock(tmp_path, "stop", started.job.id, "--force")
        jobs.end(started)
