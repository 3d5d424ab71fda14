"""Random kills: any process of a job, one or two at once, in any order; then who is gone, who is untouched, and which lines the logs have.

Ranks have families of processes that are hard to find and hard to end: deaf ones, sessions of their own, empty and foreign environments,
forked twice. Every process writes its number down by itself, so nothing here relies on how Penstock finds them. Everything follows from
the seed but the moment, which is the machine's.
"""

import itertools
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
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.process import Job, JobState, Launch, Restarts, prepare
from penstock.process.job.launch import agent_path
from penstock.process.watch.lineage import process
from penstock.state.ranks.clock import Clock
from tests.process.reachable_python import reachable_python, reachable_zygote

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


@dataclass(frozen=True)
class Way:
    """What kind of jobs are killed in."""

    user: int
    cgroup: bool = True
    #: Ranks are forked from a warm Python, not executed.
    forked: bool = False
    #: Who restarts with a rank that failed: its ``gang``, or ``one``, which is it alone.
    restart: str = "gang"

    def __str__(self) -> str:
        how = ["forked" if self.forked else "executed"] + ["restarted one by one"] * (self.restart == "one")
        return ", ".join(
            [f"user {self.user}", f"{'with' if self.cgroup else 'without'} control groups", *how]
        )


#: One process of a family: its rank, when it started, and its kind.
Member = tuple[int, int, str]


class Target:
    """A job to kill in."""

    def __init__(self, home: Path, way: Way) -> None:
        self.home, self.way = home, way
        self.marks = Path(tempfile.mkdtemp(dir=home, prefix="marks-"))
        self.job, variables = self._prepare()
        for path in (self.marks, *(home / "jobs").rglob("*"), home / "jobs"):
            os.chown(path, way.user, -1)
        self.launcher = subprocess.Popen(
            [home / "penstock-agent", "launch", self.job.directory],
            env={**os.environ, **variables, "MARKS": str(self.marks)},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._owner(),  # type: ignore[call-overload]
        )
        #: Of every life of a rank that was complete, by rank and number: its processes.
        self.lives: dict[tuple[int, int], dict[int, Member]] = {}
        self.both_killed: set[tuple[int, int]] = set()
        #: Ranks whose life was ended and has to be followed by another.
        self.renewed: set[int] = set()

    def _prepare(self) -> tuple[Job, dict[str, str]]:
        """The job, and the variables that its ranks need."""
        command = ["bash", "-c", FAMILY]
        variables: dict[str, str] = {}
        is_foreign = self.way.user != os.geteuid()
        if self.way.forked:
            python = Path(sys.executable)
            if is_foreign:
                python, variables = reachable_python(self.home)
            (self.home / "family.py").write_text(FORKED_FAMILY)
            command = [str(python), str(self.home / "family.py")]
        restarts = Restarts(most=1000, backoff_s=0, same_failure_max=0)
        zygote = "always" if self.way.forked else "never"
        launch = Launch(
            command=command, ranks=RANKS, cgroup=self.way.cgroup, restarts=restarts, zygote=zygote
        )
        spec = launch.spec()
        policy = replace(spec.roles[0].policy, restart=self.way.restart)
        job = prepare(self.home, replace(spec, roles=[replace(spec.roles[0], policy=policy)]))
        if self.way.forked and is_foreign:
            reachable_zygote(self.home, job.directory)
        return job, variables

    def _owner(self) -> dict[str, object]:
        return {"user": self.way.user, "extra_groups": []} if os.geteuid() != self.way.user else {}

    def state(self) -> JobState:
        state = self.job.state()
        assert state is not None
        return state

    def settle(self) -> dict[int, Member] | None:
        """Wait until every rank is in a whole life; all of their processes, or nothing when the job is over."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.job.phase() in ("failed", "stopped", "lost"):
                return None
            state = self.job.state()
            lives = self.current(state)
            if state is not None and len(lives) == RANKS and all(map(self._is_whole, lives)):
                for life in lives:
                    self.lives[life] = {
                        pid: member for pid, member in self.lives[life].items() if starts(pid) == member[1]
                    }
                if starts(state.coordinator):
                    self.renewed.clear()
                    return {pid: member for life in lives for pid, member in self.lives[life].items()}
            Clock().pause(0.005)
        raise TimeoutError(f"no whole life: {self.job.state()}")

    def current(self, state: JobState | None) -> list[tuple[int, int]]:
        """Every rank with the number of its newest life."""
        workers = state.workers if state is not None else []
        return [(worker["rank"], gang.incarnation or 0) for gang, worker in workers]

    def _is_whole(self, life: tuple[int, int]) -> bool:
        """Whether all processes of a life are there, or were once and nobody has ended it since."""
        if life in self.lives:
            return life[0] not in self.renewed
        family = self._members(*life)
        if len(family) == FAMILY_SIZE:
            self.lives[life] = family
            self.renewed.discard(life[0])
        return life in self.lives

    def _members(self, rank: int, life: int) -> dict[int, Member]:
        family = {}
        for path in self.marks.glob(f"{life}-{rank}.*"):
            pid, kind = path.suffix[1:], path.read_text().strip()
            if kind and (begun := starts(int(pid))):
                family[int(pid)] = (rank, begun, kind)
        return family

    def sweep(self) -> None:
        """The next command, of the same user."""
        call = [self.home / "penstock-agent", "sweep", self.job.directory]
        subprocess.run(call, check=False, stdout=subprocess.DEVNULL, timeout=60, **self._owner())  # type: ignore[call-overload]

    def lost_lines(self) -> Iterator[tuple[tuple[int, int], int, int]]:
        """Of every life that was whole: which, how many lines its rank wrote, and how many are not in the log, or more than once."""
        for rank in range(RANKS):
            log = self.job.directory / "logs" / f"rank-{rank}.stdout"
            there = Counter(log.read_text().splitlines()) if log.exists() else Counter()
            for life in (life for of_rank, life in self.lives if of_rank == rank):
                path = self.marks / f"{life}-{rank}-count"
                # A byte for each, after it was written.
                written = path.stat().st_size if path.exists() else 0
                lost = sum(there[f"{life} {line}"] != 1 for line in range(1, written + 1))
                yield (rank, life), written, lost

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


def ways() -> list[Way]:
    """All kinds of jobs."""
    every = itertools.product(users(), (True, False), (False, True))
    return [Way(user, cgroup, forked) for user, cgroup, forked in every] + [
        Way(user, cgroup=user == NOBODY, forked=forked, restart="one")
        for user, forked in itertools.product(users(), (False, True))
    ]


def kills(seed: int, most: int, way: Way) -> Tally:
    """So many random kills in jobs of one kind, beside a job that nobody may touch."""
    chance, tally = random.Random(seed), Tally()
    with folder(way.user) as home:
        other, target = Target(home, way), None
        try:
            other.settle()
            assert {worker["how"] for _, worker in other.state().workers} == {
                "zygote" if way.forked else "exec"
            }
            untouched = _identities(other)
            while tally.kills.total() < most:
                target = target or Target(home, way)
                members = target.settle()
                if members is not None:
                    tally.add(_kill(target, members, chance))
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


def _kill(target: Target, members: dict[int, Member], chance: random.Random) -> Tally:
    state = target.state()
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
    ended = {members[pid][0] for pid in set(ranks) & set(victims)}
    if owners or (ended and target.way.restart == "gang"):
        ended = set(range(RANKS))
    gone = {pid for pid, (rank, _, _) in members.items() if rank in ended or pid in victims}
    target.renewed |= ended
    tally = Tally(kills=Counter({kind: len(victims)}))
    if {state.keeper, state.agent} <= set(victims):
        target.both_killed.update(target.current(state))
        if target.launcher.pid in victims:
            # Else it does that.
            target.sweep()
    for number in itertools.count():
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
