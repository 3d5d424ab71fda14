"""Jobs whose ranks are forked: restarts, deaths of the zygote and of its owner, and ranks that are executed after all."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.process import JobState
from tests.process.jobs import PATIENCE_S, Running, is_alive, wait_until

Run = Callable[..., Running]
#: Two ranks that meet, compute with as many threads as they are told, load data in processes, and wait.
TORCH = """
import os, signal, sys
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor([index])

def main():
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    life = os.environ["PENSTOCK_INCARNATION"]
    loaded = int(sum(batch.sum() for batch in DataLoader(Numbers(), num_workers=2, multiprocessing_context="fork")))
    model = torch.nn.Linear(64, 64)
    loss = model(torch.ones(256, 64)).square().sum()
    loss.backward()
    print(life, total.item(), loaded, torch.get_num_threads(), "torch" in sys.modules, flush=True)
    open(f"{os.environ['MARKS']}/{os.getpid()}.pid", "w")
    if life == "0": signal.pause()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
#: Writes its number down, then waits.
PATIENT = "import os, signal; open(f\"{os.environ['MARKS']}/{os.getpid()}.pid\", 'w'); signal.pause()"


def hows(state: JobState) -> set[str]:
    """How the workers came to be."""
    return {worker["how"] for _, worker in state.workers}


def facts(running: Running, event: str) -> list[dict[str, object]]:
    """What the journal has about something."""
    lines = (running.job.directory / "journal.jsonl").read_text().splitlines()
    return [line["about"] for line in map(json.loads, lines) if line["event"] == event]


def test_ranks_with_torch_are_forked_in_every_life(run: Run, tmp_path: Path) -> None:
    """Goal: what torch does in a rank it does in a forked one: collectives, threads, data loaders; and again after a kill."""
    (tmp_path / "train.py").write_text(TORCH)
    running = run(
        "--ranks",
        "2",
        "--restarts",
        "1",
        "--",
        str(tmp_path / "train.py"),
        environment={"OMP_NUM_THREADS": "2"},
    )
    wait_until(lambda: len(list(running.marks.glob("*.pid"))) == 2, "both ranks are in life 0", timeout_s=120)
    first = running.state()
    assert hows(first) == {"zygote"}
    assert "torch, torch._dynamo, torch.distributed" in first.gangs[0].zygote

    os.kill(first.gangs[0].workers[1]["pid"], signal.SIGKILL)

    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=120)
    assert running.launcher.returncode == 0, err
    lines = sorted(out.decode().splitlines())
    said = "3 28 2 True"
    assert lines == [f"[{rank}] {life} {said}" for rank in range(2) for life in range(2)]
    last = running.state()
    assert (hows(last), last.zygote, last.incarnation) == ({"zygote"}, 0, 1)
    assert not is_alive(first.zygote)


def test_a_killed_zygote_touches_no_rank_and_comes_back(run: Run) -> None:
    """Goal: P2, it owns nothing. Method: kill it, then a rank: the next life is forked from the next zygote."""
    running = run("--ranks", "3", "--restarts", "1", "--", sys.executable, "-c", PATIENT)
    before = running.pids(3)
    state = running.state()
    assert (hows(state), sorted(w["pid"] for _, w in state.workers)) == ({"zygote"}, sorted(before))

    os.kill(state.zygote, signal.SIGKILL)

    wait_until(lambda: running.state().zygote not in (0, state.zygote), "another zygote is there")
    assert all(map(is_alive, before))
    wait_until(lambda: sum("ready" in fact for fact in facts(running, "zygote")) == 2, "it is warm")
    os.kill(before[0], signal.SIGKILL)
    after = [pid for pid in running.pids(6) if pid not in before]
    assert not any(map(is_alive, before))
    newest = running.state()
    assert (sorted(w["pid"] for _, w in newest.workers), hows(newest)) == (sorted(after), {"zygote"})
    assert newest.agent == state.agent


@pytest.mark.parametrize("victim", ["launcher", "keeper", "agent"])
def test_a_zygote_and_its_ranks_go_with_their_owner(run: Run, victim: str) -> None:
    running = run("--ranks", "2", "--restarts", "1", "--", sys.executable, "-c", PATIENT)
    ranks = running.pids(2)
    state = running.state()
    assert hows(state) == {"zygote"}
    assert is_alive(state.zygote)
    assert running.launcher is not None
    pids = {"launcher": running.launcher.pid, "keeper": state.keeper, "agent": state.agent}

    os.kill(pids[victim], signal.SIGKILL)

    wait_until(lambda: not any(map(is_alive, [*ranks, state.zygote])), "zygote and ranks are gone")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "threads"),
        ("import os; os._exit(9)", "the zygote exited with code 9"),
    ],
)
def test_ranks_are_executed_when_the_zygote_is_unfit_and_the_reason_is_shown(
    run: Run, tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "unfit.py").write_text(text)
    running = run(
        "--ranks",
        "2",
        "--preload",
        "unfit",
        "--",
        sys.executable,
        "-c",
        "print('here')",
        environment={"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert (running.launcher.returncode, sorted(out.splitlines())) == (0, [b"[0] here", b"[1] here"]), err
    state = running.state()
    assert hows(state) == {"exec"}
    assert reason in state.gangs[0].zygote
    assert len(facts(running, "zygote")) == 1


def test_a_job_can_be_stopped_while_its_zygote_gets_warm(run: Run, tmp_path: Path) -> None:
    """Goal: nobody waits for an import that does not end. Method: one that never does."""
    (tmp_path / "endless.py").write_text(
        "import signal, os; open(os.environ['MARKS'] + '/importing', 'w'); signal.pause()"
    )
    running = run(
        "--ranks",
        "2",
        "--preload",
        "endless",
        "--",
        sys.executable,
        "-c",
        PATIENT,
        environment={"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    wait_until((running.marks / "importing").exists, "the import has begun")
    wait_until(
        lambda: "waits for a warm Python with endless" in running.state().gangs[0].reason, "that is told"
    )
    zygote = running.state().zygote
    assert is_alive(zygote)
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGINT)
    assert running.launcher.wait(PATIENCE_S) == 130
    assert not is_alive(zygote)
    assert running.state().workers == []


def test_the_words_about_a_failure_are_those_of_python(run: Run, tmp_path: Path) -> None:
    """Goal: exit code, traceback and signal of a forked rank reach the person unchanged."""
    (tmp_path / "fails.py").write_text("def deep():\n    raise KeyError('weight')\ndeep()\n")
    outcomes = []
    for mode in ("always", "never"):
        running = run("--zygote", mode, "--", str(tmp_path / "fails.py"))
        assert running.launcher is not None
        running.launcher.communicate(timeout=PATIENCE_S)
        assert hows(running.state()) == {"zygote" if mode == "always" else "exec"}
        log = (running.job.directory / "logs/rank-0.stderr").read_text()
        outcomes.append((running.launcher.returncode, log, running.state().reason))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1].endswith("KeyError: 'weight'\n")


def test_a_zygote_that_nobody_will_need_again_is_not_kept(run: Run) -> None:
    """Goal: no memory for a restart that cannot come. Its ranks do not notice."""
    running = run("--ranks", "2", "--", sys.executable, "-c", PATIENT)
    ranks = running.pids(2)
    wait_until(lambda: running.state().zygote == 0, "the zygote is gone")
    first, last = facts(running, "zygote")
    assert "ready" in first
    assert "no restarts were asked for" in str(last["unusable"])
    assert not is_alive(int(str(first["pid"])))
    assert all(map(is_alive, ranks))
    assert hows(running.state()) == {"zygote"}


def test_many_ranks_are_forked_by_several_forkers(run: Run) -> None:
    """Goal: batches are put together in order."""
    code = "import os; print(os.environ['RANK'], os.environ['PENSTOCK_WORKER'], os.getpid())"
    running = run("--ranks", "40", "--", sys.executable, "-c", code)
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    state = running.state()
    pids = {worker["rank"]: worker["pid"] for _, worker in state.workers}
    said = sorted(line.split("] ")[1].split() for line in out.decode().splitlines())
    assert said == sorted([str(rank), f"rank-{rank}", str(pids[rank])] for rank in range(40))
    assert hows(state) == {"zygote"}


def test_a_program_that_changes_runs_as_it_stands_and_every_rank_shows_its_warnings(
    run: Run, tmp_path: Path
) -> None:
    """Goal: that ranks share a compiled program is seen by nobody. Method: a script that warns when it is compiled, and replaces itself."""
    script = tmp_path / "changes.py"
    other = 'import os\nprint("other", os.environ["RANK"], 1 is 1)\n'
    script.write_text(
        f"import sys\nprint(1 is 1)\nopen({str(script)!r}, 'w').write({other!r})\nsys.exit(1)\n"
    )
    words = ["--ranks", "1", "--restarts", "1", "--backoff", "0", "--zygote", "always"]
    running = run(*words, "--", sys.executable, str(script))
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    assert out == b"[0] True\n[0] other 0 True\n"
    assert err.count(b'SyntaxWarning: "is" with') == 2
    assert hows(running.state()) == {"zygote"}
