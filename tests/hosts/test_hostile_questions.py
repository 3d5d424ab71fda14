"""Questions as users of clush, pdsh, kubectl and srun ask them, and as nobody should: every one is answered, or refused with a reason."""

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.job_of_hosts import PENSTOCK, PROGRAM, JobOfHosts, job_of_hosts, until
from tests.view.terminals import Terminal

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
HOSTS, RANKS = 3, 2
#: A rank writes what no terminal should obey, bytes that are no text, a line that some expressions never end with, and one without an end.
SAY_AND_WAIT = """
import os, sys, threading
rank = os.environ["RANK"]
raw = b"\\x1b]0;title\\x07\\x1b[2J\\x1b[31mred\\x1b[0m " + bytes(range(128, 256)) + b"\\n"
sys.stdout.buffer.write(b"first of " + rank.encode() + b"\\n" + raw + b"l" * 44 + b"\\nno end of " + rank.encode())
sys.stdout.buffer.flush()
with open(f"{sys.argv[1]}/lives-{rank}", "a") as lives:
    lives.write("0\\n")
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobOfHosts]:
    """One job for all; its ranks sleep."""
    folder = tmp_path_factory.mktemp("hostile")
    with job_of_hosts(folder, HOSTS, ranks=RANKS, options=("--lease", "8s")) as job:
        (folder / PROGRAM.name).write_text(SAY_AND_WAIT)
        job.start()
        job.await_life(0)
        until(lambda: job.states(0) == ["here"] * HOSTS, job.account)
        yield job


def _ask(job: JobOfHosts, index: int, line: bytes) -> dict[str, Any]:
    """What a host answers to a line, as any program may send it."""
    (path,) = Path(f"/proc/{job.host(index).inner}/root/tmp").glob("penstock-*/jobs/*/host.sock")
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(20.0)
        asker.connect(str(path))
        asker.sendall(line + b"\n")
        answer: dict[str, Any] = json.loads(asker.makefile().readline())
    return answer


def _counted(account: dict[str, Any]) -> int:
    """How many hosts answered, are unheard or refused."""
    sets = [account["answered"], account["unheard"], *(refusal["hosts"] for refusal in account["refused"])]
    bounds = [part.split("-") for one in sets if one for part in one.split(",")]
    return sum(int(bound[-1]) - int(bound[0]) + 1 for bound in bounds)


def test_what_no_version_asks_is_refused_with_a_reason_and_ends_no_coordinator(job: JobOfHosts) -> None:
    """Goal: H5 for a question of another version. Method: unknown questions and tasks, and tasks that are none, on a host that may not lead."""
    before = [job.part(index, "coordinator") for index in range(HOSTS)]
    wrong = [b"hello", b"{}", b'{"ask":"ps","patience_ms":-4}']
    for line in wrong:
        answer = _ask(job, 1, line)
        assert not answer["ok"], answer
        assert answer["problem"], answer
    unknown: list[Any] = ["weather", {"weather": {"where": "here"}}, {"task": {"hosts": "9-3", "task": {}}}]
    unknown += [{"task": {"hosts": "0-2", "task": task}} for task in (7, None, [], {}, {"do": "dance"})]
    for question in unknown:
        answer = _ask(job, 1, json.dumps({"ask": question, "patience_ms": 15_000}).encode())
        account = answer["account"]
        assert (account["answered"], account["unheard"]) == ("", ""), (question, answer)
        assert [refusal["hosts"] for refusal in account["refused"]] == ["0-2"], (question, answer)
        assert "has another version" in account["refused"][0]["why"], (question, answer)
    # One of an older client, and of a newer one.
    for line in (b'{"ask":"ps"}', b'{"ask":"ps","colour":"red","patience_ms":9000}'):
        assert _ask(job, 1, line)["account"]["answered"] == "0-2"
    assert [job.part(index, "coordinator") for index in range(HOSTS)] == before


def test_fifty_questions_at_once_are_all_accounted_for(job: JobOfHosts) -> None:
    """Goal: H5. Method: half of them are work, of which a host does eight at once."""
    work = {"task": {"hosts": "0-2", "task": {"do": "exec", "words": ["sleep", "0.2"]}}}
    answers: list[dict[str, Any]] = []

    def ask(number: int) -> None:
        question = {"ask": work if number % 2 else "ps", "patience_ms": 20_000}
        answers.append(_ask(job, number % HOSTS, json.dumps(question).encode()))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(answers) == 50
    for answer in answers:
        assert _counted(answer["account"]) == HOSTS, answer
        assert answer["account"]["unheard"] == "", answer
        for refusal in answer["account"]["refused"]:
            assert "under way already" in refusal["why"], answer


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("exec", "--hosts", "nope[1-3]", "--", "true"), "has no host nope[1-3]"),
        (("exec", "--hosts", "gpu*", "--", "true"), "cannot be the name of a host"),
        (("exec", "--hosts", "gpu[3", "--", "true"), "brackets that do not match"),
        (("exec", "--hosts", "", "--", "true"), "names no host"),
        (("exec", "--ranks", "5-2", "--", "true"), "--ranks must be as in 0,8-15, got 5-2"),
        (("logs", "--ranks", "4,99"), "rank 99 of job"),
        (("stacks", "--ranks", "6"), "ranks are 0-5"),
        (("exec", "--where", "asleep", "--", "true"), "they are here"),
        (("exec", "--where", "here", "--patience", "nan", "--", "true"), "--patience must be more than 0"),
        (("logs", "--grep", "[a", "-f"), "--grep must be a regular expression"),
        (("logs", "--since", "yesterday", "--grep", "x"), "'yesterday' is not a moment"),
    ],
)
def test_a_choice_that_means_nothing_is_named(job: JobOfHosts, words: tuple[str, ...], said: str) -> None:
    command, *rest = words
    done = job.penstock(1, command, job.name(1), *rest)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_numbers_out_of_order_and_twice_are_a_set(job: JobOfHosts) -> None:
    done = job.penstock(1, "exec", job.name(1), "--ranks", "5,1,1,3-4", "--patience", "20", "--", "true")
    assert "exit 0: rank 1,3-5" in done.stderr, done.stderr


def test_a_search_that_never_ends_is_ended_while_it_is_followed(job: JobOfHosts) -> None:
    """Method: an expression that takes exponential time on a line that is there; the rank's host is named, and nobody waits."""
    done = job.penstock(0, "logs", job.name(0), "-f", "--ranks", "4", "--grep", "(l*)*!")
    assert f"{job.host(2).name}: the search took too long and was ended" in done.stderr, done.stderr
    assert done.returncode == 1


def test_lines_without_an_end_and_bytes_that_are_no_text_come_and_are_not_obeyed(job: JobOfHosts) -> None:
    name = job.name(0)
    done = job.penstock(0, "logs", name, "--ranks", "3", "--patience", "20", "--json")
    lines = [json.loads(line)["text"] for line in done.stdout.splitlines()]
    assert [lines[0], lines[-1]] == ["first of 3", "no end of 3"]
    assert lines[1].startswith("\x1b]0;title")
    host = job.host(0)
    command = [*host.entered(), *PENSTOCK, "logs", name, "--ranks", "3", "--patience", "20"]
    variables = {**host.variables(job.variables()), "TERM": "xterm"}
    with Terminal(command, columns=80, rows=24, env=variables) as terminal:
        assert terminal.wait_for_end() == 0
        shown = terminal.sent
    assert b"\x1b[31mred" in shown, shown
    assert b"\x1b]0" not in shown, shown
    assert b"\x1b[2J" not in shown, shown


def test_who_pipes_into_head_gets_the_shell_back(job: JobOfHosts) -> None:
    """Method: nothing more is written, so only a look at the pipe tells that its reader has left; also where the disk is full."""
    host = job.host(1)
    talk = " ".join(PENSTOCK)
    for command in (f"logs {job.name(1)} -f", f"attach {job.name(1)}"):
        done = host.run("sh", "-c", f"{talk} {command} | head -1", variables=job.variables())
        assert "first of" in done.stdout, done.stderr
    for command in (f"ps {job.name(1)}", f"hosts {job.name(1)}", f"stacks {job.name(1)} --patience 20"):
        done = host.run("sh", "-c", f"{talk} {command} > /dev/full", variables=job.variables())
        assert done.returncode == 1
        assert "standard output: No space left on device" in done.stderr, done.stderr
