"""Looking at jobs: `ps`, `jobs`, `events`, `incident`, and what is swept and removed on the way."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.process.job.incidents import last_words, ranges
from penstock.process.sweep import prune
from penstock.process.watch.lineage import children_of, descendants, everyone, process
from penstock.report.job_story import how_it_ended
from tests.process.jobs import PATIENCE_S, Running, is_alive, penstock, wait_until

Run = Callable[..., Running]
FAMILY = [sys.executable, str(Path(__file__).with_name("family.py"))]
WAITER = "touch $MARKS/$$.pid; sleep 1000 & wait"
SECRET = "hunter2hunter2"


def rows(running: Running, *words: str) -> list[dict[str, object]]:
    done = penstock(running.home, *words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_ps_is_a_tree_from_the_job_to_the_last_descendant(run: Run) -> None:
    running = run(
        "--detach", "--ranks", "2", "--name", "tree", "--", "bash", "-c", WAITER, "x", "--token", SECRET
    )
    pids = running.pids(2)
    wait_until(lambda: len(rows(running, "ps")) == 4, "both ranks have a child")

    table = rows(running, "ps", "tree", "--all")

    workers = [row for row in table if row["role"] == "rank" and row["depth"] == 0]
    assert sorted(row["pid"] for row in workers) == sorted(pids)  # type: ignore[type-var]
    assert {(row["incarnation"], row["how"], row["worker"]) for row in workers} == {
        (0, "exec", "rank-0"),
        (0, "exec", "rank-1"),
    }
    below = [row for row in table if row["depth"] == 1 and row["role"] == "rank"]
    assert {row["parent"] for row in below} == set(pids)
    assert {"keeper", "agent", "coordinator"} <= {row["worker"] for row in table if row["role"] is None}
    text = penstock(running.home, "ps").stdout
    assert [line.split()[0] for line in text.splitlines()[2:]] == [
        running.job.id,
        "rank",
        "rank-0",
        "└",
        "rank-1",
        "└",
    ]
    assert SECRET not in text + json.dumps(table) + penstock(running.home, "jobs", "--json").stdout
    penstock(running.home, "stop", "tree")
    over = rows(running, "ps", "tree")
    assert {(row["state"], row["worker"]) for row in over} == {("over", "rank-0"), ("over", "rank-1")}


def test_nothing_runs_and_that_is_said(tmp_path: Path) -> None:
    done = penstock(tmp_path, "ps")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no job runs\n")


def test_a_lost_job_is_swept_by_the_next_command_that_lists(run: Run) -> None:
    """Goal: P2, keeper and agent killed in the same instant. Method: a family that ignores everything; then `jobs`."""
    running = run("--detach", "--", *FAMILY)
    pids = running.pids(5)
    state = running.state()
    os.kill(state.keeper, signal.SIGSTOP)
    os.kill(state.agent, signal.SIGKILL)
    os.kill(state.keeper, signal.SIGKILL)
    wait_until(lambda: running.job.phase() == "lost", "keeper and agent are gone")

    listed = penstock(running.home, "jobs")

    assert "lost" in listed.stdout
    assert "is swept" in listed.stderr
    assert not any(map(is_alive, pids))
    assert "is swept" not in penstock(running.home, "jobs").stderr


def test_prune_removes_what_is_over_and_nothing_else(run: Run, tmp_path: Path) -> None:
    running = run("--detach", "--name", "alive", "--", "bash", "-c", WAITER)
    running.pids(1)
    done = penstock(running.home, "run", "--name", "done", "--", "true")
    assert done.returncode == 0
    (odd,) = [path for path in (running.home / "jobs").iterdir() if path.name.startswith("done")]
    assert prune(running.home, older_s=3600) == []
    would = penstock(running.home, "jobs", "--prune", "--dry-run", "--json")
    assert json.loads(would.stdout)["removed"] is False
    assert odd.exists()

    gone = penstock(running.home, "jobs", "--prune")

    assert gone.stdout.split()[:2] == [odd.name, "succeeded"]
    assert "1 jobs" in gone.stderr
    assert not odd.exists()
    assert running.job.phase() == "running"
    assert penstock(running.home, "jobs", "--older", "7d").returncode == 2
    assert penstock(running.home, "jobs", "--prune", "--older", "often").returncode == 2


def test_a_state_of_another_time_does_not_hide_other_jobs(run: Run) -> None:
    running = run("--name", "fine", "--", "true")
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == 0
    old = running.home / "jobs/old-0000"
    old.mkdir()
    (old / "job.json").write_text('{"id": "old-0000", "command": ["x"], "ranks": 2}')
    (old / "state.json").write_text("{}")
    assert {row["job"]: row["phase"] for row in rows(running, "jobs")}["old-0000"] == "unreadable"
    done = penstock(running.home, "ps", "old")
    assert done.returncode == 1
    assert "cannot be read" in done.stderr


def test_events_tell_the_story_of_a_job_and_incident_its_failures(run: Run) -> None:
    """Goal: who failed first, how the others ended, and what was decided. Method: rank 1 of 3 fails twice."""
    script = f"echo hello; echo token {SECRET} >&2; [ $RANK = 1 ] && exit 3; sleep 1000"
    running = run(
        *("--ranks", "3", "--restarts", "1", "--", "bash", "-c", script), environment={"MY_TOKEN": SECRET}
    )
    assert running.launcher is not None
    running.launcher.communicate(timeout=PATIENCE_S)
    name = running.job.id

    followed = penstock(running.home, "events", name, "-f")
    entries = rows(running, "events", name)

    assert [
        entry["event"] for entry in entries if entry["event"] in ("started", "failed", "finished", "over")
    ] == [
        "started",
        "failed",
        "started",
        "failed",
        "finished",
        "over",
    ]
    lines = followed.stdout.splitlines()
    assert len(lines) == len(entries)
    assert any("life 0   failed: rank 1 exited with code 3 (crash)" in line for line in lines)
    assert lines[-1].endswith("all 1 restarts are spent")

    listed = rows(running, "incident", "list", name)
    assert [(row["number"], row["incarnation"], row["cause"]) for row in listed] == [
        (0, 0, "crash"),
        (1, 1, "crash"),
    ]
    text = penstock(running.home, "incident", "show", name, "0").stdout
    assert text.startswith(f"incident 0 of {name}: rank 1 exited with code 3\n")
    assert "decided: start life 1, because" in text
    assert "  +0.000 s  rank 1 exited with code 3" in text
    assert "rank 0 was killed by SIGTERM, after it was asked to" in text
    assert "last lines of rank 0-2, stdout:\n  hello\n" in text
    (document,) = rows(running, "incident", name)
    assert (document["number"], document["first_cause"]) == (1, "rank 1 exited with code 3")
    for shown in (
        text,
        followed.stdout,
        json.dumps(document),
        penstock(running.home, "incident", name).stdout,
    ):
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["events", "nobody"], "there is no job 'nobody'"),
        (["events", "no/such.pev", "-f"], "--follow goes with a job"),
        (["incident", "nobody"], "there is no job 'nobody'"),
        (["exec", "nobody", "--", "true"], "there is no job 'nobody'"),
        (["exec", "nobody"], "give a command after `--`"),
    ],
)
def test_bad_input_gets_a_sentence(tmp_path: Path, words: list[str], message: str) -> None:
    done = penstock(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_job_without_failures_has_no_incident(run: Run) -> None:
    running = run("--", "true")
    assert running.launcher is not None
    running.launcher.wait(PATIENCE_S)
    assert penstock(running.home, "incident", running.job.id).returncode == 2
    assert "had no failure" in penstock(running.home, "incident", "list", running.job.id).stderr
    assert penstock(running.home, "events", running.job.id, "--summary").returncode == 2


def test_statuses_and_ranks_are_told_in_words() -> None:
    assert how_it_ended({"code": 3}) == "exited with code 3"
    assert how_it_ended({"code": None, "signal": 11, "core": True}) == "was killed by SIGSEGV (core dumped)"
    assert how_it_ended({"signal": 9, "memory_exhausted": True}).endswith("(the kernel was out of memory)")
    assert how_it_ended(None) == "was lost with its agent"
    assert ranges([3, 0, 1, 2, 8, 10, 11]) == "0-3,8,10-11"
    ranks = [{"rank": rank, "stdout": ["x"], "stderr": [] if rank else ["y"]} for rank in (2, 0, 1)]
    assert last_words({"ranks": ranks}) == [
        ([2, 1], {"stdout": ["x"], "stderr": []}),
        ([0], {"stdout": ["x"], "stderr": ["y"]}),
    ]


def test_who_descends_from_whom_is_read_from_the_system() -> None:
    me = process(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert me.is_alive
    assert process(os.getpid(), me.start_ticks - 1) is None
    assert me.pid in {descendant.pid for _, descendant in descendants(children_of(everyone()), me.parent)}
    assert me.environment()["PATH"]


PULSING = """
import sys, time
from penstock.process import phase, pulse
for step in range(5):
    pulse(step)
if sys.argv[1:] == ["hang"]:
    def stuck_here():
        time.sleep(1000)
    stuck_here()
with phase("eval"):
    open(sys.argv[1], "w").close()
    time.sleep(1000)
"""


def test_ps_shows_the_step_and_the_phase_that_a_rank_reports(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pulsing.py").write_text(PULSING)
    running = run("--detach", "--", str(tmp_path / "pulsing.py"), str(tmp_path / "here"))
    wait_until((tmp_path / "here").exists, "the rank evaluates")
    (row,) = rows(running, "ps")
    assert (row["step"], row["phase"]) == (4, "eval")
    (line,) = [line for line in penstock(running.home, "ps").stdout.splitlines() if "rank-0" in line]
    assert line.split()[3:5] == ["4", "eval"]


def test_an_incident_of_a_hang_shows_stacks_and_how_far_everybody_came(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pulsing.py").write_text(PULSING)
    running = run("--hang", "0.3", "--failure-grace", "0", "--", str(tmp_path / "pulsing.py"), "hang")
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert f"`penstock incident {running.job.id}`".encode() in err
    text = penstock(running.home, "incident", running.job.id).stdout
    assert "no step for" in text.splitlines()[0]
    assert "at step 4" in text
    assert "stacks, taken before anything was killed:" in text
    assert "stuck_here (pulsing.py:" in text


def test_ps_shows_the_command_of_a_forked_rank_and_nothing_else(run: Run, tmp_path: Path) -> None:
    """Goal: a screen for a person. Method: ranks that are forked, whose place for a title is far larger than their command."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import os, time\nopen(f\"{os.environ['MARKS']}/{os.getpid()}.pid\", 'w')\ntime.sleep(1000)\n"
    )
    running = run("--detach", "--ranks", "2", "--zygote", "always", "--", str(script), "", "two words")
    running.pids(2)
    table = rows(running, "ps")
    assert {row["how"] for row in table} == {"zygote"}
    assert {row["command"] for row in table} == {f"{sys.executable} {script} '' 'two words'"}
    text = penstock(running.home, "ps").stdout
    assert len(text) < 2000
    assert "''" in text
    assert "'' ''" not in text
    long = run("--detach", "--", "bash", "-c", f": {'x' * 5000}\ntouch $MARKS/$$.pid; sleep 1000; true")
    long.pids(1)
    assert max(map(len, penstock(long.home, "ps").stdout.splitlines())) < 400
    assert "x" * 5000 in str(rows(long, "ps")[0]["command"])


def test_supervisors_have_names_of_their_own(run: Run) -> None:
    running = run("--", "bash", "-c", WAITER)
    running.pids(1)
    assert running.launcher is not None
    wait_until(lambda: running.state().coordinator > 0, "the coordinator runs")
    state = running.state()
    names = {
        who: Path(f"/proc/{pid}/comm").read_text().strip()
        for who, pid in {
            "launcher": running.launcher.pid,
            "keeper": state.keeper,
            "agent": state.agent,
            "coordinator": state.coordinator,
        }.items()
    }
    assert names == {
        "launcher": "penstock-run",
        "keeper": "penstock-keeper",
        "agent": "penstock-agent",
        "coordinator": "penstock-coord",
    }


def test_a_name_that_several_jobs_have_is_no_unknown_one(run: Run) -> None:
    running = run("--detach", "--name", "cat", "--", "true")
    running.wait_phase("succeeded")
    assert penstock(running.home, "run", "--name", "cow", "--", "true").returncode == 0
    refused = penstock(running.home, "stop", "c")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: 2 jobs have names that begin with 'c'\n\nhint: one of cat-")
    assert "there is no job 'dog'" in penstock(running.home, "stop", "dog").stderr


def test_a_lost_job_says_what_happened_to_it(run: Run) -> None:
    running = run("--detach", "--", "bash", "-c", WAITER)
    running.pids(1)
    state = running.state()
    for pid in (state.keeper, state.agent):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: running.job.phase() == "lost", "the job is lost")
    (row,) = rows(running, "jobs")
    assert (row["phase"], row["reason"]) == ("lost", "keeper and agent were killed")
    assert "keeper and agent were killed" in penstock(running.home, "ps", running.job.id).stdout


def test_events_are_sentences(run: Run, tmp_path: Path) -> None:
    """Goal: no raw values among sentences. Method: a job that is forked, whose coordinator is killed, and an entry of a later version."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import os, time\nopen(f\"{os.environ['MARKS']}/{os.getpid()}.pid\", 'w')\ntime.sleep(1000)\n"
    )
    running = run("--detach", "--zygote", "always", "--", str(script))
    running.pids(1)
    first = running.state().coordinator
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: running.journal("coordinator-lost"), "its end is noticed")
    with (running.job.directory / "journal.jsonl").open("a") as journal:
        journal.write('{"event": "later", "at": 1.0, "about": {"deep": {"number": 7}}}\n')
    text = penstock(running.home, "events", running.job.id).stdout
    assert "{" not in text
    assert "the warm Python (pid " in text
    assert f"the coordinator (pid {first}) was killed; another goes on" in text
    assert "later about.deep.number=7" in text


def test_services_alone_run_until_they_are_stopped(tmp_path: Path) -> None:
    """Goal: a job file of services only. Method: two services, stopped by a person."""
    file = tmp_path / "services.toml"
    file.write_text(
        "[roles.store]\nkind = 'service'\ncommand = ['sleep', '1000']\n"
        "[roles.web]\nkind = 'service'\nafter = ['store']\ncommand = ['sleep', '1000']\n"
    )
    begun = penstock(tmp_path, "run", "--detach", "--file", str(file))
    assert begun.returncode == 0, begun.stderr
    wait_until(lambda: len(penstock(tmp_path, "ps", "--json").stdout.splitlines()) == 2, "both services run")
    assert penstock(tmp_path, "stop", begun.stdout.strip()).returncode == 0
    (row,) = map(json.loads, penstock(tmp_path, "jobs", "--json").stdout.splitlines())
    assert (row["phase"], row["reason"]) == ("stopped", "stopped by `penstock stop`")


def test_a_dry_run_refuses_what_a_start_would(tmp_path: Path) -> None:
    refused = penstock(tmp_path, "run", "--dry-run", "--cpus", "5000", "--", "true")
    assert refused.returncode == 2
    assert "5000 CPUs are wanted, and this machine has" in refused.stderr
    done = penstock(tmp_path, "run", "--dry-run", "--cpus", "1", "--zygote", "never", "--", "bash", "-c", ":")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("executed") == 1
