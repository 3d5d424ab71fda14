"""What Kubernetes gets for an allocation, and what its objects say: pure parts. The rest is in tests/engines, against a real one."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.process.engines.allocation import EngineOption, HostRequest
from penstock.process.engines.kubernetes.allocator import read_template
from penstock.process.engines.kubernetes.manifest import PodStart, manifest, pod_stem, text, wishes
from penstock.process.engines.kubernetes.pod_state import JobState, PodState, end_code, newest, pod_state
from penstock.process.hosts.engine_environment import engine_facts

START = PodStart(["penstock", "run", "--nnodes", "4", "train.py"], {"PENSTOCK_HOME": "/tmp/home"}, "5e" * 32)
REQUEST = HostRequest(hosts=4, spares=1, gpus_per_host=8, time_s=90.0, queue="team")
IMAGE = EngineOption("image", "registry.example/train:7")


def _job(template: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    wanted = HostRequest(**{"hosts": 4, "spares": 1, **request})
    found: dict[str, Any] = manifest("train-1a", wanted, START, wishes([IMAGE]), template or {})["items"][2]
    return found


def test_a_lost_index_can_be_made_anew_and_a_failed_job_is_not_begun_again() -> None:
    """Goal: what was seen on a real cluster. Method: the three fields that decide it."""
    spec = _job()["spec"]
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert "podFailurePolicy" not in spec
    assert spec["backoffLimit"] == spec["completions"] - 1 == 4


def test_a_queue_time_and_gpus_are_asked_for_in_kubernetes_words() -> None:
    """Goal: our options mean the same everywhere. Method: Kueue's label, the deadline, a limit of the container."""
    job = manifest("train-1a", REQUEST, START, wishes([IMAGE]), {})["items"][2]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert job["spec"]["suspend"] is True
    assert job["spec"]["activeDeadlineSeconds"] == 90
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}


def test_a_template_keeps_what_it_has_and_its_first_container_runs_our_command() -> None:
    """Goal: volumes, side cars, tolerations and variables of people stay. Method: a template with all of them."""
    template = {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"a": "b"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "command": ["sleep"],
                    "args": ["1"],
                    "env": [{"name": "A", "value": "1"}],
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"},
                        {"name": "own", "mountPath": "/dev/shm"},
                    ],
                },
                {"name": "proxy", "image": "proxy"},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "own", "emptyDir": {}}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "serviceAccountName": "trainer",
        },
    }
    before = json.dumps(template)
    pod = _job(template)["spec"]["template"]
    assert json.dumps(template) == before
    assert pod["metadata"]["labels"] == {"team": "vision", "penstock.dev/allocation": "train-1a"}
    first, second = pod["spec"]["containers"]
    assert first["command"] == START.command
    assert "args" not in first
    assert second == {"name": "proxy", "image": "proxy"}
    assert {"name": "A", "value": "1"} in first["env"]
    assert [mount["name"] for mount in first["volumeMounts"]] == ["data", "own", "penstock-key"]
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["data", "own", "penstock-key"]
    assert pod["spec"]["tolerations"][0] == {"key": "gpu", "operator": "Exists"}
    assert pod["spec"]["serviceAccountName"] == "trainer"


def test_the_key_is_in_the_secret_only_and_never_shown() -> None:
    """Goal: no secret in arguments, variables or a dry run. Method: where its digits stand."""
    document = manifest("train-1a", REQUEST, START, wishes([IMAGE]), {})
    secret, service, job = document["items"]
    assert secret["stringData"]["key"] == START.key
    assert START.key not in json.dumps([service, job])
    assert START.key not in text(document)


@pytest.mark.parametrize(
    ("given", "stem"),
    [
        ("train_gpt.2", "train-gpt-2"),
        ("Train", "train"),
        ("7b", "job-7b"),
        ("...", "job"),
        ("x" * 80, "x" * 40),
    ],
)
def test_names_are_as_kubernetes_allows_them(given: str, stem: str) -> None:
    """Goal: any script may give the name. Method: letters and lengths that labels of DNS do not have."""
    assert pod_stem(given) == stem


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([EngineOption("colour", "red")], "no option for Kubernetes"),
        ([EngineOption("image", None)], "needs a value"),
        ([EngineOption("grace", "soon")], "must be seconds"),
    ],
)
def test_options_that_nobody_knows_are_refused(options: list[EngineOption], words: str) -> None:
    """Goal: a typo costs no cluster time. Method: an unknown name, no value, a wrong one."""
    with pytest.raises(UsageError, match=words):
        wishes(options)


def test_pods_need_an_image() -> None:
    """Goal: said before anything is made. Method: neither option nor template has one."""
    with pytest.raises(UsageError, match="needs an image"):
        manifest("train-1a", REQUEST, START, wishes([]), {})


@pytest.mark.parametrize("words", ["", "[1, 2]", '{"spec": 3}', "spec: [", "- a\n- b"])
def test_a_template_that_is_no_pod_is_refused(tmp_path: Path, words: str) -> None:
    """Goal: a typed error with the file's name. Method: what is no pod, as JSON and as YAML."""
    path = tmp_path / "pod.yaml"
    path.write_text(words)
    with pytest.raises(UsageError, match=r"pod\.yaml"):
        read_template(path)


def test_a_template_may_be_yaml_or_a_whole_pod_template(tmp_path: Path) -> None:
    """Goal: what people have. Method: a pod in YAML, and the template of a job."""
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nspec:\n  hostNetwork: true\n")
    assert read_template(path)["spec"] == {"hostNetwork": True}
    path.write_text("template:\n  spec:\n    hostNetwork: true\n")
    assert read_template(path)["spec"] == {"hostNetwork": True}


def _pod(state: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "train-1a-2-x9",
            "annotations": {"batch.kubernetes.io/job-completion-index": "2"},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "penstock"}, {"name": "proxy"}]},
        "status": {
            "containerStatuses": [
                {"name": "proxy", "state": {"running": {}}},
                {"name": "penstock", "state": state},
            ],
            **status,
        },
    }


def _conditions(**values: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": value} for kind, value in values.items()]


def test_only_a_terminated_container_of_ours_is_an_end() -> None:
    """Goal: H2, hints are no ends. Method: a lost node, a pod that is being deleted, a container that has ended."""
    lost = pod_state(_pod({"running": {}}, conditions=_conditions(Ready="False", ContainersReady="True")))
    assert (lost.phase, lost.is_doubtful, lost.code) == ("running", True, None)
    starting = pod_state(
        _pod({"running": {}}, conditions=_conditions(Ready="False", ContainersReady="False"))
    )
    assert not starting.is_doubtful
    deleted = _pod({"running": {}})
    deleted["metadata"]["deletionTimestamp"] = "now"
    assert pod_state(deleted).is_doubtful
    assert pod_state(deleted).phase == "running"
    ended = pod_state(_pod({"terminated": {"exitCode": 7, "reason": "Error"}}))
    assert (ended.phase, ended.code, ended.number, ended.node) == ("ended", 7, 2, "n1")


def test_a_pod_that_waits_says_why_in_the_clusters_words() -> None:
    """Goal: nobody has to call kubectl to know. Method: the scheduler's sentence, a missing image, an evicted pod."""
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    waits = _pod({}, conditions=[unscheduled])
    waits["status"]["containerStatuses"] = []
    assert pod_state(waits).words == "0/3 nodes are available"
    never = pod_state(_pod({"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}))
    assert never.hopeless
    evicted = _pod({}, phase="Failed", reason="Evicted", message="low on memory")
    evicted["status"]["containerStatuses"] = []
    assert pod_state(evicted).words == "Evicted: low on memory"
    assert pod_state(evicted).code == 1


def _ended(number: int, code: int | None, *, doubtful: bool = False) -> PodState:
    phase = "running" if code is None else "ended"
    return PodState(f"p{number}-{code}", number, phase, "n", code, is_doubtful=doubtful)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "pods", "code"),
    [
        (JobState(), [_ended(0, None), _ended(1, 0)], 0),
        (JobState(), [_ended(0, 7), _ended(1, None)], None),
        (JobState(), [_ended(0, 7), _ended(1, 143)], 7),
        (JobState(end="Failed"), [_ended(0, 137)], 137),
        (JobState(end="Failed"), [], 1),
        (JobState(end="Complete"), [], 0),
        (JobState(), [], None),
        (JobState(), [_ended(0, 137), _ended(0, None), _ended(1, 7)], None),
    ],
)
def test_the_code_of_a_job_is_that_of_its_hosts(
    job: JobState, pods: list[PodState], code: int | None
) -> None:
    """Goal: one success speaks for all, a host made anew keeps the job alive, a code of the program beats that of a kill."""
    assert end_code(job, pods) == code


def test_of_two_pods_with_one_index_the_living_one_counts() -> None:
    """Goal: a pod of a lost node stays for hours beside the one that replaced it. Method: both orders."""
    old, new = _ended(0, None, doubtful=True), PodState("new", 0, "waiting")
    assert newest([old, new])[0].name == "new"
    assert newest([new, old])[0].name == "new"


def test_a_pod_in_reserve_knows_that_it_is_one() -> None:
    """Goal: index 4 of `--nnodes 4` with a spare is no mistake. Method: what a pod's variables say."""
    variables = {"JOB_COMPLETION_INDEX": "4", "PENSTOCK_ENGINE_HOSTS": "5"}
    facts = engine_facts(
        variables, hostname="train-1a-4", full_name="train-1a-4.train-1a.default.svc.cluster.local"
    )
    assert (facts.hosts, facts.node_rank, facts.rendezvous_id) == (5, 4, "train-1a")
    assert facts.meeting_host == "train-1a-0.train-1a.default.svc.cluster.local"


def test_nodes_that_failed_are_avoided_in_every_term_of_a_template() -> None:
    """Goal: an excluded node gets no pod. Method: a template with two terms, of which one is enough for Kubernetes."""
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    required = {"nodeSelectorTerms": zones}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
        "podAffinity": {},
    }
    template = {"spec": {"affinity": affinity}}
    before = json.dumps(template)
    spec = _job(template, excluded=("node-7", "node-3"))["spec"]["template"]["spec"]
    assert json.dumps(template) == before
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    avoided = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-3", "node-7"]}
    assert [term["matchExpressions"][-1] for term in terms] == [avoided, avoided]
    assert [term["matchExpressions"][0]["values"] for term in terms] == [["a"], ["b"]]
    assert "podAffinity" in spec["affinity"]
    alone = _job(excluded=("node-7",))["spec"]["template"]["spec"]["affinity"]
    assert alone["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert "affinity" not in _job()["spec"]["template"]["spec"]
