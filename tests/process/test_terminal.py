"""What the person sees: bars in place, prompts in time, whole lines; and terminals for workers."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process import jobs
from tests.process.jobs import PATIENCE_S, Running, wait_until
from tests.process.person import Person

Run = Callable[..., Running]
#: Draws a bar as tqdm does, a step further for each mark that the test makes.
BARS = """
import os, sys, time
from pathlib import Path
rank, marks = os.environ["RANK"], Path(os.environ["MARKS"])
for step in range(3):
    sys.stderr.write(f"\\r{step * 50:3}%|" + "#" * step * 4)
    while not (marks / f"go-{step}").exists():
        time.sleep(0.005)
    if step == 0 and rank == "1":
        print("a line of 1")
sys.stderr.write("\\n")
"""
#: Says how large its terminal is, at once and whenever that changes.
SIZES = """
import os, signal, sys
def show(*_):
    print(*os.get_terminal_size(1), flush=True)
signal.signal(signal.SIGWINCH, show)
print(os.isatty(0), os.isatty(1), os.isatty(2), os.path.samefile("/dev/stdout", "/dev/stderr"), flush=True)
open("/dev/tty", "w").write("controlled\\n")
show()
while not os.path.exists(os.environ["MARKS"] + "/go"):
    signal.sigtimedwait([], 0.01)
sys.stderr.write("to stderr\\n")
"""


@pytest.fixture
def sit(tmp_path: Path) -> Iterator[Callable[..., Person]]:
    """Persons who run something, each on a terminal of their own."""
    persons: list[Person] = []

    def begin(*words: str, **options: int) -> Person:
        persons.append(Person(tmp_path / f"home-{len(persons)}", *words, **options))
        return persons[-1]

    yield begin
    for person in persons:
        jobs.end(person.running)
        person.close()


def test_bars_of_several_ranks_are_rewritten_in_place_and_lines_go_above(sit: Callable[..., Person]) -> None:
    """Goal: progress in time, no torn line. Method: three ranks draw; after each step the whole terminal is compared."""
    person = sit("--ranks", "3", "--", sys.executable, "-c", BARS)
    person.wait_lines([f"[{rank}]   0%|" for rank in range(3)])
    (person.running.marks / "go-0").touch()
    person.wait_lines(["[1] a line of 1", *(f"[{rank}]  50%|####" for rank in range(3))])
    (person.running.marks / "go-1").touch()
    person.wait_lines(["[1] a line of 1", *(f"[{rank}] 100%|########" for rank in range(3))])
    (person.running.marks / "go-2").touch()
    assert person.wait_end() == 0
    assert sorted(person.lines()) == sorted(
        ["[1] a line of 1", *(f"[{rank}] 100%|########" for rank in range(3))]
    )
    for rank in range(3):
        log = (person.running.job.directory / f"logs/rank-{rank}.stderr").read_bytes()
        assert log == b"\r  0%|\r 50%|####\r100%|########\n"


def test_a_prompt_without_an_end_of_line_appears(sit: Callable[..., Person]) -> None:
    person = sit(
        "--", "bash", "-c", "printf 'Continue? '; until [ -e $MARKS/go ]; do sleep 0.01; done; echo yes"
    )
    person.wait_lines(["[0] Continue?"])
    (person.running.marks / "go").touch()
    assert person.wait_end() == 0
    assert person.lines() == ["[0] Continue? yes"]


def test_what_is_wider_than_the_terminal_is_cut_while_it_is_drawn_and_whole_when_it_is_a_line(
    sit: Callable[..., Person],
) -> None:
    script = "printf '%060d' 7; until [ -e $MARKS/go ]; do sleep 0.01; done; echo"
    person = sit("--", "bash", "-c", script, columns=40)
    person.wait_lines(["[0] " + "0" * 35])
    (person.running.marks / "go").touch()
    assert person.wait_end() == 0
    assert person.lines() == ["[0] " + "0" * 59 + "7"]


def test_without_a_terminal_a_bar_is_reduced_to_its_last_state(run: Run) -> None:
    script = r"printf '\r 0%%\r 50%%\r100%%\nsaved\r\n\rnext'"
    running = run("--", "bash", "-c", script)
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S)
    assert out == b"[0] 100%\n[0] saved\n[0] next\n"
    log = (running.job.directory / "logs/rank-0.stdout").read_bytes()
    assert log == b"\r 0%\r 50%\r100%\nsaved\r\n\rnext"


@pytest.mark.parametrize("zygote", ["never", "always"])
def test_a_worker_gets_a_terminal_of_its_own_that_follows_the_persons_size(
    sit: Callable[..., Person], tmp_path: Path, zygote: str
) -> None:
    """Goal: `--tty`. Method: a script that says what it stands on, started both ways, while the person's terminal changes."""
    (tmp_path / "sizes.py").write_text(SIZES)
    person = sit("--tty", "--zygote", zygote, "--", str(tmp_path / "sizes.py"), rows=30, columns=100)
    # The name takes four columns.
    begun = ["[0] False True True True", "[0] controlled", "[0] 96 30"]
    person.wait_lines(begun)
    person.resize(20, 60)
    person.wait_lines([*begun, "[0] 56 20"])
    (person.running.marks / "go").touch()
    assert person.wait_end() == 0
    assert person.lines() == [*begun, "[0] 56 20", "[0] to stderr"]
    logs = person.running.job.directory / "logs"
    assert (logs / "rank-0.stdout").read_bytes().splitlines(keepends=True)[-1] == b"to stderr\r\n"
    assert (logs / "rank-0.stderr").read_bytes() == b""


def test_a_terminal_loses_nothing_when_its_worker_ends(run: Run) -> None:
    """Goal: P5 for terminals. Method: ranks write more than a terminal holds and end at once; every byte is compared."""
    script = "for n in $(seq 4000); do echo $RANK:$n; done"
    running = run("--tty", "--ranks", "8", "--", "bash", "-c", script, stdout=-3)
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == 0
    for rank in range(8):
        log = (running.job.directory / f"logs/rank-{rank}.stdout").read_bytes()
        assert log == b"".join(b"%d:%d\r\n" % (rank, n) for n in range(1, 4001))


def test_the_last_words_on_a_terminal_tell_that_a_failure_is_the_same(run: Run) -> None:
    """Goal: no third try of what fails the same way. Method: a rank that says so on its terminal, after a bar."""
    script = r"printf '\r10%%\r20%%\n'; echo boom >&2; exit 3"
    running = run("--tty", "--restarts", "9", "--", "bash", "-c", script)
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 3, err
    state = running.state()
    assert state.incarnation == 1
    assert state.gangs[0].failures[0]["likeness"].endswith("boom")
    incident = json.loads((running.job.directory / state.incidents[0]).read_text())
    assert incident["ranks"][0]["stdout"] == ["20%", "boom"]


def test_the_person_leaving_ends_the_job_and_the_terminal_is_left_clean(sit: Callable[..., Person]) -> None:
    """Goal: Ctrl-C while a bar stands there. Method: the byte that a keyboard sends, on a real terminal."""
    person = sit("--", "bash", "-c", "trap 'exit 0' INT; printf 'at 10%%'; while :; do sleep 0.01; done")
    person.wait_lines(["[0] at 10%"])
    person.type(b"\x03")
    assert person.wait_end() == 130
    assert person.lines() == [
        "[penstock] stopping: ranks have 10 s (saving: 5 min); Ctrl-C again kills",
        "[0] at 10%",
        "stopped by SIGINT to the launcher",
    ]
    wait_until(lambda: person.running.job.phase() == "stopped", "the job is over")
