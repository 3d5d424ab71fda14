"""`penstock attach`: a job in the foreground again, which depends on nobody who looks at it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.process.jobs import PATIENCE_S, PENSTOCK, Running, penstock, wait_until
from tests.process.person import Person

Run = Callable[..., Running]
#: Ten lines, and another one when it may end.
COUNTING = "for n in 0 1 2 3 4 5 6 7 8 9; do echo line $n of $RANK; done; until [ -e $MARKS/go ]; do sleep 0.01; done; echo end; exit 3"


@pytest.fixture
def detached(run: Run) -> Running:
    """A job that runs until it may end, and has said what it says before."""
    running = run("--detach", "--ranks", "1", "--", "bash", "-c", COUNTING)
    wait_until(
        lambda: "line 9" in penstock(running.home, "logs", running.job.id).stdout, "all lines are there"
    )
    return running


@pytest.fixture
def person(detached: Running) -> Iterator[Person]:
    """Somebody who attaches at a terminal of six lines."""
    someone = Person(detached.home, detached.job.id, command="attach", rows=6)
    someone.wait_words("line 9")
    yield someone
    # A terminal that closes ends whoever is in front of it.
    someone.close()
    assert someone.running.launcher is not None
    someone.running.launcher.wait(PATIENCE_S)


def attached(running: Running, *words: str) -> "subprocess.Popen[str]":
    """The command in a pipe, where nobody can be asked."""
    return subprocess.Popen(
        [*PENSTOCK, "attach", running.job.id, *words],
        env={**os.environ, "PENSTOCK_HOME": str(running.home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_last_lines_then_what_comes_and_the_jobs_own_exit_code(detached: Running) -> None:
    watching = attached(detached, "--tail", "2")
    assert watching.stdout is not None
    first = [watching.stdout.readline(), watching.stdout.readline()]
    (detached.marks / "go").touch()
    rest, words = watching.communicate(timeout=PATIENCE_S)

    assert first == ["[0] line 8 of 0\n", "[0] line 9 of 0\n"]
    assert rest == "[0] end\n"
    assert watching.returncode == 3
    assert "failed" in words


def test_a_job_that_is_over_shows_its_last_lines_and_ends_as_it_did(detached: Running) -> None:
    (detached.marks / "go").touch()
    detached.wait_phase("failed")

    done = penstock(detached.home, "attach", detached.job.id, "--tail", "1", "--json")

    assert done.returncode == 3
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["end"]


def test_a_screen_is_what_the_terminal_holds(person: Person) -> None:
    assert [line for line in person.lines() if "line" in line] == [f"[0] line {n} of 0" for n in range(5, 10)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
def test_whoever_attaches_may_leave_in_any_way_and_the_job_goes_on(detached: Running, number: int) -> None:
    """Goal: P2, an attachment owns nothing. Method: two attach, one is gone by a signal, the other sees the end."""
    leaving, staying = attached(detached, "--tail", "1"), attached(detached, "--tail", "1")
    for watching in (leaving, staying):
        assert watching.stdout is not None
        assert watching.stdout.readline() == "[0] line 9 of 0\n"

    leaving.send_signal(number)
    leaving.communicate(timeout=PATIENCE_S)
    assert detached.job.phase() == "running"
    (detached.marks / "go").touch()

    assert staying.communicate(timeout=PATIENCE_S)[0] == "[0] end\n"
    assert leaving.returncode == (130 if number == signal.SIGINT else -number)


def test_ctrl_c_asks_and_d_detaches(detached: Running, person: Person) -> None:
    person.type(b"\x03")
    person.wait_words("d detaches, s stops the job, c continues")
    person.type(b"d\n")

    assert person.wait_end() == 0
    assert detached.job.phase() == "running"
    assert any("goes on" in line for line in person.lines())


def test_ctrl_c_asks_and_c_continues_and_s_stops(detached: Running, person: Person) -> None:
    person.type(b"\x03")
    person.wait_words("c continues")
    person.type(b"c\n")
    person.wait_words("output continues")
    person.type(b"\x03s\n")

    assert person.wait_end() == detached.wait_phase("stopped").exit_code


def test_a_second_ctrl_c_detaches(detached: Running, person: Person) -> None:
    person.type(b"\x03")
    person.wait_words("d detaches")
    person.type(b"\x03")

    assert person.wait_end() == 0
    assert detached.job.phase() == "running"


@pytest.mark.parametrize("tail", ["-1", "1000001"])
def test_a_tail_beyond_limits_is_refused(detached: Running, tail: str) -> None:
    done = penstock(detached.home, "attach", detached.job.id, "--tail", tail)

    assert done.returncode == 2
    assert f"got {tail}" in done.stderr
