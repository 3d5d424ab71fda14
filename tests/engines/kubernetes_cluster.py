"""A real Kubernetes over hosts made of namespaces: a control plane on one, and nodes with a kubelet and a containerd of their own.

``workshop/engines.py`` builds the executable. Pods see this machine's Python and the checkout through mounts of the host, so their image is empty
but for a shell. A node that is killed is a machine without power: kubelet, containerd and all containers at once.
"""

import base64
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock
from tests.hosts.network_namespace import HostWorld, NamespaceHost
from tests.process.jobs import wait_until

PATIENCE_S = 90.0
TOKEN = "penstock-tests"
PAUSE, IMAGE = "penstock.test/pause:1", "penstock.test/host:1"
CHECKOUT = Path(penstock.__file__).parents[2]
OWN_FOLDERS = ("/run/netns", "/var/log/pods", "/var/log/containers", "/var/lib/cni", "/var/lib/kubelet")
#: What a pod needs of this machine.
MOUNTS = ("/usr", "/etc/ssl", str(Path(sys.base_prefix)), str(CHECKOUT))

_CONTAINERD = """
version = 2
root = "/tmp/containerd/root"
state = "/tmp/containerd/state"
[grpc]
  address = "/tmp/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/tmp/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "/tmp/containerd/opt"
"""
_KUBELET: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failSwapOn": False,
    "failCgroupV1": False,
    "clusterDomain": "cluster.local",
    "containerRuntimeEndpoint": "unix:///tmp/containerd.sock",
    "evictionHard": {"memory.available": "1Mi"},
    "imageGCHighThresholdPercent": 100,
    "nodeStatusUpdateFrequency": "1s",
    "nodeStatusReportFrequency": "5s",
    "resolvConf": "/dev/null",
    "localStorageCapacityIsolation": False,
    "volumePluginDir": "/tmp/kubelet-plugins",
}


@dataclass
class KubernetesCluster:
    """The last host of the world is the control plane; the others are nodes."""

    world: HostWorld
    folder: Path
    executable: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def control(self) -> NamespaceHost:
        """Where the control plane runs, and where commands are given."""
        return self.world.hosts[-1]

    @property
    def nodes(self) -> list[NamespaceHost]:
        """Where pods run."""
        return self.world.hosts[:-1]

    def kubectl(self, *words: str, given: str | None = None) -> str:
        """What a command says; an error is a failure of the test."""
        done = subprocess.run(
            [*self.control.entered(), str(self.folder / "bin/kubectl"), *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self.control.variables(self.variables),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pods(self, allocation: str = "") -> list[dict[str, Any]]:
        """Pods as the cluster shows them."""
        chosen = ["-l", f"penstock.dev/allocation={allocation}"] if allocation else []
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", *chosen, "-o", "json"))["items"]
        return found

    def log_in(self, user: str) -> None:
        """A context of the kubeconfig by which a user without any rights asks."""
        path = self.folder / "kubeconfig"
        found = json.loads(path.read_text())
        about = {"cluster": "tests", "user": user, "namespace": "default"}
        found["users"].append({"name": user, "user": {"token": f"{TOKEN}-{user}"}})
        found["contexts"].append({"name": user, "context": about})
        path.write_text(json.dumps(found))

    def start_node(self, number: int) -> None:
        """Start containerd and kubelet of a node, and wait until pods may run there."""
        node = self.nodes[number]
        own = self.folder / f"node-{number}"
        own.mkdir(exist_ok=True)
        (own / "containerd.toml").write_text(_CONTAINERD.format(pause=PAUSE))
        (own / "kubelet.json").write_text(json.dumps({**_KUBELET, "clusterDNS": [self.control.address]}))
        _network(node, number, self.nodes)
        node.start(["containerd", "--config", str(own / "containerd.toml")], output=own / "containerd.log")
        images = ["ctr", "--address", "/tmp/containerd.sock", "--namespace", "k8s.io", "images", "import"]
        node.await_(lambda: node.run("test", "-S", "/tmp/containerd.sock").returncode == 0, "for containerd")
        imported = node.run(*images, str(self.folder / "images.tar"))
        assert imported.returncode == 0, imported.stderr
        kubelet = [
            str(self.folder / "bin/kubelet"),
            f"--kubeconfig={self.folder}/kubeconfig",
            f"--config={own}/kubelet.json",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            "--root-dir=/tmp/kubelet",
            "--cert-dir=/tmp/kubelet-pki",
        ]
        node.start(kubelet, output=own / "kubelet.log")
        wait_until(lambda: self.is_ready(node), f"{node.name} is ready", timeout_s=PATIENCE_S)

    def is_ready(self, node: NamespaceHost) -> bool:
        """Whether the control plane would put pods there."""
        found = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        for item in found:
            conditions = {entry["type"]: entry["status"] for entry in item["status"].get("conditions", [])}
            tainted = bool(item["spec"].get("taints"))
            if item["metadata"]["name"] == node.name:
                return conditions.get("Ready") == "True" and not tainted
        return False

    def power_off(self, node: NamespaceHost) -> None:
        """Everything on it is gone at once, and its cable too: nobody says goodbye."""
        node.cut()
        inner = node.inner
        assert inner
        os.kill(inner, signal.SIGKILL)

    def boot_node(self, number: int) -> None:
        """Bring a node back, with nothing on it."""
        node = self.nodes[number]
        node.end()
        node.boot()
        self.start_node(number)

    def template(self, place: Path) -> Path:
        """A pod that sees this machine's Python, the checkout, and a folder that all pods share."""
        mounts = [*dict.fromkeys([*MOUNTS, str(self.folder)])]
        volumes = [{"name": f"m{number}", "hostPath": {"path": path}} for number, path in enumerate(mounts)]
        seen = [{"name": f"m{number}", "mountPath": path} for number, path in enumerate(mounts)]
        variables = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(CHECKOUT / "python"),
            "HOME": "/tmp",
        }
        container = {
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "workingDir": str(place),
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "volumeMounts": seen,
        }
        path = self.folder / f"template-{place.name}.json"
        path.write_text(
            json.dumps(
                {"spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 5}}
            )
        )
        return path


def _network(node: NamespaceHost, number: int, nodes: list[NamespaceHost]) -> None:
    """A bridge for the node's pods, and ways to those of others."""
    conf = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isDefaultGateway": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/tmp/cni-state",
                    "ranges": [[{"subnet": f"10.244.{number}.0/24"}]],
                },
            }
        ],
    }
    words = base64.b64encode(json.dumps(conf).encode()).decode()
    script = [
        # What containerd and kubelet leave outside of their own folders goes with the node.
        f"mkdir -p {' '.join(OWN_FOLDERS)}",
        *(f"mount -t tmpfs tmpfs {folder}" for folder in OWN_FOLDERS),
        f"mkdir -p /tmp/cni && echo {words} | base64 -d > /tmp/cni/10-pods.conflist",
        "sysctl -qw net.ipv4.ip_forward=1",
    ]
    script += [
        f"ip route replace 10.244.{other}.0/24 via {host.address}"
        for other, host in enumerate(nodes)
        if host is not node
    ]
    made = node.run("sh", "-c", " && ".join(script))
    assert made.returncode == 0, made.stderr


def _write_images(path: Path) -> None:
    """An image of one layer with a shell, under both names, in the form that ``docker save`` writes."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for folder in ("static", "tmp", "usr", "etc", "proc", "sys", "dev", "run", "root"):
            about = tarfile.TarInfo(folder)
            about.type, about.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(about)
        for link in ("bin", "sbin", "lib", "lib64"):
            about = tarfile.TarInfo(link)
            about.type, about.linkname = tarfile.SYMTYPE, f"usr/{link}"
            archive.addfile(about)
        archive.add("/bin/busybox", "static/busybox")
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add(archive, "etc/group", b"root:x:0:\n")
        _add(archive, "etc/nsswitch.conf", b"hosts: files dns\n")
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/static/busybox", "sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = {"Config": "config.json", "RepoTags": [PAUSE, IMAGE], "Layers": ["layer.tar"]}
    with tarfile.open(path, "w") as archive:
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "layer.tar", layer.getvalue())
        _add(archive, "manifest.json", json.dumps([manifest]).encode())


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size = len(data)
    archive.addfile(about, io.BytesIO(data))


def _kubeconfig(server: str) -> str:
    cluster = {"server": server, "insecure-skip-tls-verify": True}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": TOKEN}}],
            "contexts": [
                {"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": "default"}}
            ],
            "current-context": "tests",
        }
    )


def _start_control_plane(cluster: KubernetesCluster) -> None:
    control, folder = cluster.control, cluster.folder
    (folder / "tokens.csv").write_text(f'{TOKEN},tests,1,"system:masters"\n{TOKEN}-ada,ada,2\n')
    (folder / "kubeconfig").write_text(_kubeconfig(f"https://{control.address}:6443"))
    keys = ["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"]
    subprocess.run(keys, check=True, capture_output=True)
    binary = folder / "bin"
    etcd = [
        "etcd",
        "--data-dir=/tmp/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls=http://{control.address}:2379",
    ]
    etcd += [
        f"--advertise-client-urls=http://{control.address}:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
    ]
    control.start(etcd, output=folder / "etcd.log")
    server = [
        str(binary / "kube-apiserver"),
        f"--etcd-servers=http://{control.address}:2379",
        f"--bind-address={control.address}",
        f"--advertise-address={control.address}",
        "--cert-dir=/tmp/apiserver",
        "--service-cluster-ip-range=10.96.0.0/24",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/accounts.key",
        f"--service-account-signing-key-file={folder}/accounts.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
    ]
    control.start(server, output=folder / "apiserver.log")
    wait_until(lambda: _is_up(cluster), "the API server answers", timeout_s=PATIENCE_S)
    manager = [
        str(binary / "kube-controller-manager"),
        f"--kubeconfig={folder}/kubeconfig",
        f"--service-account-private-key-file={folder}/accounts.key",
        "--root-ca-file=/tmp/apiserver/apiserver.crt",
        "--leader-elect=false",
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=6s",
    ]
    control.start(manager, output=folder / "manager.log")
    scheduler = [str(binary / "kube-scheduler"), f"--kubeconfig={folder}/kubeconfig", "--leader-elect=false"]
    control.start(scheduler, output=folder / "scheduler.log")
    names = (
        f".:53 {{\n  errors\n  kubernetes cluster.local {{\n    kubeconfig {folder}/kubeconfig tests\n    ttl 0\n  }}\n"
        "  template ANY ANY {\n    rcode NXDOMAIN\n  }\n}\n"
    )
    (folder / "Corefile").write_text(names)
    control.start([str(binary / "coredns"), "-conf", str(folder / "Corefile")], output=folder / "coredns.log")


def _is_up(cluster: KubernetesCluster) -> bool:
    done = cluster.control.run(
        str(cluster.folder / "bin/kubectl"), "get", "--raw", "/readyz", variables=cluster.variables
    )
    return done.stdout == "ok"


@contextmanager
def kubernetes_cluster(folder: Path, executable: Path, nodes: int) -> Iterator[KubernetesCluster]:
    """Everything that it started is gone afterwards."""
    (folder / "bin").mkdir()
    parts = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "coredns")
    for part in parts:
        (folder / "bin" / part).symlink_to(executable)
    _write_images(folder / "images.tar")
    with HostWorld(folder, nodes + 1) as world:
        path = f"{folder}/bin:{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin"
        cluster = KubernetesCluster(
            world, folder, executable, {"KUBECONFIG": f"{folder}/kubeconfig", "PATH": path}
        )
        for number, node in enumerate(cluster.nodes):
            # Answers to pods find their way.
            cluster.control.run("ip", "route", "add", f"10.244.{number}.0/24", "via", node.address)
        _start_control_plane(cluster)
        for number in range(nodes):
            cluster.start_node(number)
        yield cluster
