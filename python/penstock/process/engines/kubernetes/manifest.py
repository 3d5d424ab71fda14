"""What Kubernetes gets for an allocation: one Indexed Job, and what its pods need to meet. Pure.

A pod is a host and its index the host's number. Ranks begin again inside of pods; Kubernetes makes a pod anew only when its host is lost.
``podReplacementPolicy: TerminatingOrFailed`` is what makes the index of a lost node come back at all, and ``podFailurePolicy`` would forbid it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.errors.root import UsageError
from penstock.process.engines.allocation import EngineOption, HostRequest
from penstock.process.hosts.engine_environment import RENTED_HOSTS

#: On everything that belongs to an allocation.
LABEL = "penstock.dev/allocation"
#: Kueue's own word for the queue of a job.
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
CONTAINER = "penstock"
#: How many pods there are, which an Indexed Job does not tell them.
NODE_VARIABLE = "PENSTOCK_NODE_NAME"
KEY_FOLDER = "/run/secrets/penstock"
#: A name gets six letters of ours and the index of a pod, and a host name has 63 letters at most.
STEM_LETTERS_MAX = 40
#: For a pod on a node that is not heard: Kubernetes' own default is five minutes.
UNREACHABLE_S = 30
GRACE_S = 60
#: Of our files in a pod, whose home may be read-only.
POD_HOME = "/tmp/penstock-home"
#: How long the finished job may be looked at.
KEPT_S = 24 * 3600
OPTIONS = {
    "image": "the image of the pods; it must have Penstock",
    "namespace": "where the job goes; the context's own by default",
    "context": "which entry of your kubeconfig",
    "queue": "Kueue's local queue, as --queue",
    "template": "a file with a pod, as JSON or YAML: volumes, tolerations, image, variables",
    "grace": "seconds that a pod has to end",
    "shm": "size of /dev/shm, as in 16Gi; the memory of the pod by default",
}


class Wishes(NamedTuple):
    """Options of Kubernetes itself, from ``--with``."""

    image: str = ""
    namespace: str = ""
    context: str = ""
    template: str = ""
    grace_s: int = GRACE_S
    shm: str = ""


class PodStart(NamedTuple):
    """What runs in a pod."""

    command: Sequence[str]
    variables: Mapping[str, str]
    key: str


def pod_stem(text: str) -> str:
    """A beginning of names as Kubernetes allows them: ``train_gpt.2`` becomes ``train-gpt-2``."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:STEM_LETTERS_MAX].strip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}".strip("-")


def wishes(options: Sequence[EngineOption]) -> Wishes:
    """What ``--with`` says; what is not known is refused by name."""
    found: dict[str, Any] = {}
    for option in options:
        if option.name not in OPTIONS:
            known = ", ".join(name for name in OPTIONS if name != "queue")
            raise UsageError(
                f"--with {option.name} is no option for Kubernetes",
                hint=f"{known}; the rest goes into template=FILE",
            )
        if not option.value:
            raise UsageError(f"--with {option.name} needs a value: {OPTIONS[option.name]}")
        if option.name == "grace":
            if not option.value.isdigit():
                raise UsageError(f"--with grace must be seconds, got {option.value}")
            found["grace_s"] = int(option.value)
        elif option.name != "queue":
            found[option.name] = option.value
    return Wishes(**found)


def manifest(
    name: str, request: HostRequest, start: PodStart, wish: Wishes, template: Mapping[str, Any]
) -> dict[str, Any]:
    """All objects of an allocation as one list. Service and secret go with the job, whose they are once it has a number."""
    pod = _pod(name, request, start, wish, template)
    labels = {LABEL: name}
    own = {"name": name, "labels": labels}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": own, "stringData": {"key": start.key}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": own,
        # Hosts meet before any of them is ready.
        "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
    }
    queue = request.queue or next((o.value for o in request.own_options if o.name == "queue"), "")
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": request.all_hosts,
        "parallelism": request.all_hosts,
        "podReplacementPolicy": "TerminatingOrFailed",
        # All hosts fail together when the job has failed, which is one more than may be replaced.
        "backoffLimit": request.all_hosts - 1,
        # The code of a job is that of each of its hosts, so one that succeeded speaks for all.
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "ttlSecondsAfterFinished": KEPT_S,
        "template": pod,
    }
    if request.time_s is not None:
        spec["activeDeadlineSeconds"] = max(1, int(request.time_s))
    if queue:
        spec["suspend"] = True
    labelled = {**own, "labels": {**labels, **({KUEUE_LABEL: queue} if queue else {})}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": labelled, "spec": spec}
    return {"apiVersion": "v1", "kind": "List", "items": [secret, service, job]}


def text(document: Mapping[str, Any]) -> str:
    """As ``kubectl create -f -`` takes it; the key of the hosts is not shown."""
    shown = json.loads(json.dumps(document))
    for item in shown["items"]:
        if item["kind"] == "Secret":
            item["stringData"] = {"key": "(64 digits, made when the job is started)"}
    return json.dumps(shown, indent=2) + "\n"


def _pod(
    name: str, request: HostRequest, start: PodStart, wish: Wishes, template: Mapping[str, Any]
) -> dict[str, Any]:
    """A pod of the template, with what we need in it; where both say the same thing, a list has both and ours wins otherwise."""
    about = dict(template.get("metadata") or {})
    spec = dict(template.get("spec") or {})
    containers = [dict(container) for container in spec.get("containers") or [{}]]
    first = containers[0]
    image = wish.image or first.get("image", "")
    if not image:
        raise UsageError(
            "Kubernetes needs an image for the pods",
            hint="--with image=registry/name:tag, one that has Penstock in it",
        )
    first |= {"name": first.get("name", CONTAINER), "image": image, "command": list(start.command)}
    first.pop("args", None)
    first["env"] = [*first.get("env", []), *_variables(request, start)]
    mounts = first.get("volumeMounts") or []
    # 64 MB, what a container has by itself, is too little for any data loader; a template may have its own.
    has_shm = any(mount.get("mountPath") == "/dev/shm" for mount in mounts)
    ours = [] if has_shm else [{"name": "penstock-shm", "mountPath": "/dev/shm"}]
    first["volumeMounts"] = [
        *mounts,
        {"name": "penstock-key", "mountPath": KEY_FOLDER, "readOnly": True},
        *ours,
    ]
    if request.gpus_per_host:
        resources = {key: dict(value) for key, value in (first.get("resources") or {}).items()}
        resources.setdefault("limits", {})["nvidia.com/gpu"] = str(request.gpus_per_host)
        first["resources"] = resources
    memory: dict[str, Any] = {"medium": "Memory", **({"sizeLimit": wish.shm} if wish.shm else {})}
    spec |= {
        "containers": containers,
        "subdomain": name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": wish.grace_s,
        "volumes": [
            *spec.get("volumes", []),
            {"name": "penstock-key", "secret": {"secretName": name, "defaultMode": 0o400}},
            *([] if has_shm else [{"name": "penstock-shm", "emptyDir": memory}]),
        ],
        "tolerations": [*spec.get("tolerations", []), *_tolerations()],
    }
    if request.excluded:
        spec["affinity"] = _elsewhere(spec.get("affinity") or {}, request.excluded)
    spec.setdefault("enableServiceLinks", False)
    about["labels"] = {**(about.get("labels") or {}), LABEL: name}
    return {"metadata": about, "spec": spec}


def _variables(request: HostRequest, start: PodStart) -> list[dict[str, Any]]:
    said = {**start.variables, RENTED_HOSTS: str(request.all_hosts), "PENSTOCK_KEY_FILE": f"{KEY_FOLDER}/key"}
    node = {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [*({"name": name, "value": value} for name, value in said.items()), node]


def _elsewhere(affinity: Mapping[str, Any], excluded: Sequence[str]) -> dict[str, Any]:
    """The template's affinity, and not on some nodes: of its terms one is enough, so each of them gets that."""
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    avoided = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": sorted(excluded)}
    terms = required.get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchExpressions": [*term.get("matchExpressions", []), avoided]} for term in terms]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = {**required, "nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": node}


def _tolerations() -> list[dict[str, Any]]:
    return [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": UNREACHABLE_S,
        }
        for state in ("not-ready", "unreachable")
    ]
