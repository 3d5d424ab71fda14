"""`penstock logs`: whose output, from when on, in which form; during the job and after it."""

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.process import Job, Launch, prepare
from penstock.process.job.launch import agent_path
from penstock.process.logs.reader import Worker
from penstock.process.logs.since import APART_MS, moment_ms, places_since
from penstock.state.ranks.clock import Clock
from tests.process.jobs import PENSTOCK, Running, penstock, wait_until

Run = Callable[..., Running]
WAITING = "echo one $RANK; echo oops >&2; until [ -e $MARKS/go ]; do sleep 0.01; done; echo two $RANK"


def begin(home: Path, roles: dict[str, tuple[int, str]]) -> Job:
    """A detached job of several roles."""
    job = prepare(home, Launch(command=["true"], detached=True))
    described = job.description()
    (first,) = described["roles"]
    described["roles"] = [
        {**first, "name": name, "ranks": ranks, "command": ["sh", "-c", script], "zygote": None}
        for name, (ranks, script) in roles.items()
    ]
    (job.directory / "job.json").write_text(json.dumps(described))
    return job


def launch(job: Job) -> None:
    """Start it; a detached one lives on."""
    subprocess.run([agent_path(), "launch", job.directory], check=True, timeout=30)


def follow(home: Path, *words: str) -> "subprocess.Popen[str]":
    """`penstock logs -f` in the background."""
    variables = {**os.environ, "PENSTOCK_HOME": str(home)}
    return subprocess.Popen(
        [*PENSTOCK, "logs", "-f", *words], env=variables, stdout=subprocess.PIPE, text=True
    )


def test_logs_can_be_read_from_any_place_and_followed(run: Run) -> None:
    running = run("--detach", "--ranks", "2", "--", "bash", "-c", WAITING)
    wait_until(
        lambda: "one 1" in penstock(running.home, "logs", running.job.id).stdout, "the first line is there"
    )
    (running.marks / "go").touch()

    followed = penstock(running.home, "logs", running.job.id, "-f")
    part = penstock(running.home, "logs", running.job.id, "--rank", "1", "--stream", "stdout", "--start", "6")

    assert sorted(followed.stdout.splitlines()) == sorted(
        f"[{rank}] {text}" for rank in range(2) for text in (f"one {rank}", "oops", f"two {rank}")
    )
    assert part.stdout == "two 1\n"


def test_roles_ranks_and_forms(tmp_path: Path) -> None:
    """Goal: any part of a job of several roles. Method: one job, asked in many ways after its end."""
    job = begin(
        tmp_path,
        {"trainer": (3, "for n in 1 2 3; do echo step $n of $RANK; done"), "eval": (1, "echo score 7 >&2")},
    )
    launch(job)
    wait_until(lambda: job.phase() == "succeeded", "the job is over")

    def logs(*words: str) -> list[str]:
        done = penstock(tmp_path, "logs", job.id, *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    steps = [f"[trainer-{rank}] step {n} of {rank}" for rank in range(3) for n in (1, 2, 3)]
    score = "[   eval-0] score 7"
    assert sorted(logs()) == sorted([*steps, score]) == sorted(logs("-f"))
    assert logs("--role", "trainer", "--rank", "1") == [line.partition("] ")[2] for line in steps[3:6]]
    assert logs("--role", "eval", "--no-prefix") == ["score 7"]
    assert sorted(logs("--role", "trainer", "--rank", "0-1", "--tail", "1")) == [steps[2], steps[5]]
    assert sorted(logs("--rank", "0,2", "--role", "trainer", "--grep", "step [13]")) == [
        steps[0],
        steps[2],
        steps[6],
        steps[8],
    ]
    assert logs("--role", "trainer", "--grep", "of 1", "--tail", "2") == steps[4:6]
    assert logs("--rank", "2", "--role", "trainer", "--prefix", "--tail", "1") == steps[8:]
    assert logs("--tail", "0") == []
    records = [json.loads(line) for line in logs("--json", "--grep", "2 of 1|score")]
    assert all(0 <= time.time() - line.pop("at") < 600 for line in records)
    assert sorted(records, key=lambda line: line["rank"]) == [
        {"role": "eval", "rank": 0, "stream": "stderr", "offset": 0, "text": "score 7"},
        {"role": "trainer", "rank": 1, "stream": "stdout", "offset": 12, "text": "step 2 of 1"},
    ]


def test_lines_of_all_ranks_and_both_streams_come_in_the_order_of_time(run: Run) -> None:
    """Goal: one story of several ranks. Method: ranks that take turns, each after the other's line is in its log."""
    script = """
    for n in 1 2 3 4 5 6; do
        until [ -e $MARKS/turn-$n-$RANK ]; do sleep 0.002; done
        echo turn $n of $RANK >&$((1 + n % 2))
    done
    """
    running = run("--detach", "--ranks", "3", "--", "bash", "-c", script)
    expected, moments = [], []
    for turn in range(1, 7):
        for rank in (2, 0, 1):
            stream = "stderr" if turn % 2 else "stdout"
            log, line = running.job.directory / f"logs/rank-{rank}.{stream}", f"turn {turn} of {rank}"
            if turn == 4 and rank == 2:
                Clock().pause(0.05)
            moments.append(time.time())
            (running.marks / f"turn-{turn}-{rank}").touch()
            wait_until(lambda log=log, line=line: log.exists() and line in log.read_text(), line)  # type: ignore[misc]
            expected.append(f"[{rank}] {line}")
    running.wait_phase("succeeded")

    def logs(*words: str) -> list[str]:
        return penstock(running.home, "logs", running.job.id, *words).stdout.splitlines()

    assert logs() == expected == logs("-f") == logs("--grep", "turn")
    assert logs("--rank", "2") == [line.removeprefix("[2] ") for line in expected if line.startswith("[2]")]
    dated = [json.loads(line) for line in logs("--json")]
    for line, before, after in zip(dated, moments, [*moments[1:], time.time()], strict=True):
        assert before - 0.01 <= line["at"] <= after + 0.01, (line, before, after)
    stamps = [datetime.fromisoformat(line[:23]).timestamp() for line in logs("--times")]
    assert stamps == [pytest.approx(line["at"], abs=0.001) for line in dated]
    assert [line[24:] for line in logs("--times")] == expected
    until = datetime.fromtimestamp(moments[9] - 0.01).isoformat()
    assert logs("--until", until) == expected[:9]
    assert set(logs("--since", until)) >= set(expected[9:])
    refused = penstock(running.home, "logs", running.job.id, "--until", "1m", "-f")
    assert (refused.returncode, "exclude each other" in refused.stderr) == (2, True)


def test_since_a_moment_gives_what_was_written_after_it(run: Run) -> None:
    """Goal: `--since` to half a second. Method: a line, a pause that is longer than that, another line."""
    running = run("--detach", "--", "bash", "-c", WAITING)
    log = running.job.directory / "logs/rank-0.stdout"
    wait_until(lambda: log.exists() and log.stat().st_size == 6, "the first line is there")
    later = time.time() + 2 * APART_MS / 1000
    wait_until(lambda: time.time() > later, "time passes")
    between = datetime.fromtimestamp(later).isoformat()
    assert penstock(running.home, "logs", running.job.id, "--since", between).stdout == ""
    (running.marks / "go").touch()
    running.wait_phase("succeeded")
    assert penstock(running.home, "logs", running.job.id, "--since", between).stdout == "[0] two 0\n"
    whole = penstock(running.home, "logs", running.job.id, "--since", "1h").stdout
    assert whole.splitlines() == ["[0] one 0", "[0] oops", "[0] two 0"]


def test_a_record_covers_what_was_written_soon_after_it(tmp_path: Path) -> None:
    """Goal: nothing after the moment is missing, little before it is there. Method: records that are known."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank-0.stdout").write_bytes(b"x" * 90)
    records = [(10_000, 0, 0, 0), (10_500, 30, 5, 0), (60_000, 80, 6, 1)]
    (tmp_path / "logs/rank-0.times").write_bytes(b"".join(struct.pack("<4Q", *record) for record in records))
    worker = Worker("rank", 0)

    def place(at_s: float) -> int:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s)) + f"{at_s % 1:.3f}"[1:]
        return places_since(Job(tmp_path), [worker], moment)[worker, "stdout"]

    assert [place(at_s) for at_s in (1, 10.2, 10.6, 40, 60.3, 61)] == [0, 0, 30, 80, 80, 90]


def test_moments() -> None:
    assert moment_ms("90s", now_s=1000) == 910_000
    assert moment_ms("1.5m", now_s=1000) == 910_000
    assert moment_ms("2h", now_s=1000) == 0
    assert moment_ms("1970-01-01T00:01:00+00:00") == 60_000
    for text in ("soon", "10", "10 m", "2026-99-99"):
        with pytest.raises(UsageError, match="is not a moment"):
            moment_ms(text)


def test_following_begins_before_the_job_and_ends_with_it(tmp_path: Path) -> None:
    job = begin(tmp_path, {"rank": (1, "echo hello; printf 'no end'")})
    following = follow(tmp_path, job.id)
    launch(job)
    assert following.communicate(timeout=60)[0] == "[0] hello\n[0] no end\n"
    assert following.returncode == 0


def test_following_ends_when_the_job_is_lost(run: Run) -> None:
    """Goal: no wait for ever. Method: keeper and agent are killed in the same instant."""
    running = run("--detach", "--", "bash", "-c", "touch $MARKS/$$.pid; echo here; exec sleep 1000")
    running.pids(1)
    following = follow(running.home, running.job.id)
    assert following.stdout is not None
    assert following.stdout.readline() == "[0] here\n"
    state = running.state()
    os.kill(state.keeper, signal.SIGSTOP)
    os.kill(state.agent, signal.SIGKILL)
    os.kill(state.keeper, signal.SIGKILL)
    assert following.communicate(timeout=60)[0] == ""
    assert following.returncode == 0
    assert running.job.phase() == "lost"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rank", "7"], "has ranks 0 to 1, not 7"),
        (["--rank", "3-1"], "'3-1' is not a rank"),
        (["--rank", "-1"], "rank"),
        (["--role", "nobody"], "has no role 'nobody'"),
        (["--since", "soon"], "'soon' is not a moment"),
        (["--start", "-4"], "--start must be 0 or more, got -4"),
        (["--tail", "-4"], "a number of lines"),
        (["--grep", "("], "--grep must be a regular expression, got"),
    ],
)
def test_bad_input_gets_a_sentence(tmp_path: Path, words: list[str], message: str) -> None:
    job = begin(tmp_path, {"rank": (2, "true")})
    done = penstock(tmp_path, "logs", job.id, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
