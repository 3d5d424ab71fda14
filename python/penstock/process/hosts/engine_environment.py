"""What an engine tells the processes that it starts about hosts: Slurm, and indexed jobs of Kubernetes.

A pure function from variables to facts. Variables ``PET_…`` are torchrun's own and count as options, so Kubeflow's are read there. What an
engine says only fills in what nobody chose: plain options win.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors.process import HostsInvalid, JoinInvalid
from penstock.process.hosts.host_names import expand

#: How many pods a job of ours has, those in reserve included.
RENTED_HOSTS = "PENSTOCK_ENGINE_HOSTS"
#: Ports of jobs that nobody gave one: below those that kernels hand out.
PORT_FIRST, PORTS = 23_000, 6_000
#: Groups of a heterogeneous job that are looked at; Slurm allows 128.
GROUPS_MAX = 128


@dataclass(frozen=True)
class EngineFacts:
    """What is known of the hosts of a job; empty where nothing is."""

    #: ``slurm``, ``kubernetes``, or empty.
    engine: str = ""
    hosts: int | None = None
    node_rank: int | None = None
    #: Host and port where hosts meet.
    meeting_host: str = ""
    meeting_port: int | None = None
    rendezvous_id: str = ""
    #: Names in the order of host ranks, where the engine lists them.
    names: Sequence[str] = ()
    #: What the engine calls this host.
    own_name: str = ""
    #: What this host shares with its neighbours, where the engine knows its network.
    rack: str = ""
    #: How often the engine has started the job again.
    restart: int = 0
    #: When the engine will end the job, in seconds since 1970.
    ends_at: float | None = None
    #: For people: hosts that are there and not used.
    note: str = ""


def engine_facts(environment: Mapping[str, str], *, hostname: str, full_name: str) -> EngineFacts:
    """What the variables say. ``hostname`` and ``full_name`` are this host's, as a pod knows its headless service by its name only."""
    if "SLURM_JOB_ID" in environment:
        return _slurm(environment)
    if "JOB_COMPLETION_INDEX" in environment:
        return _indexed_job(environment, hostname=hostname, full_name=full_name)
    return EngineFacts()


def port_of(name: str) -> int:
    """A port for a job, the same on all of its hosts."""
    return PORT_FIRST + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % PORTS


def _slurm(environment: Mapping[str, str]) -> EngineFacts:
    job, step = environment["SLURM_JOB_ID"], environment.get("SLURM_STEP_ID", "")
    ends_at = _number(environment, "SLURM_JOB_END_TIME")
    if not step or "SLURM_NODEID" not in environment:
        # The batch script itself, or a shell of salloc: this process is alone, however many hosts were allocated.
        return EngineFacts(engine="slurm", ends_at=ends_at, note=_unused_hosts(environment, 1))
    hosts = _number(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") or 1
    if hosts == 1:
        return EngineFacts(engine="slurm", hosts=1, ends_at=ends_at, note=_unused_hosts(environment, 1))
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    try:
        names = expand(listed, option="SLURM_STEP_NODELIST")
    except HostsInvalid as problem:
        raise JoinInvalid(reason=f"Slurm's list of hosts cannot be read: {problem}") from problem
    names = _in_order(names, environment)
    _check_tasks(environment, hosts)
    identity, restart = f"slurm-{job}.{step}", _number(environment, "SLURM_RESTART_COUNT") or 0
    return EngineFacts(
        engine="slurm",
        hosts=hosts,
        node_rank=_number(environment, "SLURM_NODEID"),
        meeting_host=names[0],
        # What is left of the start before this one may still listen.
        meeting_port=port_of(f"{identity}.r{restart}" if restart else identity),
        rendezvous_id=identity,
        restart=restart,
        names=tuple(names),
        own_name=environment.get("SLURMD_NODENAME", ""),
        rack=_slurm_rack(environment),
        ends_at=ends_at,
    )


def _groups(environment: Mapping[str, str]) -> list[str]:
    """The lists of hosts of a heterogeneous job (``salloc -N1 : -N2``), group by group; empty for a usual one."""
    count = _number(environment, "SLURM_HET_SIZE") or 0
    lists = [
        environment.get(f"SLURM_JOB_NODELIST_HET_GROUP_{group}", "")
        for group in range(min(count, GROUPS_MAX))
    ]
    return lists if all(lists) else []


def _in_order(names: list[str], environment: Mapping[str, str]) -> list[str]:
    """The hosts of a step in the order in which Slurm numbers them: those of a heterogeneous job by group, though its list is sorted."""
    grouped = [name for listed in _groups(environment) for name in expand(listed) if name in names]
    return grouped if sorted(grouped) == sorted(names) else names


def _unused_hosts(environment: Mapping[str, str], used: int) -> str:
    """A note where a job has more hosts than this command uses."""
    groups = _groups(environment)
    allocated = _number(environment, "SLURM_JOB_NUM_NODES", "SLURM_NNODES") or 1
    option = ""
    if len(groups) > 1:
        allocated = sum(len(expand(listed)) for listed in groups)
        option = f"--het-group=0-{len(groups) - 1} "
    elif "SLURM_STEP_ID" in environment:
        # A step of fewer hosts than the job has was asked for.
        return ""
    if allocated <= used:
        return ""
    return (
        f"Slurm gave this job {allocated} hosts, and this uses one of them;"
        f" `srun {option}--ntasks-per-node=1 penstock run …` uses all"
    )


def _slurm_rack(environment: Mapping[str, str]) -> str:
    """The switches above a host, ``spine.leaf7`` of ``spine.leaf7.gpu03``; only where Slurm was told of any (``topology.conf``)."""
    levels = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    parts = environment.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(levels) - 1)
    return ".".join(parts[:-1]) if len(parts) == len(levels) and levels[-1] == "node" else ""


def _check_tasks(environment: Mapping[str, str], hosts: int) -> None:
    """One of us on every host: it starts the ranks. ``2(x3),1`` is two tasks on three hosts and one on the next."""
    spread = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", "")
    counts = [int(count) for count in re.findall(r"(?:^|,)(\d+)", spread)]
    tasks = _number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") or hosts
    most = max([*counts, -(-tasks // hosts)])
    if most > 1:
        raise JoinInvalid(
            reason=f"Slurm started {most} tasks on a host, and one `penstock run` on each starts its ranks",
            hint=f"srun --nodes={hosts} --ntasks-per-node=1 penstock run --ranks {most} train.py",
        )


def _indexed_job(environment: Mapping[str, str], *, hostname: str, full_name: str) -> EngineFacts:
    """Pods of an Indexed Job, or of a job of a JobSet: ``NAME-INDEX``, below their headless service."""
    index = _number(environment, "JOB_COMPLETION_INDEX")
    name, dash, number = hostname.partition(".")[0].rpartition("-")
    if index is None or not dash or number != str(index):
        return EngineFacts(engine="kubernetes", node_rank=index)
    service = full_name.partition(".")[2]
    # Without a service there is no name that other pods could look up; whoever needs one is told so (``join``).
    meeting_host = f"{name}-0.{service}" if service else ""
    return EngineFacts(
        engine="kubernetes",
        # An Indexed Job does not tell its pods how many they are; one of ours does.
        hosts=_number(environment, RENTED_HOSTS),
        node_rank=index,
        meeting_host=meeting_host,
        meeting_port=port_of(name),
        rendezvous_id=name,
        own_name=f"{name}-{number}",
    )


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = environment.get(name)
        if text is None:
            continue
        if not text.isdigit():
            raise JoinInvalid(
                reason=f"{name} in the environment must be a number, got {text!r}",
                hint=f"unset {name} where no engine started this",
            )
        return int(text)
    return None
