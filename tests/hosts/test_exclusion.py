"""Hosts that failed are left out, by what they are and not by what they are called; and a person brings them back."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.process.exclusion.history import open_history
from penstock.process.exclusion.identity import HostIdentity
from penstock.process.exclusion.records import Record, new_record
from tests.hosts.checked_hosts import make_machine, rename
from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until
from tests.hosts.ssh_launcher import MODULES, NEEDS, POSSIBLE, launch, ranks_in, ssh_hosts
from tests.hosts.sshd import SshHosts

LEASE = ("--lease", "2s")


def _records(place: str) -> list[Record]:
    return open_history(Path("/nowhere"), place).records()


def _states(job: JobOfHosts) -> dict[str, str]:
    rows = job.ask(0, "hosts")
    return {host["name"]: host["state"] for host in rows[0].get("hosts") or []} if rows else {}


def test_a_lost_host_is_remembered_and_a_second_failure_keeps_it_out_under_any_name(tmp_path: Path) -> None:
    """Method: one of three hosts is lost, with a failure of yesterday in the history; it comes back with another name and is refused, until
    a person includes it."""
    place = f"file://{tmp_path}/history"
    with job_of_hosts(tmp_path, 3, options=LEASE) as job:
        for index in range(3):
            make_machine(job.host(index), index + 1)
        variables = {"PENSTOCK_HOST_HISTORY": place}
        job.start(variables=variables)
        job.await_life(0)
        name = job.host(2).name
        seen = {record.host: record.identity for record in _records(place) if record.kind == "seen"}
        assert len({identity.machine for identity in seen.values()}) == 3
        day = 86_400.0
        earlier = new_record("ecc", name, "it had ECC errors", identity=seen[name], at=time.time() - day)
        open_history(tmp_path, place).append([earlier])
        job.lose(2)
        until(lambda: any(record.kind == "lost" for record in _records(place)), job.account)
        (lost,) = [record for record in _records(place) if record.kind == "lost"]
        assert (lost.host, lost.identity) == (name, seen[name])
        assert "its lease expired" in lost.why
        rename(job.host(2), "another-name")
        job.start(2, node_rank=None, variables=variables)
        assert job.codes(2) == [1]
        assert "host another-name is excluded" in job.output(2)
        assert f"as {name}: it had ECC errors; was lost" in job.output(2)
        assert "penstock hosts include another-name" in job.output(2)
        included = job.penstock(0, "hosts", "include", name, "--host-history", place)
        assert included.returncode == 0, included.stderr
        job.start(2, node_rank=None, variables=variables)
        until(lambda: _states(job).get("another-name") == "here", job.account)
        job.await_life(1)
        job.finish()
        assert job.codes() == [0, 0, 0]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    if not POSSIBLE:
        pytest.skip(NEEDS)
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), 3) as found:
        yield found


def test_ssh_leaves_an_excluded_machine_out_whatever_it_is_called(hosts: SshHosts) -> None:
    """Method: the machine that was gpu02 is called gpu03 from now on, and a new one is called gpu02."""
    servers = hosts.servers
    for number, name in enumerate(servers, start=1):
        make_machine(servers[name], number)
    program = str(hosts.folder / "rank.py")
    words = ["--hosts", "gpu[01-03]", "--nnodes", "2:3", "--ranks", "1", "--lease", "2s", program, "end"]

    def penstock(*more: str) -> str:
        command = [sys.executable, "-m", "penstock.cli.main", *more]
        done = hosts.launcher.run(*command, variables={"PYTHONPATH": str(MODULES)})
        return done.stdout + done.stderr

    code, text = launch(hosts, *words).end()
    assert (code, len(ranks_in(text))) == (0, 3), text
    assert "no job has seen" not in penstock("hosts", "exclude", "gpu02", "--why", "its fan is loud")
    make_machine(servers["gpu02"], 77)
    make_machine(servers["gpu03"], 2)
    code, text = launch(hosts, *words).end()
    assert code == 0, text
    assert "gpu03 takes no part: excluded as gpu02: its fan is loud (`penstock hosts include gpu03`" in text
    assert len(ranks_in(text)) == 2
    (shown,) = [json.loads(line) for line in penstock("hosts", "excluded", "--json").splitlines()]
    assert shown["why"] == "its fan is loud"
    penstock("hosts", "include", str(shown["host"]))
    code, text = launch(hosts, *words).end()
    assert (code, len(ranks_in(text))) == (0, 3), text


def test_a_fixed_number_of_hosts_is_not_begun_without_one(hosts: SshHosts) -> None:
    """Method: the machine's line is there before anybody logs in, with a card that is its own."""
    servers = hosts.servers
    make_machine(servers["gpu01"], 1)
    launch(hosts, "--hosts", "gpu[01-02]", "--", str(hosts.folder / "rank.py"), "end").end()
    home = Path(f"/proc/{hosts.launcher.inner}/root/tmp/home/.penstock")
    history = open_history(home, None)
    identity = next(record.identity for record in history.records() if record.host == "gpu01")
    assert identity != HostIdentity()
    history.append([new_record("excluded", "gpu01", "memory", identity=identity)])
    code, text = launch(hosts, "--hosts", "gpu[01-02]", "--", str(hosts.folder / "rank.py"), "end").end()
    assert code == 1
    assert "2 asked · 1 here · gpu01: excluded: memory" in text
    assert "--spare-hosts" in text
    assert ranks_in(text) == []
