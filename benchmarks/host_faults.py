"""The long part of the fault matrix of many hosts, with real processes in namespaces: `python -m benchmarks hosts --faults`.

Eight hosts, of root and of an ordinary user, go through every fault in an order drawn from a seed: after each it is looked who is gone, who
is untouched, and that no rank was there twice. What tests/hosts tries once on three or four hosts is repeated here on more.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.conftest import ROOT
from tests.hosts.elastic_training import TRAINING_S, shrink_and_grow
from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until
from tests.run.comparing import first_difference
from tests.torch.stream import make_stream

from benchmarks.table import Table

HOSTS = 8
RANKS = 2
ROUNDS = 2
SEED = 20
#: Of `nobody`.
USER = 65_534
LEASE_S = 3.0


def run_faults() -> Table:
    """Every fault on eight hosts, several times."""
    table = Table(
        "after every fault who should be gone is gone, and nobody else; no rank is there twice", "s"
    )
    for user in (None, USER):
        whose = "root" if user is None else "an ordinary user"
        with tempfile.TemporaryDirectory(prefix="penstock-faults-") as name:
            folder = Path(name)
            options = ("--lease", f"{LEASE_S:g}s", "--fanout", "2", "--restarts", "200")
            with job_of_hosts(folder, HOSTS, ranks=RANKS, options=options, user=user) as job:
                _campaign(table, job, whose)
    _lose_three(table)
    for kind in ("fsdp", "ddp"):
        with tempfile.TemporaryDirectory(prefix="penstock-faults-") as name:
            begun = time.perf_counter()
            shrink_and_grow(Path(name), kind, 4)
            words = f"training with {kind} on 4 hosts, then 2, then 4: equal batches"
            table.add(words, time.perf_counter() - begun, "three lives, torch loaded in each")
    _first_host_cut(table)
    _refuse_size(table)
    for zygote in ("never", "always"):
        _ordinary_script(table, zygote)
    return table


def _lose_three(table: Table) -> None:
    """Four hosts and two in reserve: three are lost one after the other, and the job goes on with two."""
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as name:
        options = ("--lease", f"{LEASE_S:g}s", "--replace-within", "1s")
        with job_of_hosts(Path(name), 4, options=options, world=6) as job:
            job.start(nnodes="2:4")
            job.await_life(0)
            job.start(4, 5, nnodes="2:4", node_rank=None)
            until(lambda: _spares(job) == 2, job.account)
            begun = time.perf_counter()
            running = [0, 1, 2, 3]
            for life, lost in enumerate((0, 1, 2), 1):
                job.lose(lost)
                running.remove(lost)
                if life < 3:
                    running.append(_taken_over(job, running))
                    job.await_hosts(life, *running)
                else:
                    until(lambda: len(_running(job)) == 2, job.account)
                table.add(
                    f"host {lost} of 4 lost, with {max(3 - life, 0)} spares after it",
                    time.perf_counter() - begun,
                    f"life {life} on hosts {_running(job)}",
                )
                begun = time.perf_counter()
            left = _running(job)
            job.finish()
            assert job.codes(*left) == [0] * len(left), job.account()


def _spares(job: JobOfHosts) -> int:
    asked = next(index for index in range(6) if job.states(index))
    return job.states(asked).count("spare")


def _running(job: JobOfHosts) -> list[int]:
    """Hosts that have ranks."""
    return [index for index, pids in job.rank_pids(*range(6)).items() if pids]


def _taken_over(job: JobOfHosts, running: list[int]) -> int:
    """The spare that has a rank now."""
    until(lambda: set(_running(job)) - set(running), job.account)
    (spare,) = set(_running(job)) - set(running)
    return spare


def _first_host_cut(table: Table) -> None:
    """R1: training over four hosts and a spare; host 0, which leads, is cut off in mid-run, and nothing of it shows in the parameters."""
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as name:
        begun = time.perf_counter()
        folder = Path(name)
        (folder / "stream").mkdir()
        make_stream(folder / "stream")
        mark = folder / "waits"
        for run, words in (("whole", []), ("cut", [str(mark)])):
            with job_of_hosts(folder, 4, options=("--lease", f"{LEASE_S:g}s"), world=5) as job:
                job.path = (ROOT,)
                program = [
                    "-m",
                    "tests.hosts.train_on_hosts",
                    str(folder / "stream"),
                    str(folder / run),
                    *words,
                ]
                job.start(program=program)
                ends = range(4)
                if words:
                    until(mark.exists, job.account, TRAINING_S)
                    job.start(4, node_rank=None, program=program)
                    until(lambda: "spare" in job.states(1), job.account)
                    job.host(0).cut()
                    ends = range(1, 5)
                assert job.codes(*ends, patience_s=TRAINING_S) == [0] * 4, job.account()
        difference = first_difference(folder / "whole", folder / "cut")
        assert not difference, difference
        table.add(
            "host 0 of 4 cut off in a training run, bit-equal", time.perf_counter() - begun, "with a spare"
        )


def _refuse_size(table: Table) -> None:
    """Four hosts may go on with three, which cannot share batches of 16: refused before the first step, not when a host is lost."""
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as name:
        begun = time.perf_counter()
        folder = Path(name)
        (folder / "stream").mkdir()
        make_stream(folder / "stream")
        words = [
            "-m",
            "tests.hosts.train_with_sizes",
            "ddp",
            str(folder / "stream"),
            str(folder / "run"),
            name,
        ]
        options = ("--lease", f"{LEASE_S:g}s", "--sizes", "3,4", "--restarts", "0")
        with job_of_hosts(folder, 4, options=options) as job:
            job.path = (ROOT,)
            job.start(nnodes="3:4", program=words)
            codes = job.codes(patience_s=TRAINING_S)
            said = job.output(0)
        assert 0 not in codes, codes
        assert "WorldSizeUnfit" in said, said
        assert "a batch of 16 rows cannot be dealt to 3 lanes" in said, said
        assert not list(folder.glob("world-*"))
        table.add("a size that does not fit the batch is refused at the start", time.perf_counter() - begun)


def _ordinary_script(table: Table, zygote: str) -> None:
    """A script that knows nothing of Penstock goes on with a spare, with fewer hosts and with all again, and leaves nothing behind."""
    script = ROOT / "tests/hosts/ordinary_training.py"
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as name:
        begun, folder = time.perf_counter(), Path(name)
        program = [str(script), name]
        options = ("--lease", f"{LEASE_S:g}s", "--replace-within", "1s", "--grace", "2s", "--zygote", zygote)
        with job_of_hosts(folder, 3, options=options, world=4) as job:

            def trains(*hosts: int) -> None:
                def so() -> bool:
                    paths = [folder / f"epochs-{rank}" for rank in range(len(hosts))]
                    lines = [json.loads(path.read_text().splitlines()[-1]) for path in paths if path.exists()]
                    names = sorted(job.host(host).name for host in hosts)
                    here = sorted(line["host"] for line in lines if line["world"] == len(hosts))
                    return here == names

                until(so, job.account, TRAINING_S)

            job.start(nnodes="2:3", program=program)
            trains(0, 1, 2)
            job.start(3, nnodes="2:3", node_rank=None, program=program)
            until(lambda: "spare" in job.states(0), job.account)
            job.lose(1)
            trains(0, 2, 3)
            job.lose(2)
            trains(0, 3)
            job.start(1, nnodes="2:3", node_rank=None, program=program)
            until(lambda: "spare" in job.states(0), job.account)
            job.host(3).kill(signal.SIGKILL, script.name, str(Path(sys.executable).name))
            trains(0, 1, 3)
            job.finish()
            assert job.codes(0, 1, 3, patience_s=TRAINING_S) == [0, 0, 0], job.account()
            for host in range(4):
                job.assert_nothing_left(host)
        epochs = [json.loads(line)["epoch"] for line in (folder / "epochs-0").read_text().splitlines()]
        assert epochs == sorted(epochs), epochs
        words = f"an ordinary script, warm Python {zygote}: a spare, then fewer hosts, then all again"
        table.add(words, time.perf_counter() - begun, f"{len(epochs)} epochs in four lives")


def _campaign(table: Table, job: JobOfHosts, whose: str) -> None:
    if job.user is not None:
        job.let_user_in()
    job.start()
    life = job.await_life(0)
    chance = random.Random(SEED)
    for number in range(ROUNDS):
        faults = list(FAULTS.items())
        chance.shuffle(faults)
        for name, fault in faults:
            host = chance.randrange(HOSTS)
            begun = time.perf_counter()
            after = fault(job, host, life)
            table.add(
                f"{whose}, round {number + 1}: {name}",
                time.perf_counter() - begun,
                f"host {host}, life {life} → {after}",
            )
            life = after
    job.finish()
    codes = job.codes()
    assert codes == [0] * HOSTS, f"{codes}\n{job.account()}"
    job.assert_nothing_left()


def _others(job: JobOfHosts, host: int) -> dict[int, list[int]]:
    return {at: pids for at, pids in job.rank_pids().items() if at != host}


def _rank(job: JobOfHosts, host: int, life: int) -> int:
    os.kill(job.rank_pids(host)[host][0], signal.SIGKILL)
    return job.await_life(life + 1)


def _agent(job: JobOfHosts, host: int, life: int) -> int:
    os.kill(job.part(host, "agent"), signal.SIGKILL)
    return job.await_life(life + 1)


def _coordinator(job: JobOfHosts, host: int, life: int) -> int:
    before, killed = job.rank_pids(), job.part(host, "coordinator")
    os.kill(killed, signal.SIGKILL)
    until(lambda: job.parts(host, "coordinator") not in ([], [killed]), job.account)
    _all_here(job, host)
    assert job.rank_pids() == before, job.account()
    return life


def _keeper(job: JobOfHosts, host: int, life: int) -> int:
    os.kill(job.part(host, "keeper"), signal.SIGKILL)
    job.codes(host)
    job.assert_nothing_left(host)
    job.start(host)
    return job.await_life(life + 1)


def _lost(job: JobOfHosts, host: int, life: int) -> int:
    job.lose(host)
    job.start(host)
    return job.await_life(life + 1)


def _stopped(*parts: str) -> Callable[[JobOfHosts, int, int], int]:
    def fault(job: JobOfHosts, host: int, life: int) -> int:
        stopped = [job.part(host, part) for part in parts]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: not job.rank_pids(host)[host], job.account, LEASE_S + 2.0)
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        _come_again(job, host)
        return job.await_life(life + 1)

    return fault


def _cut(beyond: bool) -> Callable[[JobOfHosts, int, int], int]:
    def fault(job: JobOfHosts, host: int, life: int) -> int:
        before, asked = job.rank_pids(), (host + 1) % HOSTS
        job.host(host).cut()
        if not beyond:
            # Less than half of the lease: another leader may have to be found as well.
            time.sleep(0.4 * LEASE_S)
            job.host(host).join()
            _all_here(job, asked)
            assert job.rank_pids() == before, job.account()
            return life
        until(lambda: not job.rank_pids(host)[host], job.account, LEASE_S + 2.0)
        until(lambda: "expired" in job.states(asked), job.account, 2 * LEASE_S + 6.0)
        assert job.states(asked).count("expired") == 1, job.states(asked)
        job.host(host).join()
        return job.await_life(life + 1)

    return fault


def _frozen(job: JobOfHosts, host: int, life: int) -> int:
    asked = (host + 1) % HOSTS
    job.host(host).freeze()
    until(lambda: "expired" in job.states(asked), job.account, 2 * LEASE_S + 6.0)
    frozen = set(job.rank_pids(host)[host])
    job.host(host).thaw()
    until(lambda: not frozen & set(job.rank_pids(host)[host]), job.account, 2.0)
    _come_again(job, host)
    return job.await_life(life + 1)


def _deaf(job: JobOfHosts, host: int, life: int) -> int:
    before = job.rank_pids()
    job.host(host).deafen()
    time.sleep(0.4 * LEASE_S)
    job.host(host).hear()
    _all_here(job, (host + 1) % HOSTS)
    assert job.rank_pids() == before, job.account()
    return life


def _come_again(job: JobOfHosts, host: int) -> None:
    """Start a host anew if it has ended, as an engine does."""
    deadline = time.monotonic() + 6.0
    while (
        time.monotonic() < deadline and job.launchers[host].poll() is None and not job.rank_pids(host)[host]
    ):
        time.sleep(0.02)
    if job.launchers[host].poll() is not None:
        job.assert_nothing_left(host)
        job.start(host)


def _all_here(job: JobOfHosts, asked: int) -> None:
    until(lambda: job.states(asked) == ["here"] * HOSTS, job.account)


FAULTS: dict[str, Callable[[JobOfHosts, int, int], int]] = {
    "rank killed": _rank,
    "agent killed": _agent,
    "coordinator killed": _coordinator,
    "keeper killed": _keeper,
    "host lost and started again": _lost,
    "agent stopped past the lease": _stopped("agent"),
    "keeper and agent stopped past the lease": _stopped("agent", "keeper"),
    "cut off before the lease ends": _cut(beyond=False),
    "cut off beyond the lease": _cut(beyond=True),
    "frozen past the lease": _frozen,
    "hears nothing for a while": _deaf,
}
