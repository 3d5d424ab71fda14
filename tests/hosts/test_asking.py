"""Questions over all hosts of a job: a command on many of them, stacks of all ranks, and who did not answer (H5, P2)."""

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from tests.hosts.job_of_hosts import PENSTOCK, PROGRAM, JobOfHosts, job_of_hosts, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
HOSTS, RANKS = 4, 2
#: A rank says something that can be found, and a line that some expressions never end with; then it waits at one place.
SAY_AND_WAIT = """
import os, sys, threading
rank = os.environ["RANK"]
print(f"rank {rank} lives here", "l" * 44, sep="\\n", flush=True)
with open(f"{sys.argv[1]}/lives-{rank}", "a") as lives:
    lives.write("0\\n")
threading.Event().wait()
"""
#: Enough for the start of a Python on a machine that is busy with four hosts.
PATIENCE = ("--patience", "20")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobOfHosts]:
    """One job for all that is only asked; its ranks sleep."""
    folder = tmp_path_factory.mktemp("asked")
    options = ("--lease", "2s", "--fanout", "2")
    with job_of_hosts(folder, HOSTS, ranks=RANKS, options=options) as job:
        (folder / PROGRAM.name).write_text(SAY_AND_WAIT)
        job.start()
        job.await_life(0)
        until(lambda: job.states(0) == ["here"] * HOSTS, job.account)
        yield job


def _name(job: JobOfHosts, index: int) -> str:
    return job.host(index).name


def test_equal_outputs_are_one_and_exit_codes_have_ranges(job: JobOfHosts) -> None:
    """Method: one of four hosts has another file and another program."""
    odd = 2
    job.host(odd).run("sh", "-c", "echo odd > /tmp/word; echo 'exit 3' > /tmp/program")
    for index in {0, 1, 3}:
        job.host(index).run("sh", "-c", "echo even > /tmp/word; echo 'exit 0' > /tmp/program")
    done = job.penstock(1, "exec", job.name(1), "--where", "here", *PATIENCE, "--", "cat", "/tmp/word")
    assert done.returncode == 0, done.stderr
    names = [_name(job, index) for index in (0, 1, 3)]
    prefix = names[0].rstrip("0123456789")
    assert done.stdout.splitlines()[:4] == ["-" * 15, _name(job, odd), "-" * 15, "odd"]
    assert done.stdout.splitlines()[4:] == ["-" * 15, f"{prefix}[0-1,3] (3)", "-" * 15, "even"]
    assert "4 of 4 hosts · unheard: none · refused: none" in done.stderr

    done = job.penstock(1, "exec", job.name(1), "--where", "here", *PATIENCE, "--", "sh", "/tmp/program")
    assert done.returncode == 3
    assert f"exit 0: {prefix}[0-1,3] · exit 3: {_name(job, odd)}" in done.stderr


def test_a_program_that_is_missing_or_hangs_or_writes_for_ever_leaves_nothing(job: JobOfHosts) -> None:
    """Goal: P2. Method: none is there; one starts another in a session of its own and waits; one writes without an end."""
    name, chosen = job.name(0), ("--hosts", ",".join(_name(job, index) for index in (1, 3)))
    done = job.penstock(0, "exec", name, *chosen, *PATIENCE, "--", "no-such-program")
    assert done.returncode == 127
    assert "(no-such-program: not found)" in done.stderr
    assert "2 of 2 hosts" in done.stderr

    script = "setsid -f sleep 4242; (sleep 4243 &); sleep 4244"
    done = job.penstock(0, "exec", name, *chosen, "--patience", "1", "--", "sh", "-c", script)
    assert done.returncode == 124
    assert "(took too long)" in done.stderr
    assert "--patience 1 is for all" in done.stderr
    for index in range(HOSTS):
        until(
            lambda index=index: not job.host(index).pids("sleep 42"),  # type: ignore[misc]
            lambda index=index: job.host(index).processes(),  # type: ignore[misc]
        )

    done = job.penstock(0, "exec", name, *chosen, "--patience", "1", "--json", "--", "yes")
    part, *_ = [json.loads(line) for line in done.stdout.splitlines()]
    assert part["code"] == 124
    assert part["bytes_cut"] > len(part["output"]) > 1000


def test_who_asked_and_leaves_ends_what_was_started(job: JobOfHosts) -> None:
    """Goal: P2. Method: the asker is killed while all hosts work for it."""
    asker = job.host(0).start(
        [*PENSTOCK, "exec", job.name(0), "--where", "here", "--patience", "60", "--", "sleep", "5151"],
        output=job.folder / "asker",
        variables=job.variables(),
    )
    until(lambda: all(job.host(index).pids("sleep 5151") for index in range(HOSTS)), job.account)
    for pid in job.host(0).pids("penstock.cli.main exec"):
        os.kill(pid, 9)
    asker.wait()
    until(lambda: not any(job.host(index).pids("sleep 5151") for index in range(HOSTS)), job.account)


def test_a_command_runs_beside_ranks_of_other_hosts(job: JobOfHosts) -> None:
    """Method: each of five ranks on three hosts says which it is; three of them say the same about their host."""
    command = ("sh", "-c", "echo $LOCAL_RANK of $LOCAL_WORLD_SIZE")
    done = job.penstock(3, "exec", job.name(3), "--ranks", "0-2,5,7", *PATIENCE, "--", *command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines == [
        *["-" * 15, "rank 0,2 (2)", "-" * 15, "0 of 2"],
        *["-" * 15, "rank 1,5,7 (3)", "-" * 15, "1 of 2"],
    ]
    assert "exit 0: rank 0-2,5,7" in done.stderr
    wrong = job.penstock(3, "exec", job.name(3), "--ranks", "6-9", "--", "true")
    assert wrong.returncode == 2
    assert "ranks are 0-7" in wrong.stderr


def test_stacks_of_all_hosts_are_groups_over_all_ranks(job: JobOfHosts) -> None:
    done = job.penstock(2, "stacks", job.name(2), *PATIENCE, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [group["workers"] for group in answer["groups"]] == [[["rank", rank] for rank in range(8)]]
    shown = job.penstock(2, "stacks", job.name(2), *PATIENCE, "--ranks", "1,6")
    assert "rank 1,6  (2 of 2)" in shown.stdout, shown.stdout
    assert "rank_program.py" in shown.stdout, shown.stdout
    assert "2 of 2 hosts" in shown.stderr


def test_logs_are_searched_where_they_are_and_come_by_time(job: JobOfHosts) -> None:
    """Method: every rank says its number; a search finds all, another two of them on two hosts."""
    name = job.name(0)
    done = job.penstock(0, "logs", name, "--ranks", "0-7", "--grep", "lives here", *PATIENCE)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] rank {rank} lives here" for rank in range(8)]
    done = job.penstock(0, "logs", name, "--grep", "rank [16] lives", *PATIENCE, "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["rank"] for line in found) == [1, 6]
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    wrong = job.penstock(0, "logs", name, "--grep", "(", *PATIENCE)
    assert wrong.returncode == 2
    assert "--grep must be a regular expression" in wrong.stderr


def test_a_search_that_never_ends_is_ended_and_named(job: JobOfHosts) -> None:
    """Method: an expression that takes exponential time on a line that is there."""
    done = job.penstock(0, "logs", job.name(0), "--ranks", "3", "--grep", "(l*)*!", "--patience", "3")
    assert f"{_name(job, 1)}: the search took too long" in done.stderr, done.stderr


QUESTIONS = {
    "exec": ("exec", "--ranks", "0-7", "--", "true"),
    "stacks": ("stacks",),
    "logs": ("logs", "--grep", "lives here"),
    "ps": ("ps", "--by", "host"),
}


def test_a_host_that_is_cut_off_is_unheard_and_the_others_answer_whatever_is_asked(job: JobOfHosts) -> None:
    """Goal: H5. Method: the last host loses its cable while nobody knows, and everything is asked at once; all is answered for the others."""
    lost = HOSTS - 1
    job.host(lost).cut()
    asked = {}
    for name, (command, *words) in QUESTIONS.items():
        output = job.folder / f"answer-{name}"
        talk = [*PENSTOCK, command, job.name(0), "--patience", "8", *words]
        asked[name] = job.host(0).start(talk, output=output, variables=job.variables()), output
    for name, (talk, output) in asked.items():
        code, said = talk.wait(timeout=60), output.read_text()
        account = "6 of 8 ranks" if name == "ps" else "3 of 4 hosts"
        assert f"{account} · unheard: {_name(job, lost)} · refused: none" in said, said
        assert code == (name != "ps"), said
    job.host(lost).join()
