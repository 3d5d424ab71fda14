"""``penstock run --on kubernetes`` with a real Kubernetes: hosts are rented, lost, made anew, and always given back."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.process.engines.allocation_directory import story
from tests.engines.kubernetes_cluster import KubernetesCluster
from tests.hosts.job_of_hosts import until

PROGRAM = Path(__file__).with_name("pod_program.py")
USUAL = ("--ranks", "1", "--lease", "4s", "--zygote", "never", "--backoff", "0s")
HOSTS = 3
LONG_S = 120.0


@pytest.fixture(autouse=True)
def _nothing_left(cluster: KubernetesCluster) -> Iterator[None]:
    """A test that fails takes no hosts from the next one."""
    yield
    cluster.kubectl("delete", "jobs,services,secrets", "-l", "penstock.dev/allocation", "--wait=false")
    cluster.kubectl("delete", "pods", "-l", "penstock.dev/allocation", "--grace-period=0", "--force")


class Launcher:
    """``penstock run --on kubernetes`` where the control plane is."""

    def __init__(self, cluster: KubernetesCluster, part: str, *options: str) -> None:
        self.cluster = cluster
        self.place = cluster.folder / f"{part}-{len(list(cluster.folder.iterdir()))}"
        self.place.mkdir()
        self.home = self.place / "home"
        self.output = self.place / "launcher"
        template = cluster.template(self.place)
        words = [sys.executable, "-m", "penstock.cli.main", "run", "--on", "kubernetes"]
        words += ["--with", f"template={template}", *options, *USUAL, str(PROGRAM), str(self.place), part]
        variables = {**cluster.variables, "PENSTOCK_HOME": str(self.home)}
        self.variables = variables
        self.process = cluster.control.start(words, output=self.output, variables=variables)

    def said(self) -> str:
        """All that it showed."""
        return self.output.read_text(errors="replace")

    def kill(self, number: int) -> None:
        """A signal to the launcher alone."""
        pids = self.cluster.control.pids("penstock.cli.main", "--on kubernetes", str(self.place))
        assert pids, self.said()
        for pid in pids:
            subprocess.run(["kill", f"-{number}", str(pid)], check=True)

    def wait(self) -> int:
        """Its exit code."""
        until(lambda: self.process.poll() is not None, self.story, LONG_S)
        return self.process.returncode

    def lives(self, rank: int) -> list[str]:
        """The lives that a rank has begun."""
        path = self.place / f"lives-{rank}"
        return path.read_text().split() if path.exists() else []

    def await_lives(self, count: int, ranks: int = HOSTS) -> None:
        """Until every rank has begun so many lives."""
        until(lambda: all(len(self.lives(rank)) == count for rank in range(ranks)), self.story, LONG_S)
        assert not list(self.place.glob("twice-*"))

    def story(self) -> str:
        """What is needed to understand a failure."""
        return f"{self.said()}\n{self.cluster.kubectl('get', 'jobs,pods', '-o', 'wide')}"

    @property
    def allocation(self) -> str:
        """Its name."""
        (directory,) = (self.home / "allocations").iterdir()
        return directory.name


def _await_given_back(cluster: KubernetesCluster) -> None:
    """Nothing of ours is in the cluster."""

    def left() -> str:
        return cluster.kubectl(
            "get", "jobs,pods,services,secrets", "-l", "penstock.dev/allocation", "-o", "name"
        )

    until(lambda: not left().split(), left, 60.0)


def test_a_job_runs_in_pods_and_its_output_and_its_end_come_back(cluster: KubernetesCluster) -> None:
    """Goal: one command. Method: torch adds up ranks over three nodes; pods share no home, and nobody made a key."""
    launcher = Launcher(cluster, "ranks", "--nnodes", str(HOSTS))
    assert launcher.wait() == 0, launcher.story()
    facts = [json.loads((launcher.place / f"facts-{rank}.json").read_text()) for rank in range(HOSTS)]
    assert {about["sum"] for about in facts} == {float(sum(range(HOSTS)))}
    assert all(f"rank {rank} has the sum" in launcher.said() for rank in range(HOSTS)), launcher.said()
    _await_given_back(cluster)
    steps = [line["what"] for line in story(launcher.home / "allocations" / launcher.allocation)]
    assert steps[:2] == ["asked", "submitted"]


def test_a_job_that_fails_ends_with_its_code_and_is_not_begun_again(cluster: KubernetesCluster) -> None:
    """Goal: Kubernetes restarts no program that failed for good. Method: ranks that exit with 7."""
    launcher = Launcher(cluster, "fail", "--nnodes", str(HOSTS))
    assert launcher.wait() == 7, launcher.story()
    _await_given_back(cluster)


def test_a_killed_launcher_gives_the_hosts_back(cluster: KubernetesCluster) -> None:
    """Goal: H10 and P2. Method: kill -9 while ranks run."""
    launcher = Launcher(cluster, "wait", "--nnodes", str(HOSTS))
    launcher.await_lives(1)
    launcher.kill(signal.SIGKILL)
    _await_given_back(cluster)


def test_an_interrupt_stops_the_job_in_order(cluster: KubernetesCluster) -> None:
    """Goal: Ctrl-C is `penstock stop`. Method: a signal to the launcher."""
    launcher = Launcher(cluster, "wait", "--nnodes", str(HOSTS))
    launcher.await_lives(1)
    launcher.kill(signal.SIGINT)
    assert launcher.wait() != 0
    assert "stopping" in launcher.said(), launcher.said()
    _await_given_back(cluster)


def test_what_cannot_be_scheduled_says_so_and_an_interrupt_leaves_nothing(cluster: KubernetesCluster) -> None:
    """Goal: the scheduler's own sentence. Method: GPUs, of which the nodes have none."""
    launcher = Launcher(cluster, "wait", "--nnodes", "2", "--gpus-per-host", "8")
    until(lambda: "Insufficient nvidia.com/gpu" in launcher.said(), launcher.said, LONG_S)
    launcher.kill(signal.SIGINT)
    assert launcher.wait() == 130
    _await_given_back(cluster)


def test_detached_it_returns_and_commands_reach_the_job(cluster: KubernetesCluster) -> None:
    """Goal: questions from where no pod's home is. Method: `ps` and `stop` by the name of the allocation."""
    launcher = Launcher(cluster, "wait", "--nnodes", "2", "--detach")
    assert launcher.wait() == 0, launcher.said()
    launcher.await_lives(1, ranks=2)

    def asked(*words: str) -> str:
        done = cluster.control.run(
            sys.executable, "-m", "penstock.cli.main", *words, variables=launcher.variables
        )
        assert done.returncode == 0, done
        return done.stdout + done.stderr

    assert "2 of 2 ranks" in asked("ps", launcher.allocation)
    asked("stop", launcher.allocation)
    until(
        lambda: not any(_is_running(pod) for pod in cluster.pods(launcher.allocation)), launcher.story, LONG_S
    )


def test_a_node_without_power_is_replaced_by_a_spare_after_its_lease(cluster: KubernetesCluster) -> None:
    """Goal: H2 and H3 on Kubernetes. Method: the node of rank 0 loses its power; a pod in reserve is there."""
    launcher = Launcher(cluster, "wait", "--nnodes", "2", "--spare-hosts", "1")
    launcher.await_lives(1, ranks=2)
    first = next(
        node
        for node in cluster.nodes
        if any(
            pod["spec"].get("nodeName") == node.name
            and pod["metadata"]["name"].startswith(f"{launcher.allocation}-0")
            for pod in cluster.pods(launcher.allocation)
        )
    )
    number = cluster.nodes.index(first)
    cluster.power_off(first)
    try:
        launcher.await_lives(2, ranks=2)
        (launcher.place / "finish").touch()
        assert launcher.wait() == 0, launcher.story()
    finally:
        first.join()
        cluster.boot_node(number)
    _await_given_back(cluster)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nnodes", "2", "--with", "namespace=nowhere"), 'namespaces "nowhere" not found'),
        (("--nnodes", "2", "--with", "colour=red"), "no option for Kubernetes"),
        (("--nnodes", "2", "--with", "context=nowhere"), "nowhere"),
        (("--nnodes", "2", "--with", "grace=soon"), "--with grace must be seconds"),
    ],
)
def test_what_cannot_be_had_is_refused_in_kubernetes_own_words(
    cluster: KubernetesCluster, options: tuple[str, ...], words: str
) -> None:
    """Goal: a typed error, and nothing is made. Method: a namespace, options and a context that are not there."""
    launcher = Launcher(cluster, "wait", *options)
    assert launcher.wait() in (1, 2), launcher.said()
    assert words in launcher.said(), launcher.said()
    assert "Traceback" not in launcher.said()
    _await_given_back(cluster)


def _is_running(pod: dict[str, object]) -> bool:
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase") in ("Pending", "Running")
