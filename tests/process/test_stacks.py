"""Stacks of real processes from outside, grouped: Python, shells, stopped ones, and what may not be looked at."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.process import Job
from penstock.process.stacks import Collected, Frame, Look, Thread, collect, groups_of, ranges, shown
from penstock.process.stacks.collection import Asked, look
from penstock.process.stacks.frames import Kernel
from penstock.process.stacks.groups import ranks_in
from penstock.process.stacks.kernel import kernel_of
from penstock.process.stacks.py_spy import spy_path
from penstock.process.stacks.stack_words import stack_words
from penstock.process.stacks.targets import targets_of
from tests.process.jobs import wait_until

#: Ranks 0 to 2 wait for a thread, rank 3 sleeps in C. Each says when it is there.
GANG = """
import os, sys, threading, time
def wait_for_peers():
    print(os.getpid(), flush=True)
    threading.Event().wait()
def read_data():
    print(os.getpid(), flush=True)
    time.sleep(1000)
def train(rank):
    read_data() if rank == 3 else wait_for_peers()
train(int(sys.argv[1]))
"""
#: Even ranks sleep in ``sleep``, odd ones in ``usleep``, which is the same call of the kernel. Each says when it is about to.
ASLEEP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
sleep, time = (libc.usleep, 900_000_000) if int(sys.argv[1]) % 2 else (libc.sleep, 1000)
print(os.getpid(), flush=True)
sleep(time)
"""
#: What may look into everything is no ordinary user.
AS_NOBODY = (
    ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    if os.getuid() == 0
    else ()
)


def describe(room: Path, pids: list[int]) -> None:
    """The files of a job whose workers are these processes."""
    workers = [{"rank": rank, "pid": pid, "exit": None} for rank, pid in enumerate(pids)]
    gang = {"role": "rank", "kind": "gang", "phase": "running", "reason": "", "incarnation": 0, "zygote": ""}
    gang |= {"master_port": 0, "workers": workers, "failures": []}
    state = {"job": room.name, "phase": "running", "reason": "", "exit_code": None, "started_at": 0.0}
    state |= {"ended_at": None, "keeper": 0, "agent": 0, "coordinator": 0, "zygote": 0, "cgroup": None}
    state |= {"gangs": [gang], "incidents": [], "log_lost_bytes": 0}
    (room / "state.json").write_text(json.dumps(state))
    (room / "job.json").write_text(json.dumps({"roles": [{"name": "rank", "ranks": len(pids)}]}))


class Processes:
    """Real processes and a directory that describes them as a job."""

    def __init__(self, room: Path) -> None:
        self.job = Job(room)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """One more worker, once it has said something."""
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        describe(self.job.directory, [worker.pid for worker in self.started])
        return process

    def end(self) -> None:
        """All of them."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=20)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.end()


def main_functions(collected: Collected) -> dict[str, list[str]]:
    """Functions of the main threads, by names of the groups."""
    return {group.names: [frame.function for frame in group.threads[0].frames] for group in collected.groups}


def test_equal_stacks_are_one_group_and_the_odd_one_comes_first(gang: Processes) -> None:
    for rank in range(4):
        gang.start(sys.executable, "-c", GANG, str(rank))
    collected = collect(gang.job)
    assert [group.names for group in collected.groups] == ["rank 3", "rank 0-2"]
    functions = main_functions(collected)
    assert functions["rank 3"] == ["read_data", "train", "<module>"]
    assert functions["rank 0-2"][-3:] == ["wait_for_peers", "train", "<module>"]
    text = shown(collected)
    assert "rank 3  (1 of 4): sleeps" in text
    assert "read_data (<string>:8)" in text
    some = collect(gang.job, Asked(ranks=frozenset({0, 3})))
    assert [group.names for group in some.groups] == ["rank 0", "rank 3"]


def test_native_frames_are_those_of_one_of_each_group_or_of_all(gang: Processes) -> None:
    for _ in range(3):
        gang.start(sys.executable, "-c", GANG, "3")
    one = collect(gang.job, Asked(native="one"))
    assert [(group.names, group.native_of) for group in one.groups] == [("rank 0-2", "rank-0")]
    assert not any(frame.native for thread in one.groups[0].threads for frame in thread.frames)
    innermost = one.groups[0].native[0].frames
    assert "time_sleep" in [frame.function for frame in innermost if frame.native]
    assert "native frames are those of rank-0" in shown(one)
    everyone = collect(gang.job, Asked(native="all"))
    assert [look.native for look in everyone.looks] == [True] * 3
    assert [group.names for group in everyone.groups] == ["rank 0-2"]


def test_native_frames_of_all_are_what_each_alone_would_show(gang: Processes) -> None:
    """Goal: equal words on a stack are equal frames. Method: six ranks at one line of Python and in one call of the kernel, through
    two functions of the C library; what is shown of each is compared with a look at it alone."""
    for rank in range(6):
        gang.start(sys.executable, "-c", ASLEEP, str(rank))
    targets = targets_of(gang.job)
    # Each has said that it is about to sleep; until it does, it runs.
    wait_until(lambda: None not in [stack_words(target.process) for target in targets], "all sleep")
    assert stack_words(targets[0].process) != stack_words(targets[1].process)
    everyone = collect(gang.job, Asked(native="all", deadline_s=120))
    for seen, target in zip(everyone.looks, targets, strict=True):
        alone = look(target, spy_path(), native=True, until=time.monotonic() + 60)
        assert (seen.native, seen.threads) == (True, alone.threads)
    assert [group.names for group in everyone.groups] == ["rank 0,2,4", "rank 1,3,5"]


def test_a_process_that_runs_is_compared_with_none(gang: Processes) -> None:
    busy = gang.start(sys.executable, "-c", "import os\nprint(os.getpid(), flush=True)\nwhile True: pass")
    assert stack_words(busy.pid) is None
    assert collect(gang.job, Asked(native="all")).looks[0].native


def test_a_stopped_process_is_seen_and_stays_stopped(gang: Processes) -> None:
    process = gang.start(sys.executable, "-c", GANG, "0")
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: kernel_of(process.pid).state == "T", "it is stopped")
    collected = collect(gang.job, Asked(native="one"))
    assert main_functions(collected)["rank 0"][-1] == "<module>"
    assert "cannot be stopped" in collected.groups[0].problem
    assert "rank 0  (1 of 1): is stopped" in shown(collected)
    assert kernel_of(process.pid).state == "T"


def test_a_python_below_a_shell_speaks_for_its_worker(gang: Processes) -> None:
    gang.start("bash", "-c", '"$0" -c "$1" 3; true', sys.executable, GANG)
    collected = collect(gang.job)
    assert main_functions(collected)["rank 0"][0] == "read_data"
    (look,) = collected.looks
    assert look.process != look.pid == gang.started[0].pid


def test_a_program_that_is_no_python_shows_what_the_kernel_knows(gang: Processes) -> None:
    gang.start("bash", "-c", "echo here; while :; do read -t 1000 <> <(:); done")
    collected = collect(gang.job)
    (group,) = collected.groups
    assert (group.threads, group.problem, group.kernel.state) == ((), "it is not Python", "S")
    assert "echo here" in shown(collected)
    deep = collect(gang.job, Asked(native="one")).groups[0]
    assert deep.native or "gdb" in deep.problem


def test_a_worker_that_is_gone_is_said_to_be(gang: Processes) -> None:
    process = gang.start(sys.executable, "-c", GANG, "0")
    process.kill()
    process.wait()
    (look,) = collect(gang.job).looks
    assert (look.problem, look.threads) == ("the process is over", ())


def test_what_the_kernel_forbids_is_said(gang: Processes) -> None:
    """Goal: no permission is an answer. Method: a process that forbids everybody but root, looked at by its own user."""
    undumpable = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
    gang.start(*AS_NOBODY, sys.executable, "-c", undumpable + GANG, "0")
    code = (
        "import sys; from pathlib import Path; from penstock.process.job.catalogue import Job\n"
        "from penstock.process.stacks import collect\n"
        "sys.stdout.write(collect(Job(Path(sys.argv[1]))).looks[0].problem)"
    )
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        for name in ("state.json", "job.json"):
            shutil.copy(gang.job.directory / name, open_to_all)
        words = [*AS_NOBODY, sys.executable, "-c", code, open_to_all]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("the kernel forbids it", 0), done.stderr


def test_the_agents_way_of_asking_answers_with_json(gang: Processes) -> None:
    gang.start(sys.executable, "-c", GANG, "3")
    words = [sys.executable, "-m", "penstock.process.stacks", str(gang.job.directory), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["groups"][0]["workers"] == [["rank", 0]]
    assert answer["groups"][0]["threads"][0]["frames"][0]["function"] == "read_data"


FRAMES = st.builds(Frame, st.sampled_from("abc"), st.just("x.py"), st.integers(1, 2))
THREADS = st.builds(
    Thread, st.sampled_from(["MainThread", "loader"]), st.lists(FRAMES, max_size=2).map(tuple)
)
STACKS = st.lists(THREADS, max_size=3).map(tuple)


@given(st.lists(STACKS, max_size=12), st.data())
def test_groups_partition_the_workers_and_equal_means_equal(
    stacks: list[tuple[Thread, ...]], data: st.DataObject
) -> None:
    looks = [
        Look(role="rank", rank=n, pid=n + 1, process=n + 1, threads=threads, kernel=Kernel("S"))
        for n, threads in enumerate(stacks)
    ]
    groups = groups_of(looks)
    assert sorted(worker for group in groups for worker in group.workers) == [
        ("rank", n) for n in range(len(looks))
    ]
    assert [len(group.workers) for group in groups] == sorted(len(group.workers) for group in groups)
    for group in groups:
        for _, rank in group.workers:
            mine = stacks[rank]
            assert mine[:1] == group.threads[:1]
            assert sorted(map(repr, mine)) == sorted(map(repr, group.threads))
    firsts = [(group.threads[:1], sorted(map(repr, group.threads))) for group in groups]
    assert all(firsts.count(first) == 1 for first in firsts)
    shuffled = data.draw(st.permutations(looks))
    assert [group.workers for group in groups_of(shuffled)] == [group.workers for group in groups]


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranges_say_exactly_the_ranks(ranks: set[int]) -> None:
    text = ranges(ranks)
    assert ranks_in(text) == sorted(ranks)
    ends = [[int(word) for word in part.split("-")] for part in text.split(",")]
    assert all(after[0] - before[-1] > 1 for before, after in pairwise(ends)), "ranges that touch are one"


@pytest.mark.parametrize("text", ["", "x", "3-1", "1-", "-1", "1,,2", "0-99999999"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        ranks_in(text)
