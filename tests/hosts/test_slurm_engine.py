"""``penstock run --on slurm`` with a real Slurm: hosts are rented, waited for, lost, and always given back."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.process.engines.allocation_directory import story
from tests.hosts.checked_hosts import make_machine
from tests.hosts.job_of_hosts import until
from tests.hosts.slurm_cluster import SlurmCluster, slurm_cluster

PROGRAM = Path(__file__).with_name("slurm_program.py")
HOSTS = 3
USUAL = ("--ranks", "1", "--lease", "3s", "--zygote", "never", "--backoff", "0s")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    folder = tmp_path_factory.mktemp("engine")
    with slurm_cluster(folder, HOSTS) as found:
        for number, host in enumerate(found.compute):
            make_machine(host, number)
        (folder / PROGRAM.name).write_text(PROGRAM.read_text())
        (folder / "home").mkdir()
        found.variables |= {
            "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
            "PENSTOCK_HOME": str(folder / "home"),
        }
        yield found


@pytest.fixture(autouse=True)
def _nothing_left(cluster: SlurmCluster) -> Iterator[None]:
    """A test that fails takes no hosts from the next one."""
    yield
    for line in _queue(cluster).splitlines():
        cluster.end(line.split()[0])


class Launcher:
    """``penstock run --on slurm`` on the controller, which is where people log in."""

    def __init__(self, cluster: SlurmCluster, part: str, place: Path, *options: str) -> None:
        self.cluster, self.place, self.output = cluster, place, place.with_suffix(".launcher")
        place.mkdir()
        words = [sys.executable, "-m", "penstock.cli.main", "run", "--on", "slurm", *options, *USUAL]
        command = [*words, str(cluster.folder / PROGRAM.name), str(place), part]
        self.process = cluster.controller.start(command, output=self.output, variables=cluster.variables)

    def said(self) -> str:
        """All that it showed."""
        return self.output.read_text(errors="replace")

    def kill(self, number: int) -> None:
        """A signal to the launcher alone."""
        pids = self.cluster.controller.pids("penstock.cli.main", "run", "--on slurm", str(self.place))
        assert pids, self.said()
        for pid in pids:
            subprocess.run(["kill", f"-{number}", str(pid)], check=True)

    def wait(self) -> int:
        """Its exit code."""
        until(lambda: self.process.poll() is not None, self.said, 90.0)
        return self.process.returncode

    def job(self) -> str:
        """The name of the job, as its hosts wrote it."""
        (name,) = (
            path.read_text().strip()
            for path in (self.cluster.folder / "home/allocations").glob("*/job")
            if str(self.place) in (path.parent / "plan.json").read_text()
        )
        return name

    def lives(self, rank: int) -> list[str]:
        """The lives that a rank has begun."""
        path = self.place / f"lives-{rank}"
        return path.read_text().split() if path.exists() else []


def _queue(cluster: SlurmCluster) -> str:
    return cluster.said("squeue", "-h", "-o", "%i %j %T")


def _asked(cluster: SlurmCluster, *words: str) -> str:
    """What a command of ours says on the login node, where no host of a job is."""
    done = cluster.controller.run(
        sys.executable, "-m", "penstock.cli.main", *words, variables=cluster.variables
    )
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def _await_given_back(cluster: SlurmCluster, launcher: Launcher) -> None:
    """Nothing is queued or rented, and no process is left on any host."""
    until(lambda: not _queue(cluster), lambda: f"{_queue(cluster)}\n{launcher.said()}", 60.0)
    for host in cluster.compute:
        until(lambda host=host: not host.pids(PROGRAM.name), lambda host=host: str(host.processes()))  # type: ignore[misc]


@contextmanager
def _occupied(cluster: SlurmCluster) -> Iterator[str]:
    """All hosts are somebody else's."""
    with cluster.job("sleep 300", output=cluster.folder / "occupied.log", nodes=HOSTS) as number:
        until(lambda: "RUNNING" in cluster.state(number), lambda: cluster.state(number))
        yield number


def test_a_job_runs_on_rented_hosts_and_its_output_and_its_end_come_back(cluster: SlurmCluster) -> None:
    """Goal: one command from the login node. Method: torch adds up ranks over three hosts of which nobody made a key."""
    launcher = Launcher(cluster, "ranks", cluster.folder / "ranks", "--nnodes", str(HOSTS))
    assert launcher.wait() == 0, launcher.said()
    facts = [json.loads((launcher.place / f"facts-{rank}.json").read_text()) for rank in range(HOSTS)]
    assert {about["sum"] for about in facts} == {float(sum(range(HOSTS)))}
    assert f"has {HOSTS} hosts" in launcher.said()
    _await_given_back(cluster, launcher)
    (directory,) = (cluster.folder / "home/allocations").glob("slurm_program-*")
    steps = [line["what"] for line in story(directory)]
    assert steps[:3] == ["asked", "submitted", "granted"]
    assert "ended" in steps


def test_a_host_that_failed_is_not_asked_for_until_it_is_included(cluster: SlurmCluster) -> None:
    """Method: of three hosts one is excluded by its name; a job of two runs on the others. Then it is included again."""
    name = cluster.compute[1].name
    _asked(cluster, "hosts", "exclude", name, "--why", "its fan is loud")
    shown = _asked(cluster, "run", "--on", "slurm", "--nnodes", "2", "--dry-run", "true")
    assert f"#SBATCH --exclude={name}" in shown
    assert f"note: {name} is not asked for: excluded: its fan is loud" in shown
    launcher = Launcher(cluster, "ranks", cluster.folder / "without", "--nnodes", "2")
    assert launcher.wait() == 0, launcher.said()
    hosts = {json.loads((launcher.place / f"facts-{rank}.json").read_text())["host"] for rank in range(2)}
    assert hosts == {host.name for host in cluster.compute} - {name}
    _await_given_back(cluster, launcher)
    _asked(cluster, "hosts", "include", name)
    assert "--exclude" not in _asked(cluster, "run", "--on", "slurm", "--nnodes", "2", "--dry-run", "true")


def test_a_job_that_waits_says_so_and_an_interrupt_leaves_nothing_queued(cluster: SlurmCluster) -> None:
    """Goal: Ctrl-C in the queue takes the job out of it. Method: another job has all hosts."""
    with _occupied(cluster):
        launcher = Launcher(cluster, "wait", cluster.folder / "queued", "--nnodes", str(HOSTS))
        until(lambda: "waits: " in launcher.said(), launcher.said)
        launcher.kill(signal.SIGINT)
        assert launcher.wait() == 130, launcher.said()
        until(lambda: len(_queue(cluster).splitlines()) == 1, lambda: _queue(cluster))
    assert not launcher.lives(0)


def test_a_launcher_killed_in_the_queue_leaves_nothing_queued(cluster: SlurmCluster) -> None:
    """Goal: H10. Method: kill -9 while another job has all hosts."""
    with _occupied(cluster):
        launcher = Launcher(cluster, "wait", cluster.folder / "orphan", "--nnodes", str(HOSTS))
        until(lambda: "waits: " in launcher.said(), launcher.said)
        launcher.kill(signal.SIGKILL)
        until(lambda: len(_queue(cluster).splitlines()) == 1, lambda: _queue(cluster))


def test_a_killed_launcher_gives_the_hosts_back(cluster: SlurmCluster) -> None:
    """Goal: H10 and P2. Method: kill -9 while ranks run on all hosts."""
    launcher = Launcher(cluster, "wait", cluster.folder / "killed", "--nnodes", str(HOSTS))
    until(lambda: all(launcher.lives(rank) for rank in range(HOSTS)), launcher.said, 60.0)
    launcher.kill(signal.SIGKILL)
    _await_given_back(cluster, launcher)


def test_an_interrupt_stops_the_job_in_order(cluster: SlurmCluster) -> None:
    """Goal: Ctrl-C is `penstock stop`, from where the job was started. Method: ranks that answer to notices leave with their code."""
    launcher = Launcher(cluster, "wait", cluster.folder / "stopped", "--nnodes", str(HOSTS))
    until(lambda: all(launcher.lives(rank) for rank in range(HOSTS)), launcher.said, 60.0)
    launcher.kill(signal.SIGINT)
    assert launcher.wait() != 0
    assert "stopping" in launcher.said()
    assert "cancelled" not in launcher.said(), launcher.said()
    _await_given_back(cluster, launcher)


def test_a_killed_srun_costs_no_rank_and_the_job_ends_with_its_code(cluster: SlurmCluster) -> None:
    """Goal: the engine's client is nothing that a job depends on. Method: kill -9 of srun in the batch script, then all ranks finish."""
    launcher = Launcher(cluster, "wait", cluster.folder / "client", "--nnodes", str(HOSTS))
    until(lambda: all(launcher.lives(rank) for rank in range(HOSTS)), launcher.said, 60.0)
    killed = [
        pid
        for host in cluster.compute
        for pid in host.kill(signal.SIGKILL, "srun --nodes", str(launcher.place))
    ]
    assert killed
    until(lambda: "srun was killed" in launcher.said(), launcher.said)
    assert [len(launcher.lives(rank)) for rank in range(HOSTS)] == [1] * HOSTS
    (launcher.place / "finish").touch()
    assert launcher.wait() == 0, launcher.said()
    _await_given_back(cluster, launcher)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nnodes", "2", "--queue", "nowhere"), "invalid partition specified: nowhere"),
        (("--nnodes", "2", "--with", "ntasks=4"), "--with ntasks cannot be used here"),
        (("--nnodes", "2", "--with", "no-such-option=1"), "unrecognized option"),
        (("--nnodes", "9"), "PartitionConfig|Requested node configuration is not available"),
        (("--nnodes", "2", "--time", "soon"), "--time must be a time"),
    ],
)
def test_what_cannot_be_had_is_refused_in_slurms_own_words(
    cluster: SlurmCluster, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    """Goal: a typed error before anything is rented. Method: a queue, an option, a number of hosts and a time that make no sense."""
    place = cluster.folder / f"refused-{abs(hash(options)) % 10_000}"
    launcher = Launcher(cluster, "wait", place, *options)
    assert launcher.wait() in (1, 2), launcher.said()
    assert any(word in launcher.said() for word in words.split("|")), launcher.said()
    assert "Traceback" not in launcher.said()
    assert not _queue(cluster)


def test_detached_it_returns_when_queued_and_commands_reach_the_job(cluster: SlurmCluster) -> None:
    """Goal: the login node asks about a job of compute nodes. Method: `ps` and `stop` where no host of the job is."""
    launcher = Launcher(cluster, "wait", cluster.folder / "detached", "--nnodes", "2", "--detach")
    assert launcher.wait() == 0, launcher.said()
    until(lambda: all(launcher.lives(rank) for rank in range(2)), launcher.said, 60.0)
    shown = _asked(cluster, "ps", launcher.job())
    assert "2 of 2 ranks" in shown, shown
    _asked(cluster, "stop", launcher.job())
    _await_given_back(cluster, launcher)


def test_the_batch_host_is_lost_a_spare_takes_over_and_the_hosts_are_given_back(
    cluster: SlurmCluster,
) -> None:
    """Goal: no host is special, the one of the batch script neither. Method: everything on it is killed; a spare is there."""
    launcher = Launcher(cluster, "wait", cluster.folder / "lost", "--nnodes", "2", "--spare-hosts", "1")
    until(lambda: all(launcher.lives(rank) for rank in range(2)), launcher.said, 60.0)
    (first,) = (host for host in cluster.compute if host.pids("batch_task"))
    until(lambda: "spare" in _asked(cluster, "hosts", "list", launcher.job()), launcher.said, 60.0)
    # A power failure: nothing that dies on it can say so.
    first.cut()
    first.kill_all()
    until(lambda: all(len(launcher.lives(rank)) == 2 for rank in range(2)), launcher.said, 60.0)
    (launcher.place / "finish").touch()
    assert launcher.wait() == 0, launcher.said()
    first.join()
    cluster.start_slurmd(first)
    _await_given_back(cluster, launcher)
