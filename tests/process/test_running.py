"""`penstock run` and its companions: environment, exit codes, Ctrl-C, bad input."""

import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.state.ranks.clock import Clock
from tests.process.jobs import PATIENCE_S, Running, is_alive, penstock, wait_until

Run = Callable[..., Running]
#: Ends orderly after SIGTERM, which it shows.
ORDERLY = "trap 'echo saved; exit 0' TERM INT; touch $MARKS/$$.pid; sleep 1000 & wait"
#: Does not.
DEAF = "trap '' TERM INT; touch $MARKS/$$.pid; while :; do sleep 1000; done"


def test_ranks_find_the_environment_of_torchrun(run: Run) -> None:
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    running = run(
        "--nproc-per-node", "2", "--max-restarts", "4", "--standalone", "--", sys.executable, "-c", code
    )
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    seen = {int(line[1]): json.loads(line[4:]) for line in out.decode().splitlines()}
    for rank in range(2):
        mine = seen[rank]
        assert [mine[n] for n in ("RANK", "LOCAL_RANK", "ROLE_RANK")] == [str(rank)] * 3
        assert [mine[n] for n in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")] == ["2"] * 3
        assert (mine["GROUP_RANK"], mine["GROUP_WORLD_SIZE"], mine["MASTER_ADDR"]) == ("0", "1", "127.0.0.1")
        assert (mine["TORCHELASTIC_MAX_RESTARTS"], mine["TORCHELASTIC_RESTART_COUNT"]) == ("4", "0")
        assert mine["TORCHELASTIC_RUN_ID"] == mine["PENSTOCK_JOB"] == running.job.id
        assert (mine["PENSTOCK_INCARNATION"], mine["OMP_NUM_THREADS"]) == (
            "0",
            os.environ.get("OMP_NUM_THREADS", "1"),
        )
    assert seen[0]["MASTER_PORT"] == seen[1]["MASTER_PORT"]


def test_ranks_made_for_torchrun_meet(run: Run, tmp_path: Path) -> None:
    """Goal: drop-in for torchrun. Method: a script that only calls init_process_group and adds up."""
    (tmp_path / "meet.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor([dist.get_rank() + 1])\n"
        "dist.all_reduce(total)\n"
        "print('total', total.item())\n"
        "dist.destroy_process_group()\n"
    )
    running = run("--ranks", "2", "--", str(tmp_path / "meet.py"))
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=120)
    assert running.launcher.returncode == 0, err
    assert sorted(out.splitlines()) == [b"[0] total 3", b"[1] total 3"]


def test_a_module_is_run_with_m(run: Run) -> None:
    running = run("-m", "--", "json.tool", "--help")
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0
    assert b"usage" in out


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 5", 5), ("kill -KILL $$", 137)])
def test_the_exit_code_is_the_ranks(run: Run, script: str, code: int) -> None:
    running = run("--", "bash", "-c", script)
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == code


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_to_the_launcher_is_an_orderly_stop(run: Run, signum: signal.Signals, code: int) -> None:
    running = run("--ranks", "2", "--", "bash", "-c", ORDERLY)
    running.pids(2)
    assert running.launcher is not None
    running.launcher.send_signal(signum)
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == code, err
    assert sorted(out.splitlines()) == [b"[0] saved", b"[1] saved"]
    assert running.job.phase() == "stopped"


def test_a_second_interrupt_forces(run: Run) -> None:
    """Goal: nobody has to wait for a deaf rank. Method: a grace of an hour."""
    running = run("--grace", "3600", "--", "bash", "-c", DEAF)
    (rank,) = running.pids(1)
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGINT)
    wait_until(lambda: running.state().phase == "ending", "the first one asks")
    assert is_alive(rank)
    # What follows within a tenth of a second is the same wish.
    Clock().pause(0.2)
    running.launcher.send_signal(signal.SIGINT)
    assert running.launcher.wait(PATIENCE_S) == 130
    assert not is_alive(rank)


def test_jobs_ps_and_stop_tell_programs_what_is(run: Run) -> None:
    running = run("--detach", "--json", "--ranks", "2", "--", "bash", "-c", ORDERLY)
    assert running.launcher is not None
    out, _ = running.launcher.communicate(timeout=PATIENCE_S)
    pids = running.pids(2)
    name = json.loads(out)["job"]
    (listed,) = map(json.loads, penstock(running.home, "jobs", "--json").stdout.splitlines())
    shown = [json.loads(line) for line in penstock(running.home, "ps", name, "--json").stdout.splitlines()]
    assert (listed["job"], listed["phase"], listed["ranks"]) == (name, "running", 2)
    assert sorted(row["pid"] for row in shown if "bash" in row["command"]) == sorted(pids)
    assert {row["rank"] for row in shown if "sleep" in row["command"]} == {0, 1}
    assert stat.S_IMODE((running.job.directory / "agent.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(running.job.directory.stat().st_mode) == 0o700

    stopped = penstock(running.home, "stop", name[:-1], "--json")

    assert json.loads(stopped.stdout) == {
        "job": name,
        "phase": "stopped",
        "reason": "stopped by `penstock stop`",
    }
    assert not any(map(is_alive, pids))
    assert penstock(running.home, "stop", name).returncode == 0
    assert "over" in penstock(running.home, "ps", name).stdout
    assert penstock(running.home, "jobs").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "there is no command to run"),
        (["run", "--ranks", "0", "--", "true"], "ranks must be 1 to 4096, got 0"),
        (["run", "--restarts", "-1", "--", "true"], "must be 0 or more"),
        (["run", "--nnodes", "2", "--", "true"], "nothing says where they meet"),
        (["run", "--name", "../x", "--", "true"], "cannot be the name of a job"),
        (["run", "--json", "--", "true"], "--json goes with --detach"),
        (["run", "--", "no-such-program"], "no program 'no-such-program' was found"),
        (["run", "--", "no-such-script.py"], "there is no file no-such-script.py"),
        (["run", "--master-port", "70000", "--", "true"], "must be 1 to 65535, got 70000"),
        (["stop", "nobody"], "there is no job 'nobody'"),
        (["stop", "nobody", "--grace", "-1"], "seconds from 0 to a day"),
        (["logs", "nobody"], "there is no job 'nobody'"),
        (["ps", "nobody"], "there is no job 'nobody'"),
    ],
)
def test_bad_input_gets_a_sentence(tmp_path: Path, words: list[str], message: str) -> None:
    done = penstock(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_cannot_be_executed_fails_once_with_its_reason(run: Run, tmp_path: Path) -> None:
    """Goal: no restarts for what cannot work. Method: an executable file whose interpreter is not there."""
    program = tmp_path / "broken"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    running = run("--restarts", "5", "--", str(program))
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 127
    assert f"cannot start `{program}`".encode() in err
    assert running.state().incarnation == 0
