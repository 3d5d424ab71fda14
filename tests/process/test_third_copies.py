"""P5 and P2 when keeper and agent are killed together: the launcher has copies of the pipes, finishes the logs, and ends what is left."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.process.jobs import PATIENCE_S, Running, is_alive, wait_until

Run = Callable[..., Running]
#: A line, then a byte in a file of its own: what was counted is in the pipe. And a child that nobody finds by its environment.
TALKER = r"""
(setsid env -i bash -c 'trap "" TERM; echo > '$MARKS'/$$.pid; exec sleep 1000' > /dev/null 2>&1 &)
echo > $MARKS/$$.pid
exec {never}<> <(:)
for ((line = 1; ; line++)); do
    echo "$PENSTOCK_INCARNATION $line" && printf . >> $MARKS/$RANK.$PENSTOCK_INCARNATION.count
    echo "$PENSTOCK_INCARNATION $line" >&2
    read -t 0.01 -u $never
done
"""


def count(running: Running, rank: int, life: int = 0) -> int:
    """How many lines a rank has written."""
    path = running.marks / f"{rank}.{life}.count"
    return path.stat().st_size if path.exists() else 0


def kill_both(running: Running, ranks: int) -> None:
    """Stop keeper and agent, wait for lines that nobody reads any more, and kill them."""
    state = running.state()
    owners = (state.keeper, state.agent)
    for pid in owners:
        os.kill(pid, signal.SIGSTOP)
    before = [count(running, rank) for rank in range(ranks)]
    wait_until(
        lambda: all(count(running, rank) >= before[rank] + 5 for rank in range(ranks)), "lines nobody reads"
    )
    for pid in owners:
        # Without a keeper the kernel ends the agent: at once, or when it is killed.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_whole(running: Running, ranks: int, life: int = 0) -> None:
    """Every line of every rank, once and in order."""
    for rank in range(ranks):
        for stream in ("stdout", "stderr"):
            lines = (running.job.directory / "logs" / f"rank-{rank}.{stream}").read_text().splitlines()
            of_life = [line for line in lines if line.startswith(f"{life} ")]
            assert of_life == [f"{life} {number}" for number in range(1, len(of_life) + 1)]
            # The rank may have been killed between the two streams.
            assert len(of_life) >= count(running, rank, life) - (stream == "stderr")


@pytest.mark.parametrize("way", [[], ["--no-cgroup"], ["--isolate"]], ids=["groups", "plain", "isolated"])
def test_no_line_is_lost_with_keeper_and_agent_and_nobody_stays(run: Run, way: list[str]) -> None:
    """Goal: P5 and P2. Method: stop both, let ranks write on, kill both; then look at logs and processes, without another command."""
    running = run("--ranks", "2", *way, "--", "bash", "-c", TALKER)
    pids = running.pids(4)

    kill_both(running, 2)

    assert running.launcher is not None
    _, complaint = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 1
    assert complaint.endswith(b"error: keeper and agent were killed\n")
    if "--isolate" not in way:
        assert not any(map(is_alive, pids))
    assert_whole(running, 2)


def test_copies_of_many_ranks_fit_below_a_small_limit_which_ranks_keep(run: Run) -> None:
    """Goal: P5 of every rank. Method: 40 ranks, and 64 descriptors a process unless it asks for more."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, hard))
    script = "ulimit -Sn > $MARKS/$RANK.limit;" + TALKER
    running = run("--ranks", "40", "--", "bash", "-c", script, preexec_fn=limit)
    running.pids(80)

    kill_both(running, 40)

    assert running.launcher is not None
    running.launcher.communicate(timeout=PATIENCE_S)
    assert_whole(running, 40)
    assert {path.read_text() for path in running.marks.glob("*.limit")} == {"64\n"}


def test_a_stopped_launcher_holds_nobody_back_and_has_what_it_finds_later(run: Run, tmp_path: Path) -> None:
    """Goal: lives go on without it. Method: stop it, kill ranks of one life after the other, kill keeper and agent, and let it go on."""
    words = ["--ranks", "2", "--restarts", "9", "--backoff", "0", "--", "bash", "-c", TALKER]
    with (tmp_path / "output").open("wb") as output:
        running = run(*words, stdout=output, stderr=output)
    running.pids(4)
    assert running.launcher is not None
    os.kill(running.launcher.pid, signal.SIGSTOP)
    for life in range(4):
        wait_until(lambda life=life: count(running, 1, life) > 3, f"life {life} runs")  # type: ignore[misc]
        victim = next(worker["pid"] for worker in running.state().gangs[0].workers if worker["rank"] == 1)
        os.kill(victim, signal.SIGKILL)
    wait_until(lambda: count(running, 0, 4) > 3 and count(running, 1, 4) > 3, "life 4 runs")
    pids = [int(path.stem) for path in running.marks.glob("*.pid")]
    state = running.state()
    for pid in (state.keeper, state.agent):
        os.kill(pid, signal.SIGSTOP)
    for pid in (state.keeper, state.agent):
        os.kill(pid, signal.SIGKILL)

    os.kill(running.launcher.pid, signal.SIGCONT)

    assert running.launcher.wait(PATIENCE_S) == 1
    assert not any(map(is_alive, pids))
    for life in range(5):
        assert_whole(running, 2, life)


def test_an_agent_that_ends_in_order_leaves_nothing_to_the_launcher(run: Run) -> None:
    """Goal: nothing is written twice. Method: kill the agent, then the keeper of its successor; the agent then ends the job itself."""
    words = ["--ranks", "2", "--restarts", "9", "--backoff", "0", "--", "bash", "-c", TALKER]
    running = run(*words)
    running.pids(4)
    os.kill(running.state().agent, signal.SIGKILL)
    wait_until(lambda: count(running, 0, 1) > 3 and count(running, 1, 1) > 3, "another agent")
    os.kill(running.state().keeper, signal.SIGKILL)
    assert running.launcher is not None
    _, complaint = running.launcher.communicate(timeout=PATIENCE_S)
    assert b"error: the keeper was killed" in complaint
    for life in range(2):
        assert_whole(running, 2, life)


@pytest.mark.parametrize("both", [False, True], ids=["agent", "keeper and agent"])
def test_a_line_that_was_read_and_not_written_is_not_lost(run: Run, both: bool) -> None:
    """Goal: P5 between the read and the write. Method: the index of times becomes a fifo that nobody reads, so that the agent waits
    there with a line in its hands; then it is killed."""
    script = "echo > $MARKS/$$.pid; read; for line in 1 2; do echo $line; sleep 0.5; done; echo > $MARKS/said; exec sleep 1000"
    running = run("--stdin", "0", "--", "bash", "-c", script, stdin=subprocess.PIPE)
    running.pids(1)
    state = running.state()
    times = running.job.directory / "logs" / "rank-0.times"
    times.unlink()
    os.mkfifo(times)
    assert running.launcher is not None
    assert running.launcher.stdin is not None
    running.launcher.stdin.write(b"\n")
    running.launcher.stdin.flush()
    wait_until((running.marks / "said").exists, "the rank has said what it has to say")
    times.unlink()
    log = running.job.directory / "logs" / "rank-0.stdout"
    assert log.read_text() == ""

    for pid in (state.keeper, state.agent)[not both :]:
        os.kill(pid, signal.SIGKILL)

    running.launcher.communicate(timeout=PATIENCE_S)
    assert log.read_text() == "1\n2\n"
