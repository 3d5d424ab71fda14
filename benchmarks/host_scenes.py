"""What is measured of a swarm of hosts, each scene in a pid namespace of its own: `python -m benchmarks.host_scenes SCENE [NUMBER]`.

It prints one line of JSON. `bench_hosts` calls it and holds the figures against what is asked.
"""

import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.host_swarm import Swarm, cpu_s, memory_kb, until

IDLE_S = 10.0
QUESTIONS = 5
ROUNDS = 5
#: Of hosts that are lost: short, because it is waited for.
LEASE_S = 2.0
#: Of hosts that say goodbye: so long that nobody waited for it.
LONG_LEASE_S = 30.0
#: Training, and how often a rank of it dies; and for warm Pythons to be ready again.
STEP_PROGRAM = Path(__file__).with_name("step_program.py")
STEP_ROUNDS = 3
WARM_S = 4.0
#: Says which rank of which life began, then waits.
MARKING = (
    "import os, signal; e = os.environ;"
    " open(e['MARKS'] + '/' + e['PENSTOCK_INCARNATION'] + '-' + e['RANK'] + '-' + str(os.getpid()), 'w');"
    " signal.pause()"
)


def idle(folder: Path, hosts: int) -> dict[str, Any]:
    """Many hosts join, run a rank each, and are left alone for a while."""
    swarm = Swarm(folder, hosts)
    swarm.furnish()
    started_s = swarm.start()
    begun = time.perf_counter()
    swarm.await_joined()
    joined_s = time.perf_counter() - begun
    swarm.await_heard()
    heard_s = time.perf_counter() - begun
    until(lambda: _running(swarm) == hosts, "all ranks to run")
    running_s = time.perf_counter() - begun
    parts = swarm.parts()
    pids = {part: [pid for host in by_host.values() for pid in host] for part, by_host in parts.items()}
    supervisors = [pid for part in pids.values() for pid in part]
    time.sleep(3.0)
    before_s, begun, load = cpu_s(supervisors), time.perf_counter(), os.getloadavg()[0]
    of_part = {part: cpu_s(of) for part, of in pids.items()}
    time.sleep(IDLE_S)
    spent = time.perf_counter() - begun
    share = (cpu_s(supervisors) - before_s) / spent
    shares = {part: (cpu_s(of) - of_part[part]) / spent for part, of in pids.items()}
    leader = swarm.leader(0) or 0
    leading = parts["coordinator"].get(leader, [])
    asked = hosts - 1
    memory = {part: memory_kb(of) for part, of in pids.items()}
    return {
        "hosts": hosts,
        "started_s": started_s,
        "joined_s": joined_s,
        "heard_s": heard_s,
        "running_s": running_s,
        "supervisors": {part: len(of) for part, of in pids.items()},
        "pss_kb": {part: pss / hosts for part, (pss, _) in memory.items()},
        "rss_kb": {part: rss / hosts for part, (_, rss) in memory.items()},
        "leader_pss_kb": memory_kb(leading)[0],
        "idle_share": share,
        "idle_shares": shares,
        "load": load,
        "question_s": _median(lambda: _all_answer(swarm, asked)),
        "ps_s": _median(lambda: _ps(swarm, asked)),
    }


def _running(swarm: Swarm) -> int:
    time.sleep(0.1)
    return len(swarm.ask(0, "ps").get("rows") or [])


def _all_answer(swarm: Swarm, asked: int) -> None:
    account = swarm.ask(asked, "ps").get("account") or {}
    assert account.get("answered") == f"0-{swarm.hosts - 1}", account


def _ps(swarm: Swarm, asked: int) -> None:
    shown = swarm.penstock(asked, "ps", "swarm-0000")
    assert shown.returncode == 0, shown.stderr
    assert f"{swarm.hosts} hosts here" in shown.stderr + shown.stdout, shown.stderr[-500:]


def _median(work: Callable[[], None]) -> float:
    took = []
    for _ in range(QUESTIONS):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def loss(folder: Path, hosts: int) -> dict[str, Any]:
    """The leader's host is lost at once with everything on it: how long until another leads."""
    return {"hosts": hosts, "took_s": [_lose_leader(folder / str(number), hosts) for number in range(3)]}


def _lose_leader(folder: Path, hosts: int) -> float:
    swarm = Swarm(folder, hosts)
    swarm.furnish()
    swarm.start()
    swarm.await_joined()
    swarm.await_heard()
    leader = swarm.leader(0)
    assert leader is not None
    asked = (leader + 1) % hosts
    begun = time.perf_counter()
    swarm.lose(leader)
    until(lambda: swarm.leader(asked) not in (None, leader), "another to lead", 60.0)
    took_s = time.perf_counter() - begun
    for host in range(hosts):
        swarm.lose(host)
    return took_s


def death(folder: Path, hosts: int) -> dict[str, Any]:
    """A rank of eight is killed: how long until eight run again."""
    swarm, marks = _marking(folder, hosts, 8 // hosts)
    swarm.start()
    until(lambda: len(_of_life(marks, 0)) == 8, "the first life")
    took = []
    for life in range(ROUNDS):
        time.sleep(1.0)
        victim = next(name for name in _of_life(marks, life) if name.split("-")[1] == "7")
        begun = time.perf_counter()
        os.kill(int(victim.split("-")[2]), signal.SIGKILL)
        until(lambda young=life + 1: len(_of_life(marks, young)) == 8, f"life {life + 1}")  # type: ignore[misc]
        took.append(time.perf_counter() - begun)
    return {"hosts": hosts, "took_s": took}


def ranks(folder: Path, hosts: int) -> dict[str, Any]:
    """64 executed ranks: how long from the first launcher until all have begun."""
    return {"hosts": hosts, "took_s": [_begin_ranks(folder / str(number), hosts) for number in range(ROUNDS)]}


def _begin_ranks(folder: Path, hosts: int) -> float:
    swarm, marks = _marking(folder, hosts, 64 // hosts)
    begun = time.perf_counter()
    launchers = [swarm.launch(host) for host in range(hosts)]
    until(lambda: len(_of_life(marks, 0)) == 64, "64 ranks")
    took_s = time.perf_counter() - begun
    for launcher in launchers:
        launcher.wait(60.0)
    for host in range(hosts):
        swarm.lose(host)
    until(lambda: not any(swarm.parts().values()), "an end")
    return took_s


def _marking(
    folder: Path, hosts: int, ranks_of_host: int, command: Sequence[str] = (), **more: Any
) -> tuple[Swarm, Path]:
    marks = folder / "marks"
    marks.mkdir(parents=True)
    command = command or [sys.executable, "-S", "-c", MARKING]
    swarm = Swarm(folder, hosts, ranks_of_host, command, environment={"MARKS": str(marks)}, **more)
    swarm.furnish()
    return swarm, marks


def _of_life(marks: Path, life: int) -> list[str]:
    return [name for name in os.listdir(marks) if name.startswith(f"{life}-")]


def replaced(folder: Path, hosts: int) -> dict[str, Any]:
    """A host is lost with everything on it, and one in reserve takes its place: how long until all ranks run again."""
    return {"lease_s": LEASE_S, "took_s": _lose_hosts(folder, hosts, spares=ROUNDS)}


def shrunk(folder: Path, hosts: int) -> dict[str, Any]:
    """A host is lost with everything on it, and nobody is waited for: how long until the ranks that are left run again."""
    sizes = tuple(range(1, hosts + 1))
    return {
        "lease_s": LEASE_S,
        "took_s": [
            took
            for number in range(ROUNDS)
            for took in _lose_hosts(folder / str(number), hosts, spares=0, sizes=sizes)
        ],
    }


def left(folder: Path, hosts: int) -> dict[str, Any]:
    """A host says goodbye: its keeper is killed, its agent ends its ranks and leaves. How long until all ranks run on a spare."""
    took_s = _lose_hosts(folder, hosts, spares=ROUNDS, lease_s=LONG_LEASE_S, way=Swarm.dismiss)
    return {"lease_s": LONG_LEASE_S, "took_s": took_s}


def _lose_hosts(
    folder: Path,
    hosts: int,
    *,
    spares: int,
    sizes: Sequence[int] = (),
    lease_s: float = LEASE_S,
    way: Callable[[Swarm, int], None] = Swarm.lose,
) -> list[float]:
    swarm, marks = _marking(folder, hosts, 8 // hosts, lease_s=lease_s, spares=spares, sizes=sizes)
    swarm.start()
    until(lambda: len(_of_life(marks, 0)) == 8, "the first life")
    until(lambda: _states(swarm).count("spare") == spares, "the spares")
    took = []
    for life in range(spares or 1):
        time.sleep(2.0)
        # The last of the hosts, then whoever took its place.
        left = 8 if spares else 8 - 8 // hosts
        victim = hosts - 1 if life == 0 else _host_of(swarm, hosts - 1)
        begun = time.perf_counter()
        way(swarm, victim)
        until(lambda young=life + 1, left=left: len(_of_life(marks, young)) == left, f"life {life + 1}")  # type: ignore[misc]
        took.append(time.perf_counter() - begun)
    for host in range(hosts + spares):
        swarm.lose(host)
    return took


def _states(swarm: Swarm) -> list[str]:
    rows = swarm.ask(0, "hosts").get("rows") or [{}]
    return [host["state"] for host in rows[0].get("hosts") or []]


def _host_of(swarm: Swarm, rank: int) -> int:
    """Which host has a host rank now."""
    rows = swarm.ask(0, "hosts")["rows"]
    (name,) = [host["name"] for host in rows[0]["hosts"] if host["rank"] == rank]
    return int(name.removeprefix("host"))


def steps(folder: Path, hosts: int) -> dict[str, Any]:
    """Training with DDP and warm Pythons: from the death of a rank, and of a host that a spare replaces, to every rank's next step."""
    spares, ranks_of_host = 2, 2
    ranks = hosts * ranks_of_host
    swarm, marks = _marking(
        folder,
        hosts,
        ranks_of_host,
        [sys.executable, str(STEP_PROGRAM)],
        lease_s=LEASE_S,
        spares=spares,
        zygote="always",
    )
    swarm.start()
    until(lambda: len(_of_life(marks, 0)) == ranks, "the first step")
    until(lambda: _states(swarm).count("spare") == spares, "the spares")
    took: dict[str, list[float]] = {"death_s": [], "took_s": []}
    for life in range(STEP_ROUNDS + spares):
        time.sleep(WARM_S)
        dies = life < STEP_ROUNDS
        victim = hosts - 1 if life <= STEP_ROUNDS else _host_of(swarm, hosts - 1)
        pid = int(
            next(name for name in _of_life(marks, life) if name.split("-")[1] == str(ranks - 1)).split("-")[2]
        )
        begun = time.perf_counter()
        if dies:
            os.kill(pid, signal.SIGKILL)
        else:
            swarm.lose(victim)
        until(lambda young=life + 1: len(_of_life(marks, young)) == ranks, f"a step of life {life + 1}")  # type: ignore[misc]
        took["death_s" if dies else "took_s"].append(time.perf_counter() - begun)
    for host in range(hosts + spares):
        swarm.lose(host)
    return {"lease_s": LEASE_S, **took}


SCENES = {
    "idle": idle,
    "loss": loss,
    "death": death,
    "ranks": ranks,
    "replaced": replaced,
    "shrunk": shrunk,
    "left": left,
    "steps": steps,
}


def main(words: list[str]) -> int:
    """Play one scene."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-hosts-"))
    try:
        print(json.dumps(SCENES[words[0]](folder, int(words[1]))))
    finally:
        # Nobody of the scene may write there any more; the namespace ends with us, and this is before.
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
