"""What Slurm and Kubernetes say about hosts is understood as they say it, and plain options win over it."""

from typing import Any

import pytest

from penstock.errors import JoinInvalid, UsageError
from penstock.process.hosts.engine_environment import EngineFacts, engine_facts, port_of
from penstock.process.hosts.join import Join, JoinOptions, join_of, rendezvous_conf

#: As seen under Slurm 22.05, `srun --nodes=4 --ntasks-per-node=1`.
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_NODEID": "2",
    "SLURM_NNODES": "4",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
    "SLURM_JOB_NODELIST": "gpu[01-03,07]",
    "SLURM_STEP_NODELIST": "gpu[01-03,07]",
    "SLURMD_NODENAME": "gpu03",
    "SLURM_PROCID": "2",
}


def facts(environment: dict[str, str], hostname: str = "pod", full_name: str = "pod") -> EngineFacts:
    return engine_facts(environment, hostname=hostname, full_name=full_name)


def join(environment: dict[str, str] | None = None, **options: Any) -> Join | None:
    return join_of(JoinOptions(**options), facts(environment or {}))


def test_srun_alone_makes_a_job_of_all_its_hosts() -> None:
    joined = join(SLURM)
    assert joined is not None
    assert (joined.hosts, joined.node_rank, joined.own_name) == (4, 2, "gpu03")
    assert (joined.meeting_host, joined.port) == ("gpu01", port_of("slurm-77.0"))
    assert (joined.rendezvous_id, list(joined.names)) == ("slurm-77.0", ["gpu01", "gpu02", "gpu03", "gpu07"])
    assert joined.meets_at_first


@pytest.mark.parametrize(
    ("address", "pattern", "rack"),
    [
        ("spine.leaf7.gpu03", "switch.switch.node", "spine.leaf7"),
        ("leaf7.gpu03.example", "switch.node", "leaf7"),
        ("gpu03", "node", ""),
        ("", "", ""),
        ("leaf7", "switch.node", ""),
    ],
)
def test_what_slurm_knows_of_its_switches_is_the_rack_of_a_host(
    address: str, pattern: str, rack: str
) -> None:
    joined = join({**SLURM, "SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern})
    assert joined is not None
    assert joined.rack == rack


HET = {
    **SLURM,
    "SLURM_HET_SIZE": "2",
    "SLURM_NNODES": "3",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_STEP_NODELIST": "gpu[01-03]",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu03",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu[01-02]",
}


def test_hosts_of_a_heterogeneous_job_are_numbered_by_group_as_slurm_does() -> None:
    joined = join({**HET, "SLURM_NODEID": "0"})
    assert joined is not None
    assert (joined.meeting_host, list(joined.names)) == ("gpu03", ["gpu03", "gpu01", "gpu02"])
    # One group of it is a usual step.
    counts = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    alone = join({**HET, **counts, "SLURM_STEP_NODELIST": "gpu[01-02]", "SLURM_NODEID": "1"})
    assert alone is not None
    assert (alone.hosts, alone.meeting_host) == (2, "gpu01")


def test_a_step_of_the_first_group_says_how_to_use_the_others() -> None:
    step = {**HET, "SLURM_STEP_NODELIST": "gpu03", "SLURM_STEP_NUM_NODES": "1"}
    assert "gave this job 3 hosts" in facts(step).note
    assert "srun --het-group=0-1 --ntasks-per-node=1" in facts(step).note
    assert facts({**SLURM, "SLURM_STEP_NUM_NODES": "1"}).note == ""


def test_all_hosts_of_a_step_come_to_the_same_job() -> None:
    joins = [join({**SLURM, "SLURM_NODEID": str(rank)}) for rank in range(4)]
    assert len({joined.job_id("train") for joined in joins if joined}) == 1
    other = join({**SLURM, "SLURM_STEP_ID": "1"})
    assert other is not None
    assert joins[0] is not None
    assert other.job_id("train") != joins[0].job_id("train")
    assert other.port != joins[0].port


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_STEP_TASKS_PER_NODE": "8(x4)", "SLURM_STEP_NUM_TASKS": "32"},
        {"SLURM_STEP_TASKS_PER_NODE": "1(x3),8", "SLURM_STEP_NUM_TASKS": "11"},
    ],
)
def test_several_tasks_on_a_host_are_refused_with_the_line_to_write(change: dict[str, str]) -> None:
    with pytest.raises(JoinInvalid, match="8 tasks on a host") as caught:
        facts({**SLURM, **change})
    assert caught.value.hint == "srun --nodes=4 --ntasks-per-node=1 penstock run --ranks 8 train.py"


def test_a_batch_script_without_srun_stays_on_its_host_and_that_is_said() -> None:
    batch = {key: value for key, value in SLURM.items() if "STEP" not in key}
    assert join(batch) is None
    assert "srun --ntasks-per-node=1" in facts(batch).note
    assert facts({**batch, "SLURM_NNODES": "1"}).note == ""


def test_a_step_on_one_host_is_a_job_of_one_host() -> None:
    assert join({**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "1"}) is None
    assert join(SLURM, nnodes="1") is None
    assert join(SLURM, standalone=True) is None


def test_options_win_over_the_engine_and_the_engine_fills_in_the_rest() -> None:
    joined = join(SLURM, nnodes="2", node_rank="1", rdzv_endpoint="head:4000", rdzv_id="mine")
    assert joined is not None
    assert (joined.hosts, joined.node_rank, joined.endpoint) == (2, 1, "head:4000")
    assert (joined.rendezvous_id, list(joined.names)) == ("mine", [])
    partly = join(SLURM, rdzv_endpoint="head:4000")
    assert partly is not None
    assert (partly.hosts, partly.node_rank, partly.meeting_host) == (4, 2, "head")


def test_an_indexed_job_finds_its_first_pod_by_its_service() -> None:
    pod = facts(
        {"JOB_COMPLETION_INDEX": "3"}, hostname="train-3", full_name="train-3.train.default.svc.cluster.local"
    )
    joined = join_of(JoinOptions(nnodes="4"), pod)
    assert joined is not None
    assert (joined.node_rank, joined.own_name) == (3, "train-3")
    assert joined.endpoint == f"train-0.train.default.svc.cluster.local:{port_of('train')}"
    assert join_of(JoinOptions(), pod) is None


def test_a_job_of_a_jobset_finds_its_first_pod_as_well() -> None:
    pod = facts(
        {"JOB_COMPLETION_INDEX": "1"}, hostname="llm-workers-0-1", full_name="llm-workers-0-1.llm.ns.svc"
    )
    joined = join_of(JoinOptions(nnodes="2"), pod)
    assert joined is not None
    assert joined.meeting_host == "llm-workers-0-0.llm.ns.svc"


def test_pods_without_a_service_are_told_what_to_do() -> None:
    pod = facts({"JOB_COMPLETION_INDEX": "1"}, hostname="train-1", full_name="train-1")
    with pytest.raises(JoinInvalid) as caught:
        join_of(JoinOptions(nnodes="2"), pod)
    assert "headless service" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"nnodes": "2"}, "nothing says where they meet"),
        ({"nnodes": "two"}, "must be a number or MIN:MAX, got two"),
        ({"nnodes": "3:2"}, "MIN at most MAX, got 3:2"),
        ({"nnodes": "0"}, "got 0"),
        (
            {"nnodes": "2", "node_rank": "2", "rdzv_endpoint": "a:1"},
            "--node-rank must be 0 to 1 for 2 hosts, got 2",
        ),
        ({"nnodes": "2", "rdzv_endpoint": "a:b:c"}, "HOST:PORT"),
        ({"nnodes": "2", "rdzv_endpoint": "fd00::1:29400"}, "HOST:PORT"),
        ({"nnodes": "2", "rdzv_endpoint": "a:0"}, "a port from 1 to 65535, got a:0"),
        ({"nnodes": "2", "rdzv_endpoint": "a:1", "rdzv_backend": "etcd"}, "c10d, static, got etcd"),
        ({"nnodes": "2", "master_addr": "a"}, "needs --node-rank"),
        ({"nnodes": "2", "rdzv_endpoint": "a:1", "rdzv_conf": "x"}, "KEY=VALUE"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_the_value(options: dict[str, Any], word: str) -> None:
    with pytest.raises((JoinInvalid, UsageError)) as caught:
        join(**options)
    assert word in f"{caught.value} {caught.value.hint}"


def test_a_number_of_an_engine_that_is_none_is_named() -> None:
    with pytest.raises(JoinInvalid, match="SLURM_NODEID in the environment must be a number, got 'x'"):
        facts({**SLURM, "SLURM_NODEID": "x"})


def test_torchruns_forms_mean_what_they_mean_there() -> None:
    static = join(nnodes="2", node_rank="1", master_addr="10.0.0.1", master_port=29501)
    assert static is not None
    assert (static.endpoint, static.meets_at_first) == ("10.0.0.1:29501", True)
    c10d = join(nnodes="2:4", rdzv_backend="c10d", rdzv_endpoint="gpu01")
    assert c10d is not None
    assert (c10d.hosts, c10d.port, c10d.node_rank, c10d.meets_at_first) == (4, 29400, None, False)
    assert (c10d.sizes, c10d.notes) == ((2, 4), ["--nnodes 2:4: the job may go on with 4, 2 hosts"])
    conf = rendezvous_conf("is_host=true,join_timeout=60,last_call_timeout=5,read_timeout=3")
    assert conf == (True, 60.0, 5.0)
    called = join(nnodes="2:4", rdzv_endpoint="gpu01", rdzv_conf="last_call_timeout=5")
    assert called is not None
    assert called.last_call_s == 5.0


def test_hosts_of_an_engine_beyond_those_of_the_job_are_in_reserve() -> None:
    """Method: Slurm gives four hosts; the job asks for three of them, or for one less than there are."""
    for options in ({"nnodes": "3"}, {"spare_hosts": 1}):
        last = join({**SLURM, "SLURM_NODEID": "3"}, **options)
        first = join({**SLURM, "SLURM_NODEID": "0"}, **options)
        assert last is not None
        assert first is not None
        assert (last.hosts, last.node_rank, last.spare) == (3, None, True)
        assert (first.hosts, first.node_rank, first.spare) == (3, 0, False)
        assert last.job_id("x") == first.job_id("x")
        assert len(first.names) == 3
    with pytest.raises(UsageError, match="less than the hosts that there are, got 4 of 4"):
        join(SLURM, spare_hosts=4)


@pytest.mark.parametrize("endpoint", ["fd00::1:29400", "::1", "fd00::1"])
def test_an_address_of_ipv6_without_brackets_is_told_what_it_lacks(endpoint: str) -> None:
    with pytest.raises(UsageError) as refused:
        join(nnodes="2", rdzv_endpoint=endpoint)
    assert "[fd00::1]:29400" in (refused.value.hint or "")
