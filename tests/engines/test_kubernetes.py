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
from tests.hosts.network_namespace import NamespaceHost

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

    def asked(self, *words: str) -> str:
        """What a command of ours says outside of the pods."""
        done = self.cluster.control.run(
            sys.executable, "-m", "penstock.cli.main", *words, variables=self.variables
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

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


def test_a_job_whose_time_is_over_says_so(cluster: KubernetesCluster) -> None:
    """Goal: nobody looks for a mistake of the program. Method: a few seconds, and ranks that take longer."""
    launcher = Launcher(cluster, "wait", "--nnodes", "2", "--time", "15s")
    assert launcher.wait() != 0
    assert "DeadlineExceeded" in launcher.said(), launcher.said()
    assert "--time is how long hosts are kept" in launcher.said()
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
    assert "2 of 2 ranks" in launcher.asked("ps", launcher.allocation)
    launcher.asked("stop", launcher.allocation)
    until(
        lambda: not any(_is_running(pod) for pod in cluster.pods(launcher.allocation)), launcher.story, LONG_S
    )


def test_a_node_without_power_is_replaced_by_a_spare_after_its_lease(cluster: KubernetesCluster) -> None:
    """Goal: H2 and H3 on Kubernetes, and its pod is made anew. Method: a node with one rank loses its power; a pod in reserve is there."""
    launcher = Launcher(cluster, "wait", "--nnodes", str(HOSTS), "--spare-hosts", "1")
    launcher.await_lives(1)
    name = launcher.allocation
    until(lambda: "spare" in launcher.asked("hosts", "list", name), launcher.story, LONG_S)
    lost = _node_of_one_rank(cluster, name)
    number = cluster.nodes.index(lost)
    cluster.power_off(lost)
    try:
        launcher.await_lives(2)
        until(lambda: "Kubernetes makes it anew" in launcher.said(), launcher.story, LONG_S)
        until(lambda: len(launcher.asked("hosts", "list", name).split("spare")) > 1, launcher.story, LONG_S)
        assert [len(launcher.lives(rank)) for rank in range(HOSTS)] == [2] * HOSTS
        (launcher.place / "finish").touch()
        assert launcher.wait() == 0, launcher.story()
    finally:
        cluster.boot_node(number)
    _await_given_back(cluster)


def test_a_drained_node_says_goodbye_and_its_rank_is_free_at_once(cluster: KubernetesCluster) -> None:
    """Goal: an eviction is an orderly end of a host. Method: `kubectl drain` with a lease that is far longer than the wait."""
    launcher = Launcher(cluster, "wait", "--nnodes", str(HOSTS), "--spare-hosts", "1", "--lease", "10m")
    launcher.await_lives(1)
    until(lambda: "spare" in launcher.asked("hosts", "list", launcher.allocation), launcher.story, LONG_S)
    node = _node_of_one_rank(cluster, launcher.allocation, but=0)
    drain = ["drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"]
    try:
        cluster.kubectl(*drain)
        launcher.await_lives(2)
    finally:
        cluster.kubectl("uncordon", node.name)
    (launcher.place / "finish").touch()
    assert launcher.wait() == 0, launcher.story()
    _await_given_back(cluster)


def test_a_rank_that_fails_begins_again_inside_of_its_pod(cluster: KubernetesCluster) -> None:
    """Goal: Kubernetes restarts nothing that we can. Method: kill -9 of a rank; the pods stay those that they were."""
    launcher = Launcher(cluster, "wait", "--nnodes", str(HOSTS), "--restarts", "3")
    launcher.await_lives(1)
    before = {pod["metadata"]["uid"] for pod in cluster.pods(launcher.allocation)}
    script = "for p in /proc/[0-9]*; do grep -qz ^RANK=1$ $p/environ 2>/dev/null && kill -9 ${p#/proc/}; done; true"
    name = next(
        pod["metadata"]["name"]
        for pod in cluster.pods(launcher.allocation)
        if pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "1"
    )
    cluster.kubectl("exec", name, "--", "sh", "-c", script)
    launcher.await_lives(2)
    assert {pod["metadata"]["uid"] for pod in cluster.pods(launcher.allocation)} == before
    (launcher.place / "finish").touch()
    assert launcher.wait() == 0, launcher.story()
    _await_given_back(cluster)


def test_no_rank_notices_a_control_plane_that_stands_still(cluster: KubernetesCluster) -> None:
    """Goal: ranks need no engine. Method: the API server is stopped while ranks run, for longer than a lease and than a request may take."""
    launcher = Launcher(cluster, "wait", "--nnodes", str(HOSTS))
    launcher.await_lives(1)
    servers = cluster.control.kill(signal.SIGSTOP, "bin/kube-apiserver")
    assert servers
    try:
        until(lambda: "nothing follows from that" in launcher.said(), launcher.said, LONG_S)
    finally:
        cluster.control.kill(signal.SIGCONT, "bin/kube-apiserver")
    assert [len(launcher.lives(rank)) for rank in range(HOSTS)] == [1] * HOSTS
    (launcher.place / "finish").touch()
    assert launcher.wait() == 0, launcher.story()
    _await_given_back(cluster)


def test_the_rights_that_we_print_are_enough_and_without_them_the_server_says_why(
    cluster: KubernetesCluster,
) -> None:
    """Goal: no cluster administrator is needed. Method: a user without rights, then with the role that `hosts setup` prints."""
    cluster.log_in("ada")
    refused = Launcher(cluster, "ranks", "--nnodes", "2", "--with", "context=ada")
    assert refused.wait() == 1
    assert "(Forbidden)" in refused.said(), refused.said()
    assert "penstock hosts setup kubernetes" in refused.said()
    role = refused.asked("hosts", "setup", "kubernetes", "--user", "ada", "--namespace", "default")
    cluster.kubectl("apply", "-f", "-", given=role[: role.rindex("}") + 1])
    launcher = Launcher(cluster, "ranks", "--nnodes", "2", "--with", "context=ada")
    assert launcher.wait() == 0, launcher.story()
    _await_given_back(cluster)


def _node_of_one_rank(cluster: KubernetesCluster, allocation: str, but: int | None = None) -> NamespaceHost:
    """A node whose only pod has a rank, another than that of who leads."""
    pods: dict[str, list[int]] = {}
    for pod in cluster.pods(allocation):
        index = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
        pods.setdefault(pod["spec"]["nodeName"], []).append(index)
    name = next(
        name
        for name, numbers in pods.items()
        if len(numbers) == 1 and numbers[0] < HOSTS and numbers[0] != but
    )
    return next(node for node in cluster.nodes if node.name == name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nnodes", "2", "--with", "namespace=nowhere"), 'namespaces "nowhere" not found'),
        (("--nnodes", "2", "--with", "colour=red"), "must name an option for Kubernetes"),
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
