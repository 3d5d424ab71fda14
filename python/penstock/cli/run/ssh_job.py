"""``penstock run --hosts``: one launcher that starts every host by ssh, shows what all write, and ends them all."""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from penstock.cli.escape import harmless
from penstock.cli.run.many_hosts import HostOptions, SshHosts, check_elastic, host_options
from penstock.cli.run.options import CommandLine
from penstock.errors.process import JoinInvalid
from penstock.process.exclusion.entry import EntryGuard, EntryLook
from penstock.process.exclusion.history import open_history
from penstock.process.hosts.addresses import address_of_interface, is_loopback, joined
from penstock.process.hosts.bundle import Bundle
from penstock.process.hosts.host_directory import HostFile
from penstock.process.hosts.host_names import NamedHost
from penstock.process.hosts.launcher.equal_lines import EqualLines
from penstock.process.hosts.launcher.ssh_origin import keep_origin
from penstock.process.hosts.shipping.packed_directory import Packed
from penstock.process.hosts.shipping.ship_plan import ShipPlan, upload
from penstock.process.hosts.ssh.ssh_login import Shipment
from penstock.process.hosts.ssh.ssh_start import SshLimits, SshStarter
from penstock.process.hosts.starter import HostGreeting
from penstock.process.job.launch import agent_path, furnish
from penstock.process.job.spec import JobSpec

#: Of more hosts than this, equal lines are shown as one.
UNFOLDED_HOSTS = 8


def run_by_ssh(home: Path, spec: JobSpec, asked: SshHosts, words: CommandLine) -> int:
    """Start the job on all hosts, and stay until it has ended; detached, until it runs."""
    options = host_options(words.values)
    spec.fit_hosts(asked.sizes.most, elastic=asked.sizes.is_elastic)
    check_elastic(spec, asked.sizes.sizes, options)
    if asked.slots:
        spec = replace(spec, roles=[replace(role, ranks=asked.slots) for role in spec.roles])
    # The launcher's own directory of the job: its name, and where to ask.
    directory = furnish(home, spec, environment=os.environ)
    shipment = Shipment(agent_path(), str(spec.python or sys.executable), checks=options.checks)
    guard = EntryGuard(open_history(home, options.history), _tell)
    limits = SshLimits(
        host_wait_s=options.host_wait_s,
        detach_after_s=options.detach_after_s,
        least=min(asked.sizes.sizes, default=asked.sizes.most),
        most=asked.sizes.most,
        late_s=options.replace_within_s,
        stays=not spec.detached,
    )
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
            starter.start(JobBundles(spec, directory.name, asked, options, guard, packed))
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


class JobBundles:
    """What each host of a job gets. Of those that begin it the first founds it, and the last are in reserve."""

    def __init__(
        self,
        spec: JobSpec,
        job: str,
        asked: SshHosts,
        options: HostOptions,
        guard: EntryGuard,
        packed: Packed | None = None,
    ) -> None:
        self._spec, self._job, self._asked, self._options = spec, job, asked, options
        self._guard, self._packed = guard, packed
        self._named = {host.name: host for host in asked.hosts}
        self._secret = os.urandom(32).hex()
        #: Where each host listens, in the order in which they came.
        self._places: dict[str, str] = {}
        self._example: HostGreeting | None = None

    def first(self, greetings: Sequence[HostGreeting]) -> list[Bundle]:
        """For all that are here, once they have said where they are."""
        reached = [_address(greeting, self._options) for greeting in greetings]
        _check_once(greetings)
        _check_network(greetings, reached)
        if not self._options.mixed:
            _check_versions(greetings)
        self._example = greetings[0]
        for greeting, address in zip(greetings, reached, strict=True):
            self._places[greeting.name] = joined(address, greeting.port)
        most, here = self._asked.sizes.most, len(greetings)
        meeting, names = self._places[greetings[0].name], [_called(greeting) for greeting in greetings]
        hosts = [self._host(greeting, meeting) for greeting in greetings]
        ship_from = None if self._packed is None else upload(greetings[0].name, self._packed)
        return [
            self._bundle(
                replace(
                    host,
                    founder=number == 0,
                    spare=number >= most,
                    node_rank=number if number < most else None,
                    comes=here if here < most else None,
                    expected=names[:most],
                    ship_from=ship_from if number == 0 else None,
                )
            )
            for number, host in enumerate(hosts)
        ]

    def left_out(self, greetings: Sequence[HostGreeting]) -> dict[str, str]:
        """Hosts that failed too often, or show a failure now."""
        looks = {greeting.name: EntryLook.of(greeting.entry) for greeting in greetings}
        self._guard.note({_called(greeting): looks[greeting.name] for greeting in greetings})
        return self._guard.left_out(looks, hosts=len(self._asked.hosts))

    def later(self, greeting: HostGreeting, others: Sequence[str]) -> Bundle:
        """For one that comes in place of another."""
        look = EntryLook.of(greeting.entry)
        self._guard.note({_called(greeting): look})
        self._guard.let_in(_called(greeting), look)
        assert self._example is not None, "a job that has begun"
        address = _address(greeting, self._options)
        living = [self._places[name] for name in others if name in self._places and name != greeting.name]
        if not living:
            raise JoinInvalid(
                reason=f"no host is left that {greeting.name} could join", hint="start the job again"
            )
        if not self._options.mixed:
            _check_versions([self._example, greeting])
        self._places[greeting.name] = joined(address, greeting.port)
        return self._bundle(self._host(greeting, living[0]))

    def _bundle(self, host: HostFile) -> Bundle:
        return Bundle(
            description=self._spec.to_json(self._job),
            host=host,
            secret=self._secret,
            detach_after_s=self._options.detach_after_s,
        )

    def _host(self, greeting: HostGreeting, endpoint: str) -> HostFile:
        """A host that asks for any place."""
        options, sizes = self._options, self._asked.sizes
        return HostFile(
            name=_called(greeting),
            address=_address(greeting, options),
            port=greeting.port,
            endpoint=endpoint,
            founder=False,
            nnodes=sizes.most,
            sizes=list(sizes.sizes),
            replace_within_ms=round(options.replace_within_s * 1000),
            grow_saved=options.grow_saved,
            starter="detached" if self._spec.detached else "attached",
            slots=self._spec.roles[0].ranks,
            rack=self._named[greeting.name].rack,
            lease_ms=round(options.lease_s * 1000),
            fanout=options.fanout,
            host_wait_ms=round(options.host_wait_s * 1000),
            state=options.state,
            state_asked=options.state is not None,
            continues=options.state is not None,
            interface=options.interface,
            mixed=options.mixed,
            history=options.history or "",
            ships=self._packed is not None,
            versions=greeting.versions,
        )


def _called(greeting: HostGreeting) -> str:
    """As people call it: without a user."""
    return greeting.name.rpartition("@")[2]


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
