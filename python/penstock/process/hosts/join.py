"""How the hosts of a job find each other when each is started by itself: torchrun's command line, or what an engine says.

``Join`` is what this host knows before it has spoken to any other. It is made by a pure function of options and facts, so that
every host comes to the same endpoint, rendezvous id and job name.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors.process import JoinInvalid
from penstock.errors.root import UsageError
from penstock.process.hosts.engine_environment import EngineFacts

HOSTS_MAX = 1_000_000
#: Sizes that are listed in a sentence.
NAMED_MAX = 8
#: What torchrun's c10d takes where nobody gave a port.
PORT = 29_400
#: And its static rendezvous.
STATIC_PORT = 29_500
BACKENDS = ("c10d", "static")
BRACKETS = "an address of IPv6 stands in brackets, as in [fd00::1]:29400"
_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]*)(?::(\d+))?")
_LOCAL = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared, not bound

_BOOLEANS = {
    "1": True,
    "true": True,
    "t": True,
    "yes": True,
    "0": False,
    "false": False,
    "f": False,
    "no": False,
}


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """What the command line says about hosts, in torchrun's words; None and empty: nothing."""

    nnodes: str | None = None
    node_rank: str | None = None
    rdzv_backend: str = ""
    rdzv_endpoint: str = ""
    rdzv_id: str = ""
    rdzv_conf: str = ""
    master_addr: str | None = None
    master_port: int | None = None
    standalone: bool = False
    sizes: str | None = None
    #: Of the hosts that an engine counts, those that are to be in reserve.
    spare_hosts: int = 0


@dataclass(frozen=True, kw_only=True)
class Join:
    """A job of several hosts, as one of them sees it."""

    hosts: int
    #: This host's number, where somebody counts; else hosts are numbered as they come.
    node_rank: int | None
    #: With how many hosts it may go on; empty where the number is fixed.
    sizes: Sequence[int] = ()
    #: Whether this host is in reserve from the start.
    spare: bool = False
    meeting_host: str
    port: int
    rendezvous_id: str
    names: Sequence[str] = ()
    own_name: str = ""
    #: What this host shares with its neighbours, where an engine says so.
    rack: str = ""
    #: Whether the host that counts as 0 is where hosts meet: torchrun's static form, and engines.
    meets_at_first: bool = False
    #: Whether somebody said that hosts meet here (``is_host`` of --rdzv-conf).
    is_meeting_host: bool | None = None
    #: How long to wait for hosts, where --rdzv-conf says so (``join_timeout``).
    wait_s: float | None = None
    #: How long more of them are waited for where fewer are enough (``last_call_timeout``).
    last_call_s: float | None = None
    ends_at: float | None = None
    #: How often an engine has started the job again: each start has its own name and secret, and continues the state of the first.
    restart: int = 0
    #: Whether the engine's own number names the job, so that hosts of a later start may be others.
    is_named_by_engine: bool = False
    notes: Sequence[str] = ()

    @property
    def endpoint(self) -> str:
        """As all hosts write it: it goes into the job's secret and name."""
        return f"{self.meeting_host.lower()}:{self.port}"

    @property
    def start_id(self) -> str:
        """The rendezvous id of this start."""
        return f"{self.rendezvous_id}.r{self.restart}" if self.restart else self.rendezvous_id

    def job_id(self, stem: str) -> str:
        """The name of the job, the same on all hosts of one start."""
        return self._named(stem, self.start_id)

    def first_job_id(self, stem: str) -> str:
        """The name of the job when it was started first."""
        return self._named(stem, self.rendezvous_id)

    def _named(self, stem: str, start_id: str) -> str:
        begin = re.sub(r"[^A-Za-z0-9._-]", "", stem).strip(".-")[:40] or "job"
        endpoint = "" if self.is_named_by_engine else self.endpoint
        text = f"{start_id}\0{endpoint}\0{self.hosts}"
        return f"{begin}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class HostSizes:
    """How many hosts a job has, and with how many it may go on."""

    most: int
    #: All of them, the largest included; empty where the number is fixed.
    sizes: tuple[int, ...] = ()

    @property
    def is_elastic(self) -> bool:
        """Whether the job may go on with fewer."""
        return bool(self.sizes)

    def words(self) -> str:
        """``may go on with 4 or 2 hosts``; empty where the number is fixed."""
        if not self.sizes:
            return ""
        down = [str(size) for size in sorted(self.sizes, reverse=True)]
        shown = down if len(down) <= NAMED_MAX else [*down[: NAMED_MAX - 1], "…", down[-1]]
        return f"may go on with {', '.join(shown)} hosts"


def host_sizes(nnodes: str, sizes: str | None = None) -> HostSizes:
    """What ``--nnodes`` and ``--sizes`` ask for.

    Without ``--sizes`` a job of MIN:MAX may have those numbers from MIN to MAX that divide MAX, because a batch for MAX is dealt to them as
    well; where MAX is the only one, any from MIN to MAX.
    """
    if not re.fullmatch(r"\d{1,9}(:\d{1,9})?", nnodes):
        raise UsageError(f"--nnodes must be a number or MIN:MAX, got {nnodes}")
    first, _, last = nnodes.partition(":")
    least, most = int(first), int(last or first)
    if not 1 <= least <= most <= HOSTS_MAX:
        raise UsageError(f"--nnodes must be 1 to {HOSTS_MAX}, and MIN at most MAX, got {nnodes}")
    if sizes is None:
        if least == most:
            return HostSizes(most)
        divisors = tuple(size for size in range(least, most + 1) if most % size == 0)
        return HostSizes(most, divisors if len(divisors) > 1 else tuple(range(least, most + 1)))
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", sizes.replace(" ", "")):
        raise UsageError(f"--sizes must be numbers of hosts, as in 4,8,16, got {sizes}")
    chosen = {int(size) for size in sizes.replace(" ", "").split(",")}
    if least == most:
        raise UsageError(
            f"--sizes needs --nnodes MIN:MAX, got --nnodes {nnodes}",
            hint=f"--nnodes {min(chosen)}:{most} --sizes {sizes}",
        )
    wrong = sorted(size for size in chosen if not least <= size <= most)
    if wrong:
        raise UsageError(f"--sizes must be between the {least} and {most} of --nnodes, got {wrong[0]}")
    return HostSizes(most, tuple(sorted(chosen | {most})))


def join_of(options: JoinOptions, facts: EngineFacts) -> Join | None:
    """What is to be joined; nothing for a job of this host alone. Options win over what an engine says."""
    if options.standalone:
        return None
    sizes = _sizes(options, facts)
    hosts = sizes.most
    if hosts == 1:
        return None
    _check_backend(options)
    host, port, at_first = _meeting(options, facts, hosts)
    # However it is written, hosts come to the same secret; and a name with a dot at its end is in no /etc/hosts.
    host = host.removesuffix(".").lower()
    node_rank = facts.node_rank if options.node_rank is None else _node_rank(options.node_rank, hosts)
    # An engine counts all hosts that it gave, and those beyond the job's number are in reserve.
    reserve = options.node_rank is None and node_rank is not None and hosts <= node_rank < (facts.hosts or 0)
    if reserve:
        node_rank = None
    if node_rank is not None and node_rank >= hosts:
        raise JoinInvalid(
            reason=f"host rank {node_rank} is beyond the last of {hosts} hosts",
            hint="host ranks count from 0: --node-rank, or the engine's, below --nnodes",
        )
    if at_first and node_rank is None and not reserve:
        raise JoinInvalid(
            reason="--master-addr needs --node-rank, because the host with rank 0 is the meeting point",
            hint=f"--rdzv-endpoint {host}:{port} needs no ranks",
        )
    conf = rendezvous_conf(options.rdzv_conf)
    notes = [f"--nnodes {options.nnodes}: the job {sizes.words()}"] if sizes.is_elastic else []
    if host.strip("[]") in _LOCAL:
        notes.append(f"{host or 'localhost'} is this machine, so all {hosts} hosts are expected on it")
    return Join(
        hosts=hosts,
        node_rank=node_rank,
        sizes=sizes.sizes,
        spare=reserve,
        meeting_host=host or "localhost",
        port=port,
        rendezvous_id=options.rdzv_id or facts.rendezvous_id or "none",
        names=tuple(facts.names[:hosts]) if options.node_rank is None and len(facts.names) >= hosts else (),
        own_name=facts.own_name,
        rack=facts.rack,
        meets_at_first=at_first,
        ends_at=facts.ends_at,
        restart=facts.restart,
        is_named_by_engine=facts.engine == "slurm" and not options.rdzv_id,
        is_meeting_host=conf.is_host,
        wait_s=conf.join_timeout_s,
        last_call_s=conf.last_call_timeout_s,
        notes=notes,
    )


def _sizes(options: JoinOptions, facts: EngineFacts) -> HostSizes:
    """How many hosts, as the options say, or the engine less those in reserve."""
    if options.nnodes is not None:
        return host_sizes(options.nnodes, options.sizes)
    if options.sizes is not None:
        raise UsageError("--sizes needs --nnodes MIN:MAX")
    count = (facts.hosts or 1) - options.spare_hosts
    if options.spare_hosts and count < 1:
        raise UsageError(
            f"--spare-hosts must be less than the hosts that there are, got {options.spare_hosts} of {facts.hosts or 1}"
        )
    return HostSizes(count)


class RendezvousConf(NamedTuple):
    """What of torchrun's ``--rdzv-conf`` has a meaning here."""

    is_host: bool | None = None
    join_timeout_s: float | None = None
    last_call_timeout_s: float | None = None


def rendezvous_conf(text: str) -> RendezvousConf:
    """``is_host=1,join_timeout=600``; other keys of torchrun's backends are not needed."""
    fields: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--rdzv-conf must be KEY=VALUE,KEY=VALUE, got {text}")
        fields[key.strip()] = value.strip()
    is_host = fields.get("is_host")
    if is_host is not None and is_host.lower() not in _BOOLEANS:
        raise UsageError(f"--rdzv-conf is_host must be 1 or 0, got {is_host}")
    limits: list[float | None] = []
    for key in ("join_timeout", "last_call_timeout"):
        limit = fields.get(key)
        if limit is not None and not re.fullmatch(r"\d+(\.\d+)?", limit):
            raise UsageError(f"--rdzv-conf {key} must be seconds, got {limit}")
        limits.append(None if limit is None else float(limit))
    return RendezvousConf(None if is_host is None else _BOOLEANS[is_host.lower()], *limits)


def split_endpoint(
    text: str, *, option: str = "--rdzv-endpoint", default_port: int = PORT
) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``."""
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{option} must be HOST:PORT, as in gpu01:29400, got {text}",
            hint=BRACKETS if re.fullmatch(r"[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", text) else None,
        )
    port = int(match[2]) if match[2] else default_port
    if not 1 <= port <= 65535:
        raise UsageError(
            f"{option} must have a port from 1 to 65535, got {text}",
            hint="hosts that are started apart cannot agree on a free port, so choose one",
        )
    return match[1], port


def _check_backend(options: JoinOptions) -> None:
    if options.rdzv_backend and options.rdzv_backend not in BACKENDS:
        raise UsageError(
            f"--rdzv-backend must be one of {', '.join(BACKENDS)}, got {options.rdzv_backend}",
            hint="hosts meet at --rdzv-endpoint without a server; there is nothing else to run",
        )


def _meeting(options: JoinOptions, facts: EngineFacts, hosts: int) -> tuple[str, int, bool]:
    """Host, port, and whether host rank 0 is there."""
    if options.rdzv_endpoint:
        host, port = split_endpoint(options.rdzv_endpoint)
        return (
            host,
            port,
            options.rdzv_backend == "static"
            or (options.node_rank is not None and host.strip("[]") in _LOCAL),
        )
    if options.master_addr is not None:
        return options.master_addr, options.master_port or STATIC_PORT, True
    if facts.meeting_host:
        return facts.meeting_host, facts.meeting_port or PORT, True
    hint = "--rdzv-endpoint HOST:PORT, the same on every host"
    if facts.engine == "kubernetes":
        hint = f"give the pods a headless service (`subdomain:` in the pod), or {hint}"
    raise JoinInvalid(reason=f"{hosts} hosts are to join, and nothing says where they meet", hint=hint)


def _node_rank(text: str, hosts: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) >= hosts:
        raise UsageError(f"--node-rank must be 0 to {hosts - 1} for {hosts} hosts, got {text}")
    return int(text)
