"""``penstock run --hosts``: one launcher that starts every host by ssh, shows what all write, and ends them all."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from penstock.cli.escape import harmless
from penstock.cli.run.many_hosts import HostOptions, SshHosts, check_elastic, host_options
from penstock.cli.run.options import CommandLine
from penstock.errors.process import JoinInvalid
from penstock.process.hosts.addresses import address_of_interface, is_loopback, joined
from penstock.process.hosts.bundle import Bundle
from penstock.process.hosts.host_directory import HostFile
from penstock.process.hosts.host_names import NamedHost
from penstock.process.hosts.launcher.equal_lines import EqualLines
from penstock.process.hosts.launcher.ssh_origin import keep_origin
from penstock.process.hosts.shipping.packed_directory import Packed
from penstock.process.hosts.shipping.ship_plan import ShipPlan, upload
from penstock.process.hosts.ssh_login import Shipment
from penstock.process.hosts.ssh_start import SshLimits, SshStarter
from penstock.process.hosts.starter import HostGreeting
from penstock.process.job.launch import agent_path, furnish
from penstock.process.job.spec import JobSpec

#: Of more hosts than this, equal lines are shown as one.
UNFOLDED_HOSTS = 8


def run_by_ssh(home: Path, spec: JobSpec, asked: SshHosts, words: CommandLine) -> int:
    """Start the job on all hosts, and stay until it has ended; detached, until it runs."""
    options = host_options(words.values)
    check_elastic(spec, asked.sizes.sizes)
    if asked.slots:
        spec = replace(spec, roles=[replace(role, ranks=asked.slots) for role in spec.roles])
    # The launcher's own directory of the job: its name, and where to ask.
    directory = furnish(home, spec, environment=os.environ)
    shipment = Shipment(agent_path(), str(spec.python or sys.executable))
    limits = SshLimits(host_wait_s=options.host_wait_s, detach_after_s=options.detach_after_s)
    folds = words.values["fold"] and len(asked.hosts) > UNFOLDED_HOSTS
    names = [host.name for host in asked.hosts]
    starter = SshStarter(names, shipment, limits, _tell, EqualLines() if folds else None)
    if asked.sizes.is_elastic:
        _tell(f"note: the job {asked.sizes.words()}")
    try:
        with ExitStack() as stack:
            packed = None
            if words.values["ship"] is not None:
                packed = ShipPlan.of(words.values["ship"], spec).pack(directory)
                stack.callback(packed.path.unlink, missing_ok=True)
                _tell(f"note: {packed.words()}")
            starter.start(bundles_of(spec, directory.name, asked, options, packed))
    except BaseException:
        # Nothing runs anywhere, so there is no job to list.
        shutil.rmtree(directory, ignore_errors=True)
        raise
    try:
        _note_hosts(directory, asked.hosts)
        keep_origin(directory, names, shipment.python)
        code = starter.watch()
    finally:
        starter.release()
    if spec.detached and code == 0:
        sys.stdout.write(f"{harmless(directory.name)}\n")
        name = directory.name
        _tell(f"hint: `penstock attach {name}` shows its output, `penstock stop {name}` ends it")
    return code


def bundles_of(
    spec: JobSpec, job: str, asked: SshHosts, options: HostOptions, packed: Packed | None = None
) -> Callable[[Sequence[HostGreeting]], list[Bundle]]:
    """What each host gets, once all have said where they are. The first founds the job, the last are in reserve."""
    secret = os.urandom(32).hex()
    hosts, sizes = asked.hosts, asked.sizes

    def bundles(greetings: Sequence[HostGreeting]) -> list[Bundle]:
        reached = [_address(greeting, options) for greeting in greetings]
        _check_once(greetings)
        _check_network(greetings, reached)
        if not options.mixed:
            _check_versions(greetings)
        endpoint = joined(reached[0], greetings[0].port)
        names = [host.name.rpartition("@")[2] for host in hosts]
        ship_from = None if packed is None else upload(hosts[0].name, packed)
        return [
            Bundle(
                description=spec.to_json(job),
                host=HostFile(
                    name=name,
                    address=address,
                    port=greeting.port,
                    endpoint=endpoint,
                    founder=number == 0,
                    nnodes=sizes.most,
                    sizes=list(sizes.sizes),
                    replace_within_ms=round(options.replace_within_s * 1000),
                    spare=number >= sizes.most,
                    node_rank=number if number < sizes.most else None,
                    slots=spec.roles[0].ranks,
                    rack=host.rack,
                    lease_ms=round(options.lease_s * 1000),
                    fanout=options.fanout,
                    host_wait_ms=round(options.host_wait_s * 1000),
                    state=options.state,
                    state_asked=options.state is not None,
                    continues=options.state is not None,
                    interface=options.interface,
                    mixed=options.mixed,
                    expected=names[: sizes.most],
                    ships=packed is not None,
                    ship_from=ship_from if number == 0 else None,
                    versions=greeting.versions,
                ),
                secret=secret,
                detach_after_s=options.detach_after_s,
            )
            for number, (host, name, address, greeting) in enumerate(
                zip(hosts, names, reached, greetings, strict=True)
            )
        ]

    return bundles


def _address(greeting: HostGreeting, options: HostOptions) -> str:
    if options.interface is None:
        return greeting.address
    return address_of_interface(options.interface, greeting.interfaces)


def _check_once(greetings: Sequence[HostGreeting]) -> None:
    """Every host once: two names of one machine would start everything twice there."""
    known: dict[str, str] = {}
    # Hosts at loopback addresses are all this machine, as people try things out.
    for greeting in (greeting for greeting in greetings if not is_loopback(greeting.address)):
        other = known.setdefault(greeting.machine, greeting.name) if greeting.machine else greeting.name
        if other != greeting.name:
            raise JoinInvalid(
                reason=f"{other} and {greeting.name} are the same host ({greeting.address})",
                hint="name each host once; --ranks N starts several ranks on every host",
            )


def _check_network(greetings: Sequence[HostGreeting], reached: Sequence[str]) -> None:
    """Hosts that can reach each other at all: not one at its loopback and another elsewhere."""
    alone = [g.name for g, address in zip(greetings, reached, strict=True) if is_loopback(address)]
    if alone and len(alone) < len(reached):
        raise JoinInvalid(
            reason=f"no common network: {', '.join(alone[:4])} was reached at a loopback address, others were not",
            hint="name this host by an address that the others reach, or give --interface",
        )


def _check_versions(greetings: Sequence[HostGreeting]) -> None:
    """Hosts run the same program with the same Python, unless somebody wishes otherwise."""
    first = greetings[0]
    for greeting in greetings[1:]:
        for what, version in first.versions.items():
            other = greeting.versions.get(what)
            if other != version:
                raise JoinInvalid(
                    reason=f"{greeting.name} has {what} {other}, and {first.name} has {version}",
                    hint="install the same on all hosts, or give --mixed",
                )


def _note_hosts(directory: Path, hosts: Sequence[NamedHost]) -> None:
    folder = directory / "host_directories"
    folder.mkdir(exist_ok=True)
    for host in hosts:
        # A host that shares this home has written where its part is.
        (folder / host.name.rpartition("@")[2]).touch()


def _tell(text: str) -> None:
    sys.stderr.write(f"{harmless(text)}\n")
