"""Jobs of several roles, from files: who comes after whom, who is started again with whom, and what the launcher exits with."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.process.jobs import PATIENCE_S, Running, is_alive, penstock, wait_until

Run = Callable[..., Running]
#: Says which life it is, leaves its number, and waits.
WAITER = "echo life $PENSTOCK_INCARNATION; touch $MARKS/$$.pid; sleep 1000 & wait"


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return str(path)


def test_a_service_a_gang_and_a_task_come_in_order_and_the_service_goes_last(
    run: Run, tmp_path: Path
) -> None:
    """Goal: `after` and kinds. Method: each role leaves a mark; who comes later fails unless the mark is there."""
    file = write(
        tmp_path,
        """
        [roles.eval]
        kind = "task"
        after = ["trainer"]
        command = ["bash", "-c", "[ $(ls $MARKS/trained-* | wc -l) = 2 ] && echo evaluated"]

        [roles.trainer]
        ranks = 2
        after = ["data", "download"]
        environment = { COLOUR = "blue" }
        command = ["bash", "-c", "[ -e $MARKS/downloaded ] && touch $MARKS/trained-$RANK && echo $COLOUR $WORLD_SIZE $ROLE_NAME"]

        [roles.data]
        kind = "service"
        command = ["bash", "-c", "touch $MARKS/$$.pid; sleep 1000"]

        [roles.download]
        kind = "task"
        command = ["bash", "-c", "touch $MARKS/downloaded"]
        """,
    )
    running = run("--file", file)
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    shown = {tuple(line.split(b"] ")) for line in out.replace(b"[", b"").splitlines()}
    assert {(who.strip(), what) for who, what in shown} == {
        (b"trainer-0", b"blue 2 trainer"),
        (b"trainer-1", b"blue 2 trainer"),
        (b"eval-0", b"evaluated"),
    }
    (service,) = running.pids(1)
    assert not is_alive(service)
    phases = {gang.role: gang.phase for gang in running.state().gangs}
    assert phases == {"eval": "succeeded", "trainer": "succeeded", "data": "stopped", "download": "succeeded"}
    assert (running.job.directory / "logs/trainer-1.stdout").read_bytes() == b"blue 2 trainer\n"


@pytest.mark.parametrize(
    ("scope", "lives"),
    [
        ("one", {"a-0": 1, "a-1": 2, "b-0": 1}),
        ("gang", {"a-0": 2, "a-1": 2, "b-0": 1}),
        ("all", {"a-0": 2, "a-1": 2, "b-0": 2}),
    ],
)
def test_a_failure_restarts_as_many_as_the_policy_says(
    run: Run, tmp_path: Path, scope: str, lives: dict[str, int]
) -> None:
    """Goal: restart = one | gang | all. Method: kill a-1 of two roles and count the lives that every log tells."""
    file = write(
        tmp_path,
        f"""
        [roles.a]
        ranks = 2
        restart = "{scope}"
        restarts = 1
        command = ["bash", "-c", '{WAITER}']

        [roles.b]
        restarts = 1
        command = ["bash", "-c", '{WAITER}']
        """,
    )
    running = run("--file", file, "--detach")
    running.pids(3)
    victim = next(w["pid"] for g, w in running.state().workers if (g.role, w["rank"]) == ("a", 1))
    os.kill(victim, signal.SIGKILL)
    running.pids(sum(lives.values()))

    def told() -> dict[str, int]:
        logs = running.job.directory / "logs"
        return {name: (logs / f"{name}.stdout").read_bytes().count(b"life") for name in lives}

    wait_until(lambda: told() == lives, f"{told()} is {lives}")
    assert running.job.phase() == "running"
    assert penstock(running.home, "stop", running.job.id, "--force").returncode == 0


@pytest.mark.parametrize(
    ("trainer", "evaluation", "code"),
    [("exit 0", "exit 0", 0), ("exit 7", "exit 0", 7), ("exit 0", "exit 9", 9)],
)
def test_the_exit_code_is_that_of_the_first_role_that_failed(
    run: Run, tmp_path: Path, trainer: str, evaluation: str, code: int
) -> None:
    file = write(
        tmp_path,
        f"""
        [roles.data]
        kind = "service"
        command = "sleep 1000"

        [roles.trainer]
        after = "data"
        command = ["bash", "-c", "{trainer}"]

        [roles.eval]
        kind = "task"
        after = "trainer"
        command = ["bash", "-c", "touch $MARKS/evaluated; {evaluation}"]
        """,
    )
    running = run("--file", file)
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == code
    assert (running.marks / "evaluated").exists() is (trainer == "exit 0")


def test_a_job_file_is_told_before_it_is_run(tmp_path: Path) -> None:
    """Goal: --dry-run. Method: the example, as text with its order, and as the document that the agent would read."""
    example = str(ROOT / "examples/jobs/three_roles.toml")
    text = penstock(tmp_path, "run", "--file", example, "--dry-run", "--set", "roles.trainer.ranks=3").stdout
    assert [line for line in text.splitlines() if line[:1].isdigit()] == [
        "1. data: service of 1 rank",
        "2. trainer: gang of 3 ranks, once data runs",
        "3. eval: task of 1 rank, once trainer succeeded",
    ]
    document = json.loads(penstock(tmp_path, "run", "--file", example, "--dry-run", "--json").stdout)
    assert [role["name"] for role in document["roles"]] == ["data", "trainer", "eval"]
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks", "2"], "--ranks goes with a command"),
        (["--", "true"], "--file and a command (true) exclude each other"),
        (["--set", "roles.nobody.ranks=1"], "roles.nobody: there is no command to run"),
    ],
)
def test_a_file_says_what_runs_and_the_command_line_only_how(
    tmp_path: Path, words: list[str], message: str
) -> None:
    file = write(tmp_path, '[roles.a]\ncommand = ["true"]\n')
    done = penstock(tmp_path, "run", "--file", file, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_words_after_the_script_are_the_scripts_and_logs_go_where_they_are_wished(
    run: Run, tmp_path: Path
) -> None:
    """Goal: a command line of torchrun, unchanged. Method: options after the script that we have too, and --log-dir."""
    script = tmp_path / "show.py"
    script.write_text("import sys; print(sys.argv[1:])")
    running = run(
        "--nproc_per_node=1",
        "--log_dir",
        str(tmp_path / "logs"),
        str(script),
        "--ranks",
        "9",
        "--debug",
        "-h",
    )
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    assert out == b"[0] ['--ranks', '9', '--debug', '-h']\n"
    assert (tmp_path / "logs" / running.job.id / "rank-0.stdout").read_bytes() == out[4:]


def test_what_the_environment_of_torchrun_says_counts(tmp_path: Path) -> None:
    environment = {**os.environ, "PET_NPROC_PER_NODE": "3", "PENSTOCK_HOME": str(tmp_path)}
    words = [sys.executable, "-m", "penstock.cli.main", "run", "--dry-run", "--json", "--", "true"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["roles"][0]["ranks"] == 3


def test_ranks_that_are_filtered_are_kept_from_the_terminal_and_not_from_the_logs(run: Run) -> None:
    """Goal: torchrun's --local-ranks-filter and --redirects. Method: three ranks, one of which is shown, and only its stdout."""
    running = run(
        *(
            "--ranks",
            "3",
            "--local-ranks-filter",
            "1",
            "-r",
            "2",
            "--",
            "bash",
            "-c",
            "echo out $RANK; echo err $RANK >&2",
        )
    )
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert (running.launcher.returncode, out, err) == (0, b"[1] out 1\n", b"")
    logs = running.job.directory / "logs"
    assert [(logs / f"rank-{rank}.stdout").read_text() for rank in range(3)] == [
        "out 0\n",
        "out 1\n",
        "out 2\n",
    ]
    assert (logs / "rank-2.stderr").read_text() == "err 2\n"
