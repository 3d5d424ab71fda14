"""Standard input: one rank reads what is typed or piped, if it was asked for; else somebody is told that nobody does."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.jobs import PATIENCE_S, Running, penstock, wait_until
from tests.process.person import Person

Run = Callable[..., Running]
NOTE = b"note: standard input is not empty, and no rank reads it; `--stdin 0` gives it to rank 0\n"
HINT = b"hint: ranks read nothing from standard input; `--stdin 0` gives it to rank 0\n"
READER = "import os, sys; print(os.environ['RANK'], 'read', sys.stdin.read().split())"


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Callable[..., Person]]:
    """People at terminals, who leave when the test is over."""
    people: list[Person] = []

    def sit(*words: str) -> Person:
        people.append(Person(tmp_path / f"person-{len(people)}", *words))
        return people[-1]

    yield sit
    for visitor in people:
        visitor.close()


def test_a_pipe_and_a_file_reach_the_rank_that_was_asked_for(run: Run, tmp_path: Path) -> None:
    """Goal: pipelines work. Method: ranks that read all there is; one gets it, the others get the end at once."""
    piped = run("--ranks", "2", "--stdin", "1", "--", "python3", "-S", "-c", READER, stdin=subprocess.PIPE)
    assert piped.launcher is not None
    out, err = piped.launcher.communicate(b"one two\nthree", timeout=PATIENCE_S)
    assert sorted(out.splitlines()) == [b"[0] 0 read []", b"[1] 1 read ['one', 'two', 'three']"]
    assert err == b""

    (tmp_path / "lines").write_text("four five\n")
    with (tmp_path / "lines").open() as lines:
        reading = run("--stdin", "0", "--", "python3", "-S", "-c", READER, stdin=lines)
    assert reading.launcher is not None
    assert reading.launcher.communicate(timeout=PATIENCE_S)[0] == b"[0] 0 read ['four', 'five']\n"


def test_the_next_life_reads_on_where_the_last_one_stopped(run: Run) -> None:
    script = "read line; echo $PENSTOCK_INCARNATION $line; [ $PENSTOCK_INCARNATION = 1 ]"
    running = run(
        "--stdin", "0", "--restarts", "1", "--backoff", "0", "--", "bash", "-c", script, stdin=subprocess.PIPE
    )
    assert running.launcher is not None
    out, _ = running.launcher.communicate(b"first\nsecond\n", timeout=PATIENCE_S)
    assert out.splitlines() == [b"[0] 0 first", b"[0] 1 second"]


def test_a_debugger_takes_what_is_typed(person: Callable[..., Person]) -> None:
    """Goal: `breakpoint()` works at a terminal. Method: a real terminal, a real pdb, and a line for the program after it."""
    script = "import sys\nword = 'before'\nbreakpoint()\nprint(word, sys.stdin.readline())"
    typing = person("--stdin", "0", "--", "python3", "-c", script)
    wait_until(lambda: typing._read(0.05) and "(Pdb)" in "".join(typing.lines()), "the debugger asks")
    typing.type(b"word = 'after'\nc\n")
    typing.type(b"rest\n")
    assert typing.wait_end() == 0
    assert any("after rest" in line for line in typing.lines()), typing.lines()


def test_who_pipes_into_ranks_that_read_nothing_is_told(run: Run) -> None:
    piped = run("--", "bash", "-c", "sleep 0.3; cat", stdin=subprocess.PIPE)
    assert piped.launcher is not None
    assert piped.launcher.communicate(b"lost\n", timeout=PATIENCE_S) == (b"", NOTE)
    silent = run("--", "cat", stdin=subprocess.PIPE)
    assert silent.launcher is not None
    assert silent.launcher.communicate(timeout=PATIENCE_S) == (b"", b"")


def test_a_rank_that_wanted_to_read_is_told_how(run: Run) -> None:
    asking = run("--", "python3", "-S", "-c", "input('name? ')", stdin=subprocess.DEVNULL)
    assert asking.launcher is not None
    _, err = asking.launcher.communicate(timeout=PATIENCE_S)
    assert HINT in err, err


def test_a_detached_job_has_no_terminal_to_read(tmp_path: Path) -> None:
    refused = penstock(tmp_path, "run", "--detach", "--stdin", "0", "--", "cat")
    assert refused.returncode == 2
    assert "stdin belongs to the terminal, which a detached job does not have" in refused.stderr
    beyond = penstock(tmp_path, "run", "--stdin", "2", "--", "cat")
    assert "stdin must be 0 to 0, got 2" in beyond.stderr
