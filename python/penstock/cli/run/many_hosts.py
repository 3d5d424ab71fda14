"""``penstock run`` on many hosts: from options and the environment to a host that joins, or to hosts that ssh starts.

Loaded only where something speaks of more than one host, because the start of a job on one host counts.
"""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli.escape import harmless
from penstock.cli.run.options import CommandLine
from penstock.errors.process import HostUnreachable
from penstock.errors.root import UsageError
from penstock.process.exclusion.entry import EntryGuard, entry_look, history_place
from penstock.process.exclusion.history import open_history
from penstock.process.hosts import addresses
from penstock.process.hosts.engine_environment import engine_facts
from penstock.process.hosts.host_directory import STATE, HostFile, HostPlace, furnish_host
from penstock.process.hosts.host_key import OPEN_KEY, job_secret, key_path, read_key
from penstock.process.hosts.host_names import NamedHost, common_slots, in_racks, read_host_file, read_hosts
from penstock.process.hosts.join import HostSizes, Join, JoinOptions, host_sizes, join_of
from penstock.process.hosts.shipping.ship_plan import ShipPlan
from penstock.process.job import units
from penstock.process.job.launch import agent_path, stem
from penstock.process.job.local_home import local_home
from penstock.process.job.spec import JobSpec
from penstock.store import is_remote, to_path, to_url

LEASE_LEAST_S = 2.0
LEASE_MOST_S = 86_400.0
FANOUT_LEAST, FANOUT_MOST = 2, 4096
GROWTHS = ("restart", "saved")
#: Stores that make an object only if it does not exist.
STATE_SCHEMES = ("s3", "gs", "az")
#: Where an image or a login says which hosts fail together.
RACK_VARIABLE = "PENSTOCK_RACK"


@dataclass(frozen=True)
class HostOptions:
    """What holds for a job of many hosts, however they are started."""

    lease_s: float
    host_wait_s: float
    detach_after_s: float
    fanout: int
    state: str | None
    interface: str | None
    mixed: bool
    #: What this host shares with its neighbours; empty where nobody says so.
    rack: str = ""
    replace_within_s: float = 600.0
    #: Where failures of hosts are remembered; nothing: in the home.
    history: str | None = None
    #: Whether hosts are looked at before they are used.
    checks: bool = True
    #: Whether a job that got smaller asks its ranks to save and leave as soon as there are more hosts.
    grow_saved: bool = False


class SshHosts(NamedTuple):
    """Hosts that this launcher starts."""

    hosts: list[NamedHost]
    #: Ranks on each, where the list says so.
    slots: int
    #: How many of them the job has; the others are in reserve.
    sizes: HostSizes


def hosts_asked(words: CommandLine, environment: Mapping[str, str]) -> Join | SshHosts | None:
    """How the hosts of a job are found; nothing for a job of this host alone."""
    values = words.values
    if values["hosts"] is not None or values["hostfile"] is not None:
        return _ssh_hosts(words)
    facts = engine_facts(environment, hostname=os.uname().nodename, full_name=_full_name(environment))
    chosen = {
        key: values[key]
        for key in ("nnodes", "node_rank", "master_addr", "master_port")
        if key in words.given
    }
    texts = {
        key: values[key]
        for key in ("rdzv_backend", "rdzv_endpoint", "rdzv_conf")
        if key in words.given and values[key]
    }
    rdzv_id = values["rdzv_id"] if values["rdzv_id"] != "none" else ""
    reserve = {"sizes": values["sizes"], "spare_hosts": values["spare_hosts"]}
    join = join_of(
        JoinOptions(rdzv_id=rdzv_id, standalone=values["standalone"], **reserve, **chosen, **texts), facts
    )
    if join is None and facts.note and not values["standalone"] and "nnodes" not in words.given:
        _note(facts.note)
    return join


def host_options(values: Mapping[str, Any]) -> HostOptions:
    """Checked once, with the value that is wrong."""
    lease_s = _seconds("--lease", values["lease"])
    if not LEASE_LEAST_S <= lease_s <= LEASE_MOST_S:
        raise UsageError(
            f"--lease must be 2 s to a day, got {values['lease']}",
            hint="a host that is not heard ends its ranks when its lease ends; 30s outlasts the loss of a leader",
        )
    if not FANOUT_LEAST <= values["fanout"] <= FANOUT_MOST:
        raise UsageError(f"--fanout must be {FANOUT_LEAST} to {FANOUT_MOST}, got {values['fanout']}")
    if values["grow"] not in GROWTHS:
        raise UsageError(
            f"--grow must be {' or '.join(GROWTHS)}, got {values['grow']}",
            hint="saved asks the ranks to save and restarts them when more hosts are here; restart waits for one",
        )
    return HostOptions(
        lease_s=lease_s,
        host_wait_s=_seconds("--host-wait", values["host_wait"]),
        replace_within_s=_seconds("--replace-within", values["replace_within"]),
        grow_saved=values["grow"] == "saved",
        history=history_place(values["host_history"], os.environ),
        checks=values["check"],
        detach_after_s=_seconds("--detach-after", values["detach_after"]),
        fanout=values["fanout"],
        state=None if values["state"] is None else _state(values["state"]),
        interface=values["interface"],
        mixed=values["mixed"],
        rack=values["rack"] or "",
    )


def _state(place: str) -> str:
    """The directory of ``--state``, or the URL of a place on an object store."""
    url = to_url(place)
    if not is_remote(url):
        return str(to_path(url))
    scheme = url.partition("://")[0]
    if scheme not in STATE_SCHEMES:
        raise UsageError(
            f"--state must be a directory or a URL of {', '.join(STATE_SCHEMES)}, got {place}",
            hint="a place where an object can be made on condition that it does not exist",
        )
    return url


def furnish_join(
    home: Path, spec: JobSpec, join: Join, words: CommandLine, environment: Mapping[str, str]
) -> Path:
    """The host directory of this host of a job that others join."""
    agent_path()
    options = host_options(words.values)
    spec.fit_hosts(join.hosts, elastic=bool(join.sizes))
    check_elastic(spec, join.sizes, options)
    secret = _join_secret(home, join, words, environment)
    for note in join.notes:
        _note(note)
    options = replace(options, rack=options.rack or environment.get(RACK_VARIABLE) or join.rack)
    # The list of hosts counts ranks of the first role; of any other all hosts have the same number.
    host = host_file(join, options, local_address=words.values["local_addr"], slots=spec.roles[0].ranks)
    _check_entry(home, host, options, environment)
    name = spec.name or stem(spec.roles[0].command)
    if host.state is None and join.is_named_by_engine:
        # A job that the engine starts again has another name and maybe other hosts; its state is where the first start left it.
        state = home / "jobs" / join.first_job_id(name) / STATE
        host = replace(host, state=str(state), continues=join.restart > 0)
    if words.values["no_key"]:
        host = replace(host, open=True)
        _note(f"hosts join without a key: everyone who reaches {host.endpoint} can run commands in this job")
    logs = words.values["log_dir"]
    host = _with_directory(host, spec, words, local_home(environment))
    place = HostPlace(
        home=home,
        local=local_home(environment),
        logs=None if logs is None else Path(logs),
        environment=environment,
    )
    try:
        return furnish_host(place, spec.to_json(join.job_id(name)), host, secret)
    finally:
        if host.ship_from is not None:
            # It is moved to the job; where there is none, nobody wants it.
            Path(host.ship_from).unlink(missing_ok=True)


def _check_entry(home: Path, host: HostFile, options: HostOptions, environment: Mapping[str, str]) -> None:
    """Whether this host may take part. Raises ``HostExcluded``, ``HostUnfit``, and ``HostsExcluded`` where too many of the others may not."""
    guard = EntryGuard(open_history(home, options.history), _note)
    look = entry_look(environment, looks=options.checks)
    name = look.identity.name or host.name
    guard.note({name: look})
    guard.check_number(guard.excluded_names(host.expected), len(host.expected))
    guard.let_in(name, look)


def _with_directory(host: HostFile, spec: JobSpec, words: CommandLine, local: Path) -> HostFile:
    """With ``--ship`` the host at the endpoint has the directory packed; the others get it from there."""
    if words.values["ship"] is None:
        return host
    plan = ShipPlan.of(words.values["ship"], spec, has_it=host.founder)
    if not host.founder:
        return replace(host, ships=True)
    packed = plan.pack(local)
    _note(packed.words())
    return replace(host, ships=True, ship_from=str(packed.path))


def host_file(join: Join, options: HostOptions, *, local_address: str, slots: int) -> HostFile:
    """Where this host stands and where the others are."""
    own = addresses.own_addresses()
    wait_s = options.host_wait_s if join.wait_s is None else join.wait_s
    founder = _is_founder(join, own)
    peer = "" if founder else addresses.resolve(join.meeting_host, timeout_s=wait_s)
    if peer and addresses.is_loopback(peer) and not addresses.is_here(join.meeting_host, own):
        raise HostUnreachable(
            host=join.meeting_host, reason=f"its name means {peer} here, which is this host"
        )
    address = _own_address(join, options, own, local_address, peer)
    return HostFile(
        name=join.own_name or os.uname().nodename.partition(".")[0],
        address=address,
        port=join.port if founder else 0,
        endpoint=addresses.joined(address if founder else peer, join.port),
        endpoint_name="" if addresses.is_address(join.meeting_host) else f"{join.meeting_host}:{join.port}",
        founder=founder,
        nnodes=join.hosts,
        sizes=list(join.sizes),
        replace_within_ms=round(
            1000 * (options.replace_within_s if join.last_call_s is None else join.last_call_s)
        ),
        grow_saved=options.grow_saved,
        spare=join.spare,
        node_rank=join.node_rank,
        slots=slots,
        rack=options.rack,
        lease_ms=round(options.lease_s * 1000),
        fanout=options.fanout,
        host_wait_ms=round(wait_s * 1000),
        state=options.state,
        state_asked=options.state is not None,
        continues=options.state is not None,
        interface=options.interface,
        mixed=options.mixed,
        history=options.history or "",
        expected=list(join.names),
        ends_at=join.ends_at,
    )


def _is_founder(join: Join, own: Mapping[str, list[str]]) -> bool:
    if join.is_meeting_host is not None:
        return join.is_meeting_host
    if join.meets_at_first and join.node_rank is not None:
        return join.node_rank == 0
    return addresses.is_here(join.meeting_host, own)


def _own_address(
    join: Join, options: HostOptions, own: Mapping[str, list[str]], local_address: str, peer: str
) -> str:
    """Chosen by somebody, or what leads to the others."""
    if options.interface is not None:
        return addresses.address_of_interface(options.interface, own)
    if local_address:
        return addresses.resolve(local_address, timeout_s=options.host_wait_s)
    if peer:
        return addresses.address_towards(peer, join.port)
    if join.meeting_host.strip("[]") in ("localhost", "127.0.0.1", "::1"):
        return "::1" if ":" in join.meeting_host else "127.0.0.1"
    mine = [address for addresses_ in own.values() for address in addresses_]
    try:
        resolved = addresses.resolve(join.meeting_host, timeout_s=0)
    except HostUnreachable:
        resolved = ""
    # A host's own name often means 127.0.1.1 on itself, where nobody else reaches it.
    if resolved in mine and not addresses.is_loopback(resolved):
        return resolved
    return addresses.outward_address(own)


def _join_secret(home: Path, join: Join, words: CommandLine, environment: Mapping[str, str]) -> bytes:
    key = OPEN_KEY if words.values["no_key"] else read_key(key_path(home, environment))
    return job_secret(key, rendezvous_id=join.start_id, endpoint=join.endpoint)


def _ssh_hosts(words: CommandLine) -> SshHosts:
    values = words.values
    if values["hosts"] is not None and values["hostfile"] is not None:
        raise UsageError("--hosts and --hostfile exclude each other")
    for key in ("node_rank", "rdzv_endpoint", "standalone"):
        if key in words.given and values[key]:
            raise UsageError(
                f"--{key.replace('_', '-')} and --hosts exclude each other",
                hint="--hosts starts all hosts from here; with --nnodes each is started by itself",
            )
    if values["stdin"] is not None:
        raise UsageError("--stdin and --hosts exclude each other", hint="let the rank read a file")
    if values["rack"]:
        raise UsageError(
            "--rack and --hosts exclude each other", hint="a line of a host file may say rack=NAME"
        )
    hosts = (
        read_hosts(values["hosts"])
        if values["hosts"] is not None
        else read_host_file(Path(values["hostfile"]))
    )
    sizes = _named_sizes(words, len(hosts))
    if not str(values["ranks"]).lstrip("+-").isdigit():
        raise UsageError(
            f"--ranks must be a number with --hosts, got {values['ranks']}",
            hint="hosts are not looked at before the job runs there; slots=N in a host file counts as well",
        )
    hosts = in_racks(hosts)
    return SshHosts(hosts, 0 if "ranks" in words.given else common_slots(hosts), sizes)


def _named_sizes(words: CommandLine, named: int) -> HostSizes:
    """How many of the hosts that are named the job has; the last ones are in reserve."""
    values, spare_hosts = words.values, words.values["spare_hosts"]
    if spare_hosts >= named:
        raise UsageError(
            f"--spare-hosts must be less than the hosts that are named, got {spare_hosts} of {named}"
        )
    nnodes = values["nnodes"] if "nnodes" in words.given else str(named - spare_hosts)
    sizes = host_sizes(nnodes, values["sizes"])
    if sizes.most > named or ("spare_hosts" in words.given and sizes.most != named - spare_hosts):
        reserve = f", {spare_hosts} of them in reserve" if spare_hosts else ""
        raise UsageError(f"--nnodes is {nnodes}, and {named} hosts are named{reserve}")
    return sizes


def check_elastic(spec: JobSpec, sizes: Sequence[int], options: HostOptions) -> None:
    """Ranks that restart alone keep their numbers, so a job of them has one size; and a job of one size does not grow."""
    if options.grow_saved and not sizes:
        raise UsageError("--grow saved needs --nnodes MIN:MAX: a job with one number of hosts never grows")
    alone = [role.name for role in spec.roles if role.policy.restart == "one"]
    if sizes and alone:
        raise UsageError(
            f"--nnodes MIN:MAX and --restart one exclude each other (role {alone[0]})",
            hint="--spare-hosts and --restart one go together",
        )


def _full_name(environment: Mapping[str, str]) -> str:
    """The name with its domain. Asked only where an engine needs it: a resolver that is down would hold up every start."""
    return socket.getfqdn() if "JOB_COMPLETION_INDEX" in environment else ""


def _seconds(option: str, text: str) -> float:
    seconds = units.second_count(text)
    if seconds is None:
        raise UsageError(f"{option} must be a time, as in 10, 90s or 5m, got {text}")
    return seconds


def _note(words: str) -> None:
    """Something for the person; names of hosts and variables of engines come from outside."""
    sys.stderr.write(f"note: {harmless(words)}\n")
