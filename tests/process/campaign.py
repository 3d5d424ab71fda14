"""Random kills: any process of a job, one or two at once, in any order; then who is gone, who is untouched, and which lines the logs have.

Ranks have families of processes that are hard to find and hard to end: deaf ones, sessions of their own, empty and foreign environments,
forked twice. Every process writes its number down by itself, so nothing here relies on how Penstock finds them. Everything follows from
the seed but the moment, which is the machine's.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from penstock.process import Job, JobState, Launch, Restarts, prepare
from penstock.process.job.launch import agent_path
from penstock.process.watch.lineage import process
from penstock.state.ranks.clock import Clock

RANKS = 2
#: Deaf; deaf in a session; empty environment, twice forked; foreign environment, twice forked, deaf; and the rank.
FAMILY_SIZE = 5
FAMILY = r"""
life=$MARKS/$PENSTOCK_INCARNATION-$RANK
trap '' TERM INT HUP
(echo deaf > $life.$BASHPID && exec sleep 1000) &
(echo session > $life.$BASHPID && exec setsid sleep 1000) &
(setsid env -i bash -c 'trap - TERM; echo empty > '$life'.$$; exec sleep 1000' > /dev/null 2>&1 &)
(setsid env -i PENSTOCK_JOB_DIRECTORY=/elsewhere PENSTOCK_WORKER=other-7 bash -c 'echo foreign > '$life'.$$; exec sleep 1000' > /dev/null 2>&1 &)
trap - TERM INT HUP
echo rank > $life.$$
exec {never}<> <(:)
for ((line = 1; ; line++)); do
    echo "$PENSTOCK_INCARNATION $line" && printf . >> $life-count
    read -t 0.01 -u $never
done
"""
#: The same family of a Python program, which is forked from a warm one.
FORKED_FAMILY = r"""
import os, subprocess, time

life = f"{os.environ['MARKS']}/{os.environ['PENSTOCK_INCARNATION']}-{os.environ['RANK']}"
deaf = f"trap '' TERM INT HUP; echo deaf > {life}.$$; exec sleep 1000"
session = f"trap '' TERM INT HUP; echo session > {life}.$$; exec sleep 1000"
empty = f"setsid env -i bash -c 'echo empty > {life}.$$; exec sleep 1000' > /dev/null 2>&1 &"
foreign = f"trap '' TERM; setsid env -i PENSTOCK_WORKER=other-7 bash -c 'echo foreign > {life}.$$; exec sleep 1000' > /dev/null 2>&1 &"
subprocess.Popen(["bash", "-c", deaf])
subprocess.Popen(["bash", "-c", session], start_new_session=True)
subprocess.run(["bash", "-c", empty])
subprocess.run(["bash", "-c", foreign])
with open(f"{life}.{os.getpid()}", "w") as mark:
    mark.write("rank")
line = 0
with open(f"{life}-count", "ab", buffering=0) as counter:
    while True:
        line += 1
        print(os.environ["PENSTOCK_INCARNATION"], line, flush=True)
        counter.write(b".")
        time.sleep(0.01)
"""
VICTIMS = {
    "rank": 5,
    "descendant": 4,
    "coordinator": 2,
    "agent": 3,
    "keeper": 2,
    "launcher": 2,
    "keeper and agent": 2,
    "two": 3,
}
#: The promise.
LIMIT_S = 1.0
#: A busy machine is no survivor: who is gone by then is late, and how late is told.
PATIENCE_S = 20.0
NOBODY = 65534


@dataclass
class Tally:
    """What came of all kills."""

    kills: Counter[str] = field(default_factory=Counter)
    #: Processes that should have gone and were there after the limit, and after all patience.
    late: int = 0
    survivors: int = 0
    #: Processes that should not have been touched and are gone.
    bystanders: int = 0
    #: Lines that a rank has written and its log does not have; of lives whose keeper and agent were killed at once, and of all others.
    lost_with_both: int = 0
    lost: int = 0
    lines: int = 0
    slowest_s: float = 0.0

    def add(self, other: "Tally") -> None:
        """Together."""
        self.kills += other.kills
        self.late += other.late
        self.survivors += other.survivors
        self.bystanders += other.bystanders
        self.lost_with_both += other.lost_with_both
        self.lost += other.lost
        self.lines += other.lines
        self.slowest_s = max(self.slowest_s, other.slowest_s)


def starts(pid: int) -> int:
    """When a process that lives started; 0 for one that does not."""
    candidate = process(pid)
    return candidate.start_ticks if candidate is not None and candidate.is_alive else 0


class Target:
    """A job to kill in."""

    def __init__(self, home: Path, user: int, *, cgroup: bool, forked: bool) -> None:
        self.home, self.user = home, user
        self.marks = Path(tempfile.mkdtemp(dir=home, prefix="marks-"))
        restarts = Restarts(most=1000, backoff_s=0, same_failure_max=0)
        command = ["bash", "-c", FAMILY]
        if forked:
            (home / "family.py").write_text(FORKED_FAMILY)
            command = [sys.executable, str(home / "family.py")]
        launch = Launch(
            command=command,
            ranks=RANKS,
            cgroup=cgroup,
            restarts=restarts,
            zygote="always" if forked else "never",
        )
        self.job: Job = prepare(home, launch)
        for path in (self.marks, *(home / "jobs").rglob("*"), home / "jobs"):
            os.chown(path, user, -1)
        self.launcher = subprocess.Popen(
            [home / "penstock-agent", "launch", self.job.directory],
            env={**os.environ, "MARKS": str(self.marks)},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._owner(),  # type: ignore[call-overload]
        )
        #: Every life that was complete: rank, and number and start of each of its processes by kind.
        self.lives: dict[int, dict[int, tuple[int, int, str]]] = {}
        self.both_killed: set[int] = set()
        #: A life was ended that has to be followed by another.
        self.is_renewed = False

    def _owner(self) -> dict[str, object]:
        return {"user": self.user, "extra_groups": []} if os.geteuid() != self.user else {}

    def state(self) -> JobState:
        state = self.job.state()
        assert state is not None
        return state

    def settle(self) -> int | None:
        """Wait for a whole life that is not yet known; its number, or nothing when the job is over."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.job.phase() in ("failed", "stopped", "lost"):
                return None
            state = self.job.state()
            life = state.incarnation if state is not None else 0
            if life in self.lives and not self.is_renewed:
                self.lives[life] = {
                    pid: member for pid, member in self.lives[life].items() if starts(pid) == member[1]
                }
                return life
            members = self._members(life)
            if (
                life not in self.lives
                and len(members) == RANKS * FAMILY_SIZE
                and state is not None
                and starts(state.coordinator)
            ):
                self.lives[life], self.is_renewed = members, False
                return life
            Clock().pause(0.005)
        raise TimeoutError(f"no whole life: {self.job.state()}")

    def _members(self, life: int) -> dict[int, tuple[int, int, str]]:
        members = {}
        for path in self.marks.glob(f"{life}-*.*"):
            pid, kind = path.suffix[1:], path.read_text().strip()
            if kind and (begun := starts(int(pid))):
                members[int(pid)] = (int(path.name.split("-")[1].split(".")[0]), begun, kind)
        return members

    def sweep(self) -> None:
        """The next command, of the same user."""
        call = [self.home / "penstock-agent", "sweep", self.job.directory]
        subprocess.run(call, check=False, stdout=subprocess.DEVNULL, timeout=60, **self._owner())  # type: ignore[call-overload]

    def lost_lines(self) -> Iterator[tuple[int, int, int]]:
        """Of every life that was whole: its number, how many lines its ranks wrote, and how many are not in the logs."""
        for rank in range(RANKS):
            log = self.job.directory / "logs" / f"rank-{rank}.stdout"
            there = Counter(log.read_text().splitlines()) if log.exists() else Counter()
            for life in self.lives:
                path = self.marks / f"{life}-{rank}-count"
                # A byte for each, after it was written.
                written = path.stat().st_size if path.exists() else 0
                lost = sum(there[f"{life} {line}"] != 1 for line in range(1, written + 1))
                yield life, written, lost

    def end(self) -> None:
        """Whatever is left."""
        if self.launcher.poll() is None:
            self.launcher.kill()
        self.launcher.wait(60)
        self.sweep()


@contextmanager
def folder(user: int) -> Iterator[Path]:
    """Where a user can have jobs."""
    with tempfile.TemporaryDirectory(prefix="penstock-kills-") as name:
        home = Path(name)
        (home / "jobs").mkdir()
        shutil.copy(agent_path(), home)
        for path in (home, home / "jobs", home / "penstock-agent"):
            os.chown(path, user, -1)
        yield home


def users() -> list[int]:
    """Root and an ordinary one, where we may be both."""
    return [0, NOBODY] if os.geteuid() == 0 else [os.geteuid()]


def kills(seed: int, most: int, *, user: int, cgroup: bool, forked: bool = False) -> Tally:
    """So many random kills in jobs of a user, beside a job that nobody may touch; ranks are executed, or forked from a warm Python."""
    chance, tally = random.Random(seed), Tally()
    with folder(user) as home:
        other, target = Target(home, user, cgroup=cgroup, forked=forked), None
        try:
            other.settle()
            untouched = _identities(other)
            while tally.kills.total() < most:
                target = target or Target(home, user, cgroup=cgroup, forked=forked)
                life = target.settle()
                if life is not None:
                    tally.add(_kill(target, life, chance))
                    tally.bystanders += sum(starts(pid) != begun for pid, begun in untouched.items())
                if target.job.phase() in ("failed", "stopped", "lost"):
                    tally.add(_closed(target))
                    target = None
        finally:
            if target is not None:
                target.launcher.terminate()
                target.launcher.wait(60)
                tally.add(_closed(target))
            other.end()
    return tally


def _identities(target: Target) -> dict[int, int]:
    state = target.state()
    own = [target.launcher.pid, state.keeper, state.agent]
    family = {pid: begun for life in target.lives.values() for pid, (_, begun, _) in life.items()}
    return {**{pid: starts(pid) for pid in own}, **family}


def _closed(target: Target) -> Tally:
    """What its logs have, once it is over."""
    tally = Tally()
    target.end()
    for life, written, lost in target.lost_lines():
        tally.lines += written
        if life in target.both_killed:
            tally.lost_with_both += lost
        else:
            tally.lost += lost
    shutil.rmtree(target.marks)
    return tally


def _kill(target: Target, life: int, chance: random.Random) -> Tally:
    state, members = target.state(), target.lives[life]
    ranks = [pid for pid, (_, _, kind) in members.items() if kind == "rank"]
    descendants = [pid for pid in members if pid not in ranks]
    kind = chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
    kind = kind if descendants or kind != "descendant" else "rank"
    single = {
        "coordinator": state.coordinator,
        "agent": state.agent,
        "keeper": state.keeper,
        "launcher": target.launcher.pid,
    }
    everybody = [*members, *single.values()]
    chosen: dict[str, list[int]] = {
        "rank": [chance.choice(ranks)],
        "descendant": [chance.choice(descendants)] if descendants else [],
        "keeper and agent": [state.keeper, state.agent],
        "two": chance.sample(everybody, 2),
    }
    victims = chosen[kind] if kind in chosen else [single[kind]]
    before = {pid: starts(pid) for pid in everybody}
    if len(victims) > 1:
        _send(victims, signal.SIGSTOP)
    begun = time.monotonic()
    _send(victims, signal.SIGKILL)
    owners = {state.keeper, state.agent, target.launcher.pid} & set(victims)
    whole = bool(owners or set(ranks) & set(victims))
    gone = {pid for pid in members if whole or pid in victims}
    target.is_renewed = whole
    tally = Tally(kills=Counter({kind: len(victims)}))
    if {state.keeper, state.agent} <= set(victims):
        target.both_killed.add(life)
        target.sweep()
    for number in count():
        left = [pid for pid in gone if starts(pid) == before[pid]]
        took_s = time.monotonic() - begun
        if not left or took_s > PATIENCE_S:
            break
        if took_s > LIMIT_S and number and not tally.late:
            tally.late = len(left)
        Clock().pause(0.005)
    tally.survivors, tally.slowest_s = len(left), took_s
    tally.bystanders = sum(pid not in gone and starts(pid) != before[pid] for pid in members)
    if owners - {state.agent}:
        target.launcher.wait(60)
    return tally


def _send(pids: list[int], signum: signal.Signals) -> None:
    for pid in pids:
        # The second may have ended with the first.
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
