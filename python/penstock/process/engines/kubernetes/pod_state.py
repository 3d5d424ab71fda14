"""What pods and their job say about an allocation. Pure.

A pod of a node that is not heard is shown as running for minutes, so only a *terminated container* is an end; everything else is a hint.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Phase = Literal["waiting", "running", "ended"]
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
#: Why a container does not start, where no waiting changes it.
HOPELESS = {
    "ErrImageNeverPull": "the image is not on the node, and it is not to be pulled",
    "InvalidImageName": "--with image=NAME is no name of an image",
    "CreateContainerConfigError": "what the template refers to is not there",
    "CreateContainerError": "the container cannot be made as the template has it",
    "RunContainerError": "the image has no `penstock` on its PATH, or the template asks for what the node cannot do",
}
#: Why it does not start, where it is tried again and again.
SLOW = ("ErrImagePull", "ImagePullBackOff")


class PodState(NamedTuple):
    """A pod."""

    name: str
    number: int
    phase: Phase
    node: str = ""
    #: Of a container that has ended.
    code: int | None = None
    #: Why it waits or how it ended, in the cluster's words.
    words: str = ""
    #: Whether it is being deleted, or its node says that it is not well: a hint.
    is_doubtful: bool = False
    hopeless: str = ""


class IndexedJobState(NamedTuple):
    """The job of the pods."""

    is_suspended: bool = False
    #: ``Complete``, ``Failed``, or empty.
    end: str = ""
    words: str = ""


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """From a pod as the cluster shows it."""
    about, status = pod.get("metadata") or {}, pod.get("status") or {}
    spec = pod.get("spec") or {}
    name = str(about.get("name", ""))
    index = str((about.get("annotations") or {}).get(INDEX_ANNOTATION, ""))
    number = int(index) if index.isdigit() else -1
    node = str(spec.get("nodeName") or "")
    container = _container(status, spec)
    state = container.get("state") or {}
    ended, waits = state.get("terminated"), state.get("waiting") or {}
    doubtful = "deletionTimestamp" in about or _condition(status, "DisruptionTarget") is not None
    if ended is not None:
        code = int(ended.get("exitCode", 1))
        return PodState(name, number, "ended", node, code, _ended_words(ended, code), doubtful)
    if "running" in state:
        # Only the cluster says that of a pod whose containers said nothing: its node is not heard.
        lost = _is(status, "Ready", "False") and _is(status, "ContainersReady", "True")
        return PodState(name, number, "running", node, is_doubtful=doubtful or lost)
    if status.get("phase") in ("Failed", "Succeeded"):
        # Evicted, or rejected by the node: there is no container whose code could be told.
        words = f"{status.get('reason', '')}: {status.get('message', '')}".strip(": ")
        code = 0 if status.get("phase") == "Succeeded" else 1
        return PodState(name, number, "ended", node, code, words, doubtful)
    reason = str(waits.get("reason") or "")
    words = str(waits.get("message") or "") or _scheduling_words(status)
    hopeless = HOPELESS.get(reason, "")
    return PodState(name, number, "waiting", node, None, f"{reason}: {words}".strip(": "), doubtful, hopeless)


def job_state(job: Mapping[str, Any]) -> IndexedJobState:
    """From a job as the cluster shows it."""
    status, spec = job.get("status") or {}, job.get("spec") or {}
    for end in ("Complete", "Failed"):
        condition = _condition(status, end)
        if condition is not None and condition.get("status") == "True":
            return IndexedJobState(
                False, end, f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            )
    return IndexedJobState(bool(spec.get("suspend")))


def newest(pods: Sequence[PodState]) -> dict[int, PodState]:
    """One pod for each index: of several the one that is not over, and not in doubt."""
    best: dict[int, PodState] = {}
    for pod in pods:
        other = best.get(pod.number)
        if other is None or _rank(pod) > _rank(other):
            best[pod.number] = pod
    return best


def end_code(job: IndexedJobState, pods: Sequence[PodState]) -> int | None:
    """The exit code of the job; nothing while it runs. A host that succeeded speaks for all, as its code is that of the job."""
    codes = [pod.code for pod in pods if pod.code is not None]
    if job.end == "Complete" or 0 in codes:
        return 0
    if job.end == "Failed":
        return _worst(codes)
    # Whatever is made anew now cannot continue a job that all of its hosts have left.
    if codes and all(pod.phase == "ended" for pod in newest(pods).values()):
        return _worst(codes)
    return None


def _worst(codes: Sequence[int]) -> int:
    """A code that the job itself chose, rather than that of a kill."""
    chosen = [code for code in codes if 0 < code < 128]
    return max(chosen) if chosen else max([*codes, 1])


def _rank(pod: PodState) -> tuple[bool, bool]:
    return (pod.phase != "ended", not pod.is_doubtful)


def _container(status: Mapping[str, Any], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first one of the pod, which is ours."""
    containers = spec.get("containers") or [{}]
    own = containers[0].get("name")
    for container in status.get("containerStatuses") or []:
        if container.get("name") == own:
            return dict(container)
    return {}


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    for condition in status.get("conditions") or []:
        if condition.get("type") == kind:
            return dict(condition)
    return None


def _is(status: Mapping[str, Any], kind: str, value: str) -> bool:
    return (_condition(status, kind) or {}).get("status") == value


def _scheduling_words(status: Mapping[str, Any]) -> str:
    scheduled = _condition(status, "PodScheduled") or {}
    return str(scheduled.get("message") or "") if scheduled.get("status") == "False" else ""


def _ended_words(ended: Mapping[str, Any], code: int) -> str:
    reason, message = str(ended.get("reason") or ""), str(ended.get("message") or "")
    return f"{reason or 'ended'} (exit {code}){': ' + message if message else ''}"
