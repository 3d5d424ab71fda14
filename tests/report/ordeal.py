"""Real jobs whose ranks are killed from outside, watched from outside: when each rank was born and when it was gone, beside what the ledger says.

A gang of four ranks, then of two on the same run; and one rank whose wall clock is set forward and back by an hour, on a disk that is full for a while.
"""

import os
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.process.job.launch import Launch, Restarts, agent_path, prepare
from penstock.report.accounts.ledger import Ledger, ledger_from
from penstock.report.accounts.run_timeline import RunTimeline, run_timeline
from penstock.state.ranks.clock import Clock
from tests.conftest import ROOT
from tests.process.jobs import wait_until
from tests.report.ordeal_program import ENOUGH, MARK
from tests.torch.stream import Stream

PATIENCE_S = 120.0
#: Steps of a life before anything happens to it, and with a full disk.
STEPS_BEFORE, STEPS_FULL = 3, 20
DISK_BYTES = 8 << 20
PRELOAD = ["torch", "torch.distributed", "penstock.run", "penstock.torch"]
#: The wall clock of a process is set after so many looks at it; never the machine's.
SET_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    static int looks;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, at);
    if (id == CLOCK_REALTIME) {
        int seen = __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
        at->tv_sec += seen > 120 ? -3600 : seen > 60 ? 3600 : 0;
    }
    return rc;
}
"""


@dataclass(frozen=True)
class SeenLife:
    """One rank of one life of a run, as seen from outside; moments of CLOCK_BOOTTIME in ns."""

    life: int
    rank: int
    born: int
    #: None: it ended in order.
    died: int | None


@dataclass
class Ordeal:
    """A run that went through it."""

    run: Path
    home: Path
    kills: int = 0
    seen: list[SeenLife] = field(default_factory=list)

    def timeline(self) -> RunTimeline:
        """What was recorded."""
        return run_timeline(self.run, self.home)

    def ledger(self) -> Ledger:
        """Where the time went."""
        return ledger_from(self.timeline().ranks)

    def differences(self) -> tuple[list[int], list[int]]:
        """Nanoseconds between what was seen and what was recorded: of births, and of deaths."""
        recorded = {(life.number, rank.rank): life for rank in self.timeline().ranks for life in rank.lives}
        births, deaths = [], []
        for seen in self.seen:
            life = recorded[seen.life, seen.rank]
            assert life.born is not None
            births.append(abs(life.born - seen.born))
            if seen.died is not None:
                assert life.died is not None
                deaths.append(abs(life.died - seen.died))
        return births, deaths


def summary(differences: list[int]) -> tuple[float, float]:
    """Median and worst, in milliseconds."""
    return statistics.median(differences) / 1e6, max(differences) / 1e6


class Gang:
    """One job on a run: its ranks by life, killed and watched."""

    def __init__(
        self, ordeal: Ordeal, stream: Stream, kind: str, ranks: int, library: Path | None = None
    ) -> None:
        self.ordeal, self.ranks = ordeal, ranks
        #: Lives of the run before this job.
        self.first = 1 + max((seen.life for seen in ordeal.seen), default=-1)
        self.marks = ordeal.home / "marks"
        self.marks.mkdir(parents=True, exist_ok=True)
        for mark in self.marks.glob("*.*"):
            mark.unlink()
        (self.marks / ENOUGH).unlink(missing_ok=True)
        words = [ROOT / "tests/report/ordeal_program.py", stream.folder, ordeal.run, self.marks, kind]
        preload = [] if library is None else ["env", f"LD_PRELOAD={library}"]
        wish = Launch(
            command=[*preload, sys.executable, *map(str, words)],
            ranks=ranks,
            restarts=Restarts(most=100, backoff_s=0, same_failure_max=0, failure_grace_s=0.2),
            preload=PRELOAD if kind == "gang" else [],
        )
        job = prepare(ordeal.home, wish)
        self.log = ordeal.home / f"{job.id}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [agent_path(), "launch", job.directory],
                env={
                    **os.environ,
                    "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
                    "PENSTOCK_HOME": str(ordeal.home),
                },
                stdout=log,
                stderr=log,
            )

    def wait_steps(self, life: int, steps: int) -> list[int]:
        """Processes of a life by rank, once each of them has made so many steps."""

        def made() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            return all(self._mark(life, rank)[1] >= steps for rank in range(self.ranks))

        wait_until(made, f"{steps} steps of life {life}", timeout_s=PATIENCE_S)
        return [self._mark(life, rank)[0] for rank in range(self.ranks)]

    def _mark(self, life: int, rank: int) -> tuple[int, int]:
        try:
            content = (self.marks / f"{life}.{rank}").read_bytes()
        except FileNotFoundError:
            return 0, -1
        return MARK.unpack(content) if len(content) == MARK.size else (0, -1)

    def kill(self, life: int, chance: random.Random, meanwhile: Callable[[int], None] | None = None) -> None:
        """Kill one rank of a life at any moment, and watch all of them go."""
        pids = self.wait_steps(life, STEPS_BEFORE)
        born = [_born(pid) for pid in pids]
        if meanwhile is not None:
            meanwhile(life)
        Clock().pause(chance.uniform(0, 0.3))
        with _Wake(pids) as wake:
            os.kill(chance.choice(pids), 9)
            died = wake.wait()
        self.ordeal.kills += 1
        for rank, pid in enumerate(pids):
            self.ordeal.seen.append(SeenLife(self.first + life, rank, born[rank], died[pid]))

    def finish(self, life: int) -> None:
        """Let a life end in order."""
        pids = self.wait_steps(life, STEPS_BEFORE)
        for rank, pid in enumerate(pids):
            self.ordeal.seen.append(SeenLife(self.first + life, rank, _born(pid), None))
        (self.marks / ENOUGH).touch()
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()[-4000:]


class _Wake:
    """Waits for processes to be gone, all threads of them: the kernel tells at once, where /proc shows a zombie while threads still end."""

    def __init__(self, pids: list[int]) -> None:
        self._descriptors = {os.pidfd_open(pid): pid for pid in pids}

    def __enter__(self) -> "_Wake":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def wait(self) -> dict[int, int]:
        """When each was gone, in ns of CLOCK_BOOTTIME."""
        died: dict[int, int] = {}
        until = time.monotonic() + PATIENCE_S
        left = set(self._descriptors)
        while left:
            assert time.monotonic() < until, "the whole life is gone"
            for descriptor in select.select(list(left), [], [], 1.0)[0]:
                died[self._descriptors[descriptor]] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                left.discard(descriptor)
        return died


def _born(pid: int) -> int:
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return ticks * 10**9 // os.sysconf("SC_CLK_TCK")


def shrinking_gang(stream: Stream, place: Path, kills: tuple[int, int], seed: int) -> Ordeal:
    """Four ranks, then two on the same run; each killed so often."""
    chance = random.Random(seed)
    ordeal = Ordeal(place / "run", place / "home")
    for ranks, count in zip((4, 2), kills, strict=True):
        gang = Gang(ordeal, stream, "gang", ranks)
        for life in range(count):
            gang.kill(life, chance)
        gang.finish(count)
    return ordeal


def set_clock_and_full_disk(stream: Stream, place: Path, disk: Path, kills: int, seed: int) -> Ordeal:
    """One rank whose wall clock is set in every life; in every second life the disk of the run is full for a while."""
    chance = random.Random(seed)
    source, library = place / "set_clock.c", place / "set_clock.so"
    source.write_text(SET_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    ordeal = Ordeal(disk / "run", place / "home")
    gang = Gang(ordeal, stream, "alone", 1, library)

    def fill(life: int) -> None:
        with _full(disk):
            gang.wait_steps(life, STEPS_BEFORE + STEPS_FULL)

    for life in range(kills):
        gang.kill(life, chance, fill if life % 2 else None)
    gang.wait_steps(kills, 100)
    gang.finish(kills)
    return ordeal


@contextmanager
def _full(disk: Path) -> Iterator[None]:
    """No room is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    yield
    ballast.unlink()


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A place with little room."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "penstock", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
