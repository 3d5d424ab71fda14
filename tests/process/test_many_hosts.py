"""A command line of many hosts becomes a host directory that an agent can start from; what cannot be joined is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.run.many_hosts import SshHosts, furnish_join, host_options, hosts_asked
from penstock.cli.run.options import CommandLine, read
from penstock.cli.run.to_spec import job_of_command, notes
from penstock.errors import HostsInvalid, HostTaken, InterfaceUnknown, JoinInvalid, KeyMissing, UsageError
from penstock.process.hosts.host_key import job_secret, make_key, read_key
from penstock.process.hosts.join import Join
from penstock.process.job.catalogue import Job, jobs

HERE = str(Path(__file__))
TWO = ["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "127.0.0.1:29411", "--rdzv-id", "seven"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key, and a local disk."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_LOCAL", str(tmp_path / "local"))
    for name in list(os.environ):
        if name.startswith(("SLURM", "PET_", "JOB_COMPLETION")):
            monkeypatch.delenv(name)
    make_key(tmp_path / "home/key")
    return tmp_path / "home"


def furnished(home: Path, *words: str) -> Path:
    line = read([*words, HERE], os.environ)
    join = hosts_asked(line, os.environ)
    assert isinstance(join, Join)
    return furnish_join(home, job_of_command(line, many=True), join, line, os.environ)


def host_file(directory: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((directory / "host.json").read_text())
    return document


def test_a_host_that_joins_has_all_that_its_agent_needs(home: Path) -> None:
    directory = furnished(home, *TWO, "--lease", "4s", "--host-wait", "1m", "--ranks", "3")
    host = host_file(directory)
    assert len(host["host"]) == 16
    wanted = {
        "endpoint": "127.0.0.1:29411",
        "address": "127.0.0.1",
        "port": 29411,
        "founder": True,
        "nnodes": 2,
        "node_rank": 0,
        "slots": 3,
        "lease_ms": 4000,
        "fanout": 64,
        "host_wait_ms": 60000,
        "state": str(home / "jobs" / directory.name / "state"),
        "state_asked": False,
        "continues": False,
        "interface": None,
        "mixed": False,
        "expected": [],
        "open": False,
        "name": os.uname().nodename.partition(".")[0],
    }
    assert {key: host[key] for key in wanted} == wanted
    assert set(host["versions"]) == {"agent", "python"}
    description = json.loads((directory / "job.json").read_text())
    assert description["id"] == directory.name
    assert description["roles"][0]["master_port"] is None
    secret = job_secret(read_key(home / "key"), rendezvous_id="seven", endpoint="127.0.0.1:29411")
    assert (directory / "key").read_text() == secret.hex() + "\n"
    assert (directory / "key").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    for file in directory.rglob("*.json"):
        assert secret.hex() not in file.read_text()


def test_the_job_is_found_by_its_name_on_the_host_and_in_the_home(home: Path) -> None:
    directory = furnished(home, *TWO)
    (job,) = jobs(home)
    assert job.directory == directory
    line = home / "jobs" / job.id / "host_directories" / host_file(directory)["name"]
    assert line.read_text().strip() == str(directory)
    line.write_text("/nowhere\n")
    (home / "jobs" / job.id / "host_directories/other").write_text(f"{directory}\n")
    assert {found.directory for found in jobs(home)} == {directory, home / "jobs" / job.id}
    assert Job(home / "jobs" / job.id).phase() == "elsewhere"


def test_hosts_on_one_machine_have_directories_of_their_own_and_no_more_than_there_are(home: Path) -> None:
    first, second = furnished(home, *TWO), furnished(home, *TWO)
    assert second.name == f"{first.name}+1"
    assert host_file(second)["name"] == f"{host_file(first)['name']}+1"
    assert {job.directory for job in jobs(home)} == {first, second}
    with pytest.raises(HostTaken) as caught:
        furnished(home, *TWO)
    assert caught.value.job == first.name


def test_a_second_start_after_a_first_moves_it_aside(home: Path) -> None:
    first = furnished(home, *TWO)
    os.utime(first, (1, 1))
    again = furnished(home, *TWO)
    assert again == first
    assert {job.id for job in jobs(home)} == {first.name, f"{first.name}.1"}


def test_without_a_key_hosts_do_not_join_unless_that_is_wished_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "key").unlink()
    with pytest.raises(KeyMissing):
        furnished(home, *TWO)
    directory = furnished(home, *TWO, "--no-key")
    assert host_file(directory)["open"] is True
    assert "without a key: everyone who reaches 127.0.0.1:29411" in capsys.readouterr().err


def test_a_job_of_one_host_asks_for_none_of_this(home: Path) -> None:
    for words in (
        [],
        ["--nnodes", "1"],
        ["--nnodes", "1:1", "--rdzv-endpoint", "localhost:29500"],
        ["--standalone"],
    ):
        assert hosts_asked(read([*words, HERE], {}), {}) is None
    line = read(["--lease", "9s", HERE], {})
    assert notes(line) == ["--lease is not needed: the job has one host"]
    assert notes(line, many=True) == []


@pytest.mark.parametrize(
    "variables",
    [
        {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "head", "PET_MASTER_PORT": "29500"},
        {
            "PET_NNODES": "2",
            "PET_NODE_RANK": "1",
            "PET_RDZV_ENDPOINT": "head:29500",
            "PET_RDZV_BACKEND": "static",
        },
    ],
)
def test_the_variables_of_kubeflow_say_who_joins_whom(variables: dict[str, str]) -> None:
    join = hosts_asked(read([HERE], variables), variables)
    assert isinstance(join, Join)
    assert (join.hosts, join.node_rank, join.endpoint, join.meets_at_first) == (2, 1, "head:29500", True)


@pytest.mark.parametrize("spelling", ["--rdzv_endpoint=h:1", "--rdzv-endpoint=h:1", "--rdzv-end=h:1"])
def test_every_spelling_of_torchrun_joins(spelling: str) -> None:
    join = hosts_asked(read(["--nnodes=2", spelling, "--rdzv_backend=c10d", "--rdzv_id=x", HERE], {}), {})
    assert isinstance(join, Join)
    assert (join.endpoint, join.rendezvous_id) == ("h:1", "x")


@pytest.mark.parametrize(
    ("words", "kind", "word"),
    [
        (["--hosts", "4"], HostsInvalid, "--nnodes 4"),
        (["--hosts", "a,a"], HostsInvalid, "names a twice"),
        (["--hosts", "a,b", "--node-rank", "1"], UsageError, "exclude each other"),
        (["--hosts", "a,b", "--nnodes", "3"], UsageError, "2 hosts are named"),
        (["--hosts", "a", "--hostfile", "b"], UsageError, "exclude each other"),
        (["--hosts", "a,b", "--ranks", "gpu"], UsageError, "must be a number with --hosts, got gpu"),
        (["--hosts", "a,b", "--stdin", "0"], UsageError, "exclude each other"),
        (["--nnodes", "2"], JoinInvalid, "nothing says where they meet"),
        (["--nnodes", "2", "--rdzv-endpoint", "a:1", "--rdzv-backend", "zeus"], UsageError, "got zeus"),
    ],
)
def test_hosts_that_make_no_sense_are_refused(words: list[str], kind: type[Exception], word: str) -> None:
    with pytest.raises(kind) as caught:
        hosts_asked(read([*words, HERE], {}), {})
    assert word in f"{caught.value} {getattr(caught.value, 'hint', '')}"


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["--lease", "1s"], "--lease must be 2 s to a day, got 1s"),
        (["--lease", "long"], "--lease must be a time"),
        (["--fanout", "1"], "--fanout must be 2 to 4096, got 1"),
        (
            ["--state", "https://host/x"],
            "--state must be a directory or a URL of s3, gs, az, got https://host/x",
        ),
        (["--host-wait", "x"], "--host-wait must be a time"),
    ],
)
def test_options_of_hosts_that_make_no_sense_are_refused(words: list[str], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        host_options(read([*words, HERE], {}).values)


def test_a_host_says_its_rack_by_an_option_or_a_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_file(furnished(home, *TWO, "--rack", "leaf7"))["rack"] == "leaf7"
    with pytest.raises(UsageError, match="--rack and --hosts"):
        hosts_asked(read(["--hosts", "a,b", "--rack", "leaf7", HERE], {}), {})


def test_an_interface_that_is_not_there_is_named(home: Path) -> None:
    with pytest.raises(InterfaceUnknown, match="nothing0"):
        furnished(home, *TWO, "--interface", "nothing0")


def test_a_host_file_says_how_many_ranks_a_host_has(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a slots=4 rack=r1\nb slots=4 rack=r2\n")
    line: CommandLine = read(["--hostfile", str(file), HERE], {})
    asked = hosts_asked(line, {})
    assert isinstance(asked, SshHosts)
    assert (asked.slots, [host.rack for host in asked.hosts]) == (4, ["r1", "r2"])
    chosen = hosts_asked(read(["--hostfile", str(file), "--ranks", "2", HERE], {}), {})
    assert isinstance(chosen, SshHosts)
    assert chosen.slots == 0
