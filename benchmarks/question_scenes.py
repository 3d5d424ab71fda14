"""What is measured of questions to a swarm of hosts, each scene in a pid namespace of its own:
`python -m benchmarks.question_scenes SCENE HOSTS [RANKS]`.

It prints one line of JSON. `bench_questions` calls it and holds the figures against what is asked.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.host_swarm import Swarm, cpu_s, until
from penstock.process.hosts.shipping.packed_directory import PLACE, pack
from penstock.process.questions.number_ranges import numbers_in

QUESTIONS = 7
SETTLE_S = 3.0
#: Of a directory that is sent to all hosts.
SHIP_BYTES, SHIP_FILES = 100 * 1000 * 1000, 50
STACKS_ROUNDS = 3
LOGS_ROUNDS = 3
#: Of one rank, in rows of so many bytes.
LOG_BYTES, ROW_BYTES = 32 << 20, 64
#: A rank that writes rows, says that it is done, and waits.
WRITING = """
import os, sys, threading
row = "x" * 63 + "\\n"
for _ in range(int(os.environ["ROWS"]) // 1024):
    sys.stdout.write(row * 1024)
sys.stdout.flush()
open(os.environ["MARKS"] + "/" + os.environ["RANK"], "w")
threading.Event().wait()
"""
#: A rank that waits at one place, and says that it is there.
WAITING = "import os, threading; open(os.environ['MARKS'] + '/' + os.environ['RANK'], 'w'); threading.Event().wait()"


def _swarm(folder: Path, hosts: int) -> Swarm:
    swarm = Swarm(folder, hosts)
    swarm.furnish()
    swarm.start()
    swarm.await_joined()
    swarm.await_heard()
    until(lambda: len(swarm.ask(0, "ps").get("rows") or []) == hosts, "all ranks to run")
    time.sleep(SETTLE_S)
    return swarm


def questions(folder: Path, hosts: int) -> dict[str, Any]:
    """One host asks all: who is there, and to run a program; then once more while one of them is silent."""
    swarm = _swarm(folder, hosts)
    asked, everybody = hosts - 1, f"0-{hosts - 1}"
    task = {"task": {"hosts": everybody, "task": {"do": "exec", "words": ["true"]}}}

    def ask(question: str | dict[str, Any]) -> None:
        # Hosts of a real job have processors of their own; here all start their processes on the same two.
        account = swarm.ask(asked, question, patience_s=60.0).get("account") or {}
        assert account.get("answered") == everybody, account

    figures = {"load": os.getloadavg()[0]}
    figures |= {"ps_s": _median(lambda: ask("ps")), "exec_s": _median(lambda: ask(task))}
    # Nobody below it on a tree of 64, and neither who asks nor who leads.
    silent = hosts - 2
    (pid,) = swarm.parts()["coordinator"][silent]
    os.kill(pid, signal.SIGSTOP)
    begun = time.perf_counter()
    account = swarm.ask(asked, "ps")["account"]
    figures["silent_s"] = time.perf_counter() - begun
    os.kill(pid, signal.SIGCONT)
    assert account["unheard"] == str(silent), account
    return {"hosts": hosts, **figures}


def stacks(folder: Path, hosts: int, ranks: int = 32) -> dict[str, Any]:
    """Grouped stacks of so many Python ranks, on so many hosts."""
    marks = folder / "marks"
    marks.mkdir()
    command = (sys.executable, "-S", "-c", WAITING)
    swarm = Swarm(folder / "swarm", hosts, ranks // hosts, command, environment={"MARKS": str(marks)})
    swarm.furnish()
    swarm.start()
    until(lambda: len(list(marks.iterdir())) == ranks, "all ranks to wait")
    time.sleep(SETTLE_S)
    took = []
    for _ in range(STACKS_ROUNDS):
        begun = time.perf_counter()
        count = _ranks_here(swarm) if hosts == 1 else _ranks_of_all(swarm)
        took.append(time.perf_counter() - begun)
        assert count == ranks, count
    return {"hosts": hosts, "took_s": took}


def _ranks_here(swarm: Swarm) -> int:
    """What one host does alone, by a Python of its own; how many ranks were seen."""
    words = ["-m", "penstock.process.stacks", str(swarm.directories[0]), "--json"]
    done = subprocess.run([sys.executable, *words], capture_output=True, check=True)
    return sum(len(group["workers"]) for group in json.loads(done.stdout)["groups"])


def _ranks_of_all(swarm: Swarm) -> int:
    """What all hosts do, each by a Python of its own."""
    task = {"do": "stacks", "native": "no", "ranks": None}
    question = {"task": {"hosts": f"0-{swarm.hosts - 1}", "task": task}}
    answer = swarm.ask(swarm.hosts - 1, question, patience_s=60.0)
    return sum(len(numbers_in(part["ranks"])) for part in answer["parts"])


def logs(folder: Path, hosts: int) -> dict[str, Any]:
    """Logs of 8 ranks on so many hosts, followed on one of them through a pipe: seconds until everything has come."""
    ranks = 8
    marks = folder / "marks"
    marks.mkdir()
    command = (sys.executable, "-S", "-c", WRITING)
    variables = {"MARKS": str(marks), "ROWS": str(LOG_BYTES // ROW_BYTES)}
    swarm = Swarm(folder / "swarm", hosts, ranks // hosts, command, environment=variables)
    swarm.furnish()
    swarm.start()
    until(lambda: len(list(marks.iterdir())) == ranks, "all ranks to write")
    time.sleep(SETTLE_S)
    whole = ranks * (LOG_BYTES // ROW_BYTES) * (ROW_BYTES + len("[0] "))
    before = _worked_s()
    took = [_follow(swarm, whole) for _ in range(LOGS_ROUNDS)]
    return {
        "hosts": hosts,
        "bytes": whole,
        "took_s": took,
        "cpu_s": (_worked_s() - before) / LOGS_ROUNDS,
        "load": os.getloadavg()[0],
    }


def _worked_s() -> float:
    """Processor time of everything here, of those who have ended too: the namespace has nothing else in it."""
    ended = os.times()
    running = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return ended.children_user + ended.children_system + cpu_s(running)


def _follow(swarm: Swarm, whole: int) -> float:
    command = [sys.executable, "-m", "penstock.cli.main", "logs", "swarm-0000", "-f", "--stream", "stdout"]
    home = swarm.home(swarm.hosts - 1)
    # A job of one host is found where its files are.
    places = {"PENSTOCK_HOME": str(home / ("home" if swarm.hosts > 1 else "local"))}
    places["PENSTOCK_LOCAL"] = str(home / "local")
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **places}) as reader:
        assert reader.stdout is not None
        come, begun = 0, 0.0
        buffer = bytearray(1 << 20)
        while come < whole:
            count = reader.stdout.raw.readinto(buffer)  # type: ignore[attr-defined]
            assert count, f"{come:,} of {whole:,} bytes came"
            # The start of a Python is no part of a rate.
            begun = begun or time.perf_counter()
            come += count
        took_s = time.perf_counter() - begun
        assert come == whole, (come, whole)
        reader.terminate()
    return took_s


def ship(folder: Path, hosts: int) -> dict[str, Any]:
    """A directory that one host has goes to so many others: seconds from its copy there, and from their joining, to the last copy."""
    work = folder / "directory"
    work.mkdir()
    for number in range(SHIP_FILES):
        (work / str(number)).write_bytes(os.urandom(SHIP_BYTES // SHIP_FILES))
    begun = time.perf_counter()
    packed = pack(work, folder / "packed")
    packed_s = time.perf_counter() - begun
    swarm = Swarm(folder / "swarm", hosts + 1, packed=packed.path)
    swarm.furnish()
    swarm.start()
    swarm.await_joined()
    joined = time.time()
    places = [directory / PLACE for directory in swarm.directories]
    until(lambda: all(place.is_symlink() for place in places), "all copies")
    made = [place.lstat().st_mtime for place in places]
    took_s = max(made[1:]) - max(made[0], joined)
    coordinators = swarm.parts()["coordinator"]
    # Who leads sends to all that stand below; all others only receive.
    spent_s = [sum(map(_spent_s, pids)) for host, pids in sorted(coordinators.items())]
    return {
        "hosts": hosts,
        "bytes": SHIP_BYTES,
        "took_s": took_s,
        "sender_cpu_s": max(spent_s),
        "receiver_cpu_s": statistics.median(spent_s),
        "packed_s": packed_s,
        "load": os.getloadavg()[0],
    }


def _spent_s(pid: int) -> float:
    """Processor time of a process, threads that are gone included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _median(work: Callable[[], None]) -> float:
    took = []
    for _ in range(QUESTIONS):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def main(words: list[str]) -> int:
    """Run one scene."""
    scene = {"questions": questions, "stacks": stacks, "logs": logs, "ship": ship}[words[0]]
    folder = Path(tempfile.mkdtemp(prefix="penstock-questions-"))
    try:
        print(json.dumps(scene(folder, *map(int, words[1:]))))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
