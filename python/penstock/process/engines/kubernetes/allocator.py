"""Kubernetes as an allocator: an Indexed Job is made, looked at, and deleted with all that belongs to it."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors.engines import EngineMissing, EngineRefused, EngineSilent
from penstock.errors.root import UsageError
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.allocation import Allocation, HostRequest, HostStart, JobOutput, Standing
from penstock.process.engines.kubernetes.kubectl import OLDEST, PATIENCE_S, TITLE, Kubectl
from penstock.process.engines.kubernetes.manifest import (
    LABEL,
    PodStart,
    Wishes,
    manifest,
    text,
    wishes,
)
from penstock.process.engines.kubernetes.pod_output import PodOutput
from penstock.process.engines.kubernetes.pod_state import (
    IndexedJobState,
    PodState,
    end_code,
    job_state,
    newest,
    pod_state,
)

TEMPLATE_BYTES_MAX = 1 << 20
#: States of hosts that run nothing any more.
OVER = frozenset({"expired", "gone", "left"})


class KubernetesAllocator:
    """Keeps ``Allocator`` with one Indexed Job for an allocation. What it saw last it remembers; nothing depends on that."""

    title = TITLE

    def __init__(self, place: Kubectl) -> None:
        self.place = place
        self.pods: Sequence[PodState] = ()
        self.job = IndexedJobState()
        self._replaced: set[str] = set()
        self._pods_asked, self._all_ran = 0, False

    @classmethod
    def of_request(cls, request: HostRequest) -> "KubernetesAllocator":
        """Where the options of a request lead."""
        wish = wishes(request.own_options)
        return cls(Kubectl(wish.namespace, wish.context))

    @classmethod
    def of_directory(cls, directory: Path) -> "KubernetesAllocator":
        """Where an allocation was asked for."""
        for entry in files.story(directory):
            if entry.get("what") == "asked":
                return cls(Kubectl(str(entry.get("namespace", "")), str(entry.get("context", ""))))
        return cls(Kubectl())

    def check(self, request: HostRequest) -> None:
        """The control plane is there and new enough."""
        version = self.place.server_version()
        if version < OLDEST:
            raise EngineMissing(
                engine=TITLE,
                reason=f"its version is {version[0]}.{version[1]}, and {OLDEST[0]}.{OLDEST[1]} or newer is needed",
                hint="pods of your own that run `penstock run` work with older ones",
            )

    def preview(self, request: HostRequest, start: HostStart, directory: Path) -> str:
        """The manifest, without the key."""
        return text(self._manifest(request, start, directory.name, "", wishes(request.own_options)))

    def acquire(self, request: HostRequest, start: HostStart, directory: Path) -> Allocation:
        """Make the job. The cluster is asked first whether it would take all of it."""
        key = Path(start.variables["PENSTOCK_KEY_FILE"]).read_text().strip()
        wish = wishes(request.own_options)
        document = self._manifest(request, start, directory.name, key, wish)
        whole = json.dumps(document)
        files.write(directory, files.SCRIPT, text(document))
        self.place.create(whole, "--dry-run=server")
        about = {"namespace": wish.namespace, "context": wish.context}
        files.note(directory, "asked", engine="kubernetes", hosts=request.all_hosts, **about)
        try:
            self.place.create(whole)
            self._adopt(directory.name)
        except EngineRefused:
            self.release_named(directory.name)
            raise
        files.note(directory, "submitted", engine="kubernetes", number=directory.name)
        return Allocation("kubernetes", directory.name, directory.name, directory)

    def look(self, allocation: Allocation) -> Standing:
        """The job and its pods; one request."""
        try:
            answer = self.place.document("get", "jobs,pods", "-l", f"{LABEL}={allocation.name}")
        except EngineSilent as problem:
            return Standing("silent", words=problem.reason)
        except EngineRefused as problem:
            return Standing("silent", words=problem.words)
        items = answer.get("items") or []
        jobs = [item for item in items if item.get("kind") == "Job"]
        self.pods = [pod_state(item) for item in items if item.get("kind") == "Pod"]
        if not jobs:
            return Standing("ended", words="the job was deleted")
        self.job = job_state(jobs[0])
        self._pods_asked = int((jobs[0].get("spec") or {}).get("completions") or 0)
        return self._standing()

    def end_code(self, allocation: Allocation) -> int | None:
        """The exit code, as the last look saw it."""
        return end_code(self.job, self.pods)

    def ahead(self, allocation: Allocation) -> int | None:
        """Kubernetes has no queue of its own."""
        return None

    def output(self, allocation: Allocation) -> JobOutput:
        """What its pods write."""
        return PodOutput(self.place, lambda: self.pods)

    def job_name(self, allocation: Allocation) -> str:
        """Hosts name it after the job of Kubernetes, and some letters."""
        return allocation.name if any(pod.phase == "running" for pod in self.pods) else ""

    def own_command(self, *words: str) -> list[str]:
        """The image has us on its path."""
        return ["penstock", *words]

    def tend(self, allocation: Allocation) -> Sequence[str]:
        """Delete pods of hosts whose lease has ended, and of no others: so their indexes are made anew elsewhere."""
        doubtful = [pod for pod in self.pods if pod.phase == "running" and pod.is_doubtful]
        if not doubtful:
            return ()
        kept = kept_hosts(self.reach(allocation, (), self.own_command("hosts", "--json", allocation.name)))
        if not kept:
            return ()
        said = []
        for pod in doubtful:
            if f"{allocation.name}-{pod.number}" not in kept and pod.name not in self._replaced:
                self._replaced.add(pod.name)
                self.replace(pod)
                said.append(f"the lease of {pod.name} on {pod.node} has ended; Kubernetes makes it anew")
        return said

    def reach(self, allocation: Allocation, hosts: Sequence[str], command: Sequence[str]) -> list[str]:
        """A process beside the job's in one of its pods."""
        running = [
            pod.name for pod in newest(self.pods).values() if pod.phase == "running" and not pod.is_doubtful
        ]
        # A host is shown as its pod and the node of that.
        asked = [host.partition(" ")[0] for host in hosts]
        target = next((name for name in [*asked, *running] if name in running), f"job/{allocation.name}")
        return self.place.command("exec", "-i", target, "--", *command, limited=False)

    def release(self, allocation: Allocation) -> None:
        """Delete the job, which takes pods, service and secret with it."""
        files.note(allocation.directory, "released", number=allocation.number)
        self.release_named(allocation.name)

    def release_named(self, name: str) -> None:
        """Delete whatever was made by a name, also where only half of it was."""
        for kind in ("job", "service", "secret"):
            self.place.remove(kind, name, *(["--cascade=background"] if kind == "job" else []))

    def replace(self, pod: PodState) -> None:
        """Delete the pod of a host whose lease has ended, so that its index is made anew elsewhere; never earlier (H2)."""
        self.place.remove("pod", pod.name, "--grace-period=0", "--force")

    def release_words(self, allocation: Allocation) -> str:
        """``kubectl delete job``."""
        return " ".join(self.place.command("delete", "job", allocation.name, limited=False))

    def forget(self, allocation: Allocation) -> None:
        """The job, its finished pods, service and secret."""
        self.release(allocation)

    def _standing(self) -> Standing:
        current = list(newest(self.pods).values())
        if self.job.end:
            return Standing("ended", words=self.job.words or self.job.end)
        if self.job.is_suspended:
            return Standing("queued", words="suspended, as a queue does until it is its turn")
        running = [pod for pod in current if pod.phase == "running"]
        waiting = [pod for pod in current if pod.phase == "waiting"]
        self._all_ran |= len(running) == self._pods_asked > 0
        hopeless = next((pod.hopeless for pod in waiting if pod.hopeless), "")
        if hopeless or not self._all_ran:
            words = next((pod.words for pod in waiting if pod.words), "pods are being made")
            begun = f"{len(running)} of {self._pods_asked} pods run; " if running else ""
            return Standing("queued", words=f"{begun}{words}", hopeless=hopeless)
        nodes = [f"{pod.name} on {pod.node}" for pod in running]
        return Standing("granted", words="running", hosts=tuple(nodes))

    def _adopt(self, name: str) -> None:
        """Service and secret go with the job."""
        uid = (self.place.document("get", "job", name).get("metadata") or {}).get("uid", "")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
        for kind in ("service", "secret"):
            self.place.said("patch", kind, name, "--type=merge", "-p", patch)

    def _manifest(
        self, request: HostRequest, start: HostStart, name: str, key: str, wish: Wishes
    ) -> dict[str, Any]:
        variables = {key: value for key, value in start.variables.items() if key != "PENSTOCK_KEY_FILE"}
        pod = PodStart(start.command, variables, key)
        template = read_template(Path(wish.template)) if wish.template else {}
        return manifest(name, request, pod, wish, template)


def kept_hosts(command: Sequence[str]) -> set[str]:
    """Hosts that may still run ranks, as the job says; none where it does not answer. One whose lease has ended may be gone from its list."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False
        )
        hosts = json.loads(done.stdout)["hosts"] if done.returncode == 0 else []
        return {str(host["name"]) for host in hosts if host["state"] not in OVER}
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return set()


def read_template(path: Path) -> Mapping[str, Any]:
    """A pod in a file, or a template of one: JSON, or YAML where PyYAML is installed."""
    try:
        if path.stat().st_size > TEMPLATE_BYTES_MAX:
            raise UsageError(f"--with template={path} has more than {TEMPLATE_BYTES_MAX} bytes")
        words = path.read_text()
    except OSError as problem:
        raise UsageError(f"--with template={path} cannot be read: {problem.strerror}") from problem
    pod = _parsed(path, words)
    if isinstance(pod, dict) and isinstance(pod.get("template"), dict):
        pod = pod["template"]
    if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
        raise UsageError(f"--with template={path} must be a pod with a `spec`")
    return pod


def _parsed(path: Path, words: str) -> Any:
    try:
        return json.loads(words)
    except ValueError:
        pass
    try:
        import yaml
    except ImportError:
        raise UsageError(
            f"--with template={path} must be JSON, because PyYAML is not installed",
            hint=f"{Path(sys.executable).name} -m pip install pyyaml",
        ) from None
    try:
        return yaml.safe_load(words)
    except yaml.YAMLError as problem:
        raise UsageError(
            f"--with template={path} must be a pod as JSON or YAML, got what YAML refuses: {problem}"
        ) from problem
