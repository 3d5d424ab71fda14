"""`penstock logs -f` over all hosts of a job: from any of them, while hosts are cut off, readers stop and the job ends (P2, P5)."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import PATIENCE_S, PENSTOCK, PROGRAM, JobOfHosts, job_of_hosts, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
HOSTS, RANKS = 4, 2
#: A rank writes what it is told by a file of its number, each time that it is made, until the end; then its last words.
WRITER = """
import os, sys, time
rank, folder = os.environ["RANK"], sys.argv[1]
print(f"rank {rank} lives here", flush=True)
with open(f"{folder}/lives-{rank}", "a") as lives:
    lives.write(os.environ["PENSTOCK_INCARNATION"] + "\\n")
until = time.monotonic() + 120
while time.monotonic() < until and not os.path.exists(f"{folder}/finish"):
    if os.path.exists(f"{folder}/write-{rank}"):
        with open(f"{folder}/write-{rank}") as file:
            count, words = file.read().split(" ", 1)
        os.unlink(f"{folder}/write-{rank}")
        for number in range(int(count)):
            print(f"{words} {number}")
        print(f"{words} done", flush=True)
    time.sleep(0.01)
if os.path.exists(f"{folder}/farewell"):
    print("\\n".join(f"farewell {number} of {rank} {'x' * 80}" for number in range(30_000)))
print(f"last words of {rank}", flush=True)
"""
#: What a host writes at the end: more than may be on its way at once.
FAREWELL = 30_000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobOfHosts]:
    """A job whose ranks write when they are told."""
    folder = tmp_path_factory.mktemp("followed")
    options = ("--lease", "8s", "--fanout", "2")
    with job_of_hosts(folder, HOSTS, ranks=RANKS, options=options) as job:
        (folder / PROGRAM.name).write_text(WRITER)
        job.start()
        job.await_life(0)
        until(lambda: job.states(0) == ["here"] * HOSTS, job.account)
        yield job


@contextmanager
def following(
    job: JobOfHosts, index: int, name: str, *words: str
) -> Iterator[tuple[Path, "subprocess.Popen[bytes]"]]:
    """Somebody who follows on a host, and what that person sees."""
    output = job.folder / f"seen-{name}"
    talk = [*PENSTOCK, "logs", job.name(index), "-f", *words]
    reader = job.host(index).start(talk, output=output, variables=job.variables())
    try:
        yield output, reader
    finally:
        for pid in _readers(job, index):
            os.kill(pid, signal.SIGKILL)
        # What it was started through stops with it, and waits for a signal of its own.
        reader.send_signal(signal.SIGCONT)
        reader.wait(PATIENCE_S)


def _readers(job: JobOfHosts, index: int) -> list[int]:
    return job.host(index).pids("penstock.cli.main logs")


def _senders(job: JobOfHosts, index: int) -> list[int]:
    return job.host(index).pids("penstock.process.questions.log_sender")


def _say(job: JobOfHosts, rank: int, words: str, count: int = 0) -> None:
    beside = job.folder / f"new-{rank}"
    beside.write_text(f"{count} {words}")
    beside.rename(job.folder / f"write-{rank}")


def _seen(output: Path) -> list[str]:
    return output.read_text(errors="replace").splitlines()


def _await(output: Path, *lines: str, job: JobOfHosts) -> None:
    until(lambda: set(lines) <= set(_seen(output)), lambda: f"{_seen(output)[-20:]}\n{job.account()}")


def test_ranks_of_all_hosts_are_followed_from_any_and_nothing_is_left_when_the_reader_goes(
    job: JobOfHosts,
) -> None:
    """Goal: P2. Method: on a leaf of the tree, all ranks; then the reader is killed."""
    with following(job, 3, "all") as (output, _):
        _await(output, *(f"[{rank}] rank {rank} lives here" for rank in range(8)), job=job)
        _say(job, 0, "hello"), _say(job, 7, "good day")
        _await(output, "[0] hello done", "[7] good day done", job=job)
    for index in range(HOSTS):
        until(lambda index=index: not _senders(job, index), job.account)  # type: ignore[misc]


def test_one_rank_gives_its_bytes_and_a_search_is_done_where_the_log_is(job: JobOfHosts) -> None:
    with (
        following(job, 0, "raw", "--rank", "5", "--stream", "stdout", "--tail", "1") as (raw, _),
        following(job, 1, "grep", "--ranks", "2-5", "--grep", "row 1[0-9]{3}7$|lives") as (grep, _),
    ):
        _await(raw, "rank 5 lives here", job=job)
        _await(grep, *(f"[{rank}] rank {rank} lives here" for rank in range(2, 6)), job=job)
        _say(job, 5, "row", 20_000)
        _await(raw, "row done", job=job)
        _await(grep, "[5] row 19997", job=job)
        assert _seen(raw)[1:] == [*(f"row {number}" for number in range(20_000)), "row done"]
        assert _seen(grep)[4:] == [f"[5] row {number}" for number in range(10_007, 20_000, 10)]
        assert not _senders(job, 0)
        assert not _senders(job, 3)


def test_a_reader_that_stops_holds_back_nobody_and_loses_nothing(job: JobOfHosts) -> None:
    """Goal: no rank, no heartbeat and no other reader waits. Method: one of two readers is stopped while 30 MB are written, for longer
    than a subscription is kept; then it reads on."""
    rows = 500_000
    with (
        following(job, 0, "slow", "--rank", "6", "--stream", "stdout", "--tail", "1") as (
            slow,
            stopped_through,
        ),
        following(job, 0, "quick", "--rank", "6", "--stream", "stdout", "--tail", "1") as (quick, _),
    ):
        until(lambda: _seen(slow) and _seen(quick), job.account)
        stopped = [pid for pid in _readers(job, 0) if _writes_to(pid, slow)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        _say(job, 6, "x" * 50, rows)
        _await(quick, f"{'x' * 50} done", job=job)
        until(lambda: len(_senders(job, 3)) == 1, job.account)
        assert job.states(0) == ["here"] * HOSTS
        assert job.lives() == [0] * 8
        for pid in (*stopped, stopped_through.pid):
            os.kill(pid, signal.SIGCONT)
        _await(slow, f"{'x' * 50} done", job=job)
        assert _seen(slow)[1:] == _seen(quick)[1:]
        assert len(_seen(slow)) == rows + 2, len(_seen(slow))


def _writes_to(pid: int, path: Path) -> bool:
    return os.path.samefile(f"/proc/{pid}/fd/1", path)


def test_a_host_that_is_cut_off_is_named_and_its_lines_come_when_it_is_back(job: JobOfHosts) -> None:
    """Method: the last host loses its cable for less than its lease; its rank writes meanwhile."""
    lost = HOSTS - 1
    with following(job, 0, "cut", "--ranks", "0,7", "--tail", "1") as (output, _):
        until(lambda: len(_seen(output)) == 2, job.account)
        _say(job, 7, "before")
        _await(output, "[7] before done", job=job)
        job.host(lost).cut()
        _say(job, 7, "meanwhile")
        _say(job, 0, "others")
        name = job.host(lost).name
        _await(output, "[0] others done", f"note: {name} is not heard; its lines come when it is", job=job)
        job.host(lost).join()
        _await(output, "[7] meanwhile done", f"note: {name} is heard again", job=job)
    assert job.lives() == [0] * 8


def test_a_coordinator_that_is_killed_costs_no_line(job: JobOfHosts) -> None:
    """Method: that of the host whose rank is followed, then that of the reader's own host."""
    with following(job, 1, "killed", "--rank", "3-4", "--tail", "1") as (output, _):
        until(lambda: len(_seen(output)) == 2, job.account)
        for number, index in enumerate((2, 1)):
            _say(job, 4, f"before {number}")
            _await(output, f"[4] before {number} done", job=job)
            os.kill(job.part(index, "coordinator"), signal.SIGKILL)
            _say(job, 4, f"after {number}", 100)
            _await(output, f"[4] after {number} done", job=job)
        lines = [line for line in _seen(output)[2:] if line.startswith("[4]")]
        assert len(lines) == len(set(lines)) == 2 + 2 * 101


def test_the_last_words_of_all_hosts_come_before_the_end(job: JobOfHosts) -> None:
    """Goal: P5, the end waits for what was written, not for a moment. Method: on a leaf, whose coordinator leaves before those above it; so
    this is the last test. Ranks write more than may be on its way at once and end; a sender gets no processor until its ranks are gone."""
    with following(job, 2, "end", "--tail", "1") as (output, reader):
        until(lambda: len(_seen(output)) == 2 * HOSTS, job.account)
        _say(job, 1, "hello")
        _await(output, "[1] hello done", job=job)
        (job.folder / "farewell").touch()
        (sender,) = _senders(job, 3)
        os.kill(sender, signal.SIGSTOP)
        job.finish()
        until(lambda: not job.rank_pids(3)[3], job.account)
        os.kill(sender, signal.SIGCONT)
        assert job.codes() == [0] * HOSTS
        until(lambda: reader.poll() is not None, job.account)
        lines = _seen(output)
        assert {f"[{rank}] last words of {rank}" for rank in range(8)} <= set(lines), lines[-20:]
        assert sum("farewell" in line for line in lines) == 8 * FAREWELL, lines[-20:]
        assert reader.returncode == 0, lines[-20:]


def test_a_host_in_reserve_that_takes_over_is_followed_on_from_its_first_line(tmp_path: Path) -> None:
    """Method: two hosts and one in reserve; the second is lost with all on it while both ranks are followed on the first."""
    with job_of_hosts(tmp_path, 2, world=3) as job:
        (tmp_path / PROGRAM.name).write_text(WRITER)
        job.start(0, 1)
        job.await_hosts(0, 0, 1)
        job.start(2, node_rank=None)
        names = [host.name for host in job.world.hosts]
        until(lambda: any(row["name"] == names[2] for row in _hosts(job)), job.account)
        with following(job, 0, "spare", "--ranks", "0-1") as (output, reader):
            _await(output, "[0] rank 0 lives here", "[1] rank 1 lives here", job=job)
            job.lose(1)
            job.await_hosts(1, 0, 2)
            _say(job, 1, "hello")
            _await(output, "[1] hello done", job=job)
            note = f"note: {names[2]} has host rank 1 now, in place of {names[1]}"
            _await(output, note, job=job)
            # Both began again, and what the new host wrote is told from its first line on.
            assert _seen(output).count("[1] rank 1 lives here") == 2, _seen(output)
            job.finish()
            assert job.codes(0, 2) == [0, 0]
            until(lambda: reader.poll() is not None, job.account)
            assert {"[0] last words of 0", "[1] last words of 1"} <= set(_seen(output)), _seen(output)
            assert reader.returncode == 0, _seen(output)


def _hosts(job: JobOfHosts) -> list[dict[str, object]]:
    rows = job.ask(0, "hosts")
    return list(rows[0].get("hosts") or []) if rows else []
