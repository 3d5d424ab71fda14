"""Hosts started by ssh: all or none, with their own words; output comes back, signals go forth, a killed launcher ends all.

The way to other hosts is a program called ``ssh`` that stays on this machine (``logins``); processes, pipes and bundles are real.
"""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.run.many_hosts import SshHosts, host_options
from penstock.cli.run.options import read
from penstock.cli.run.ssh_job import JobBundles
from penstock.errors import AgentUnusable, BundleInvalid, JoinInvalid
from penstock.process.exclusion.entry import EntryGuard
from penstock.process.exclusion.history import NoHistory
from penstock.process.hosts.bundle import Bundle, check_agent
from penstock.process.hosts.host_directory import HostFile
from penstock.process.hosts.host_names import NamedHost
from penstock.process.hosts.join import HostSizes, host_sizes
from penstock.process.hosts.starter import HostGreeting
from penstock.process.job.spec import JobSpec, Role
from penstock.process.questions.number_ranges import numbers_in
from tests.process.jobs import is_alive, wait_until
from tests.process.logins import stand_in

LAUNCHER = """
import sys
from pathlib import Path
import penstock.cli.run.ssh_job as ssh_job
import penstock.process.job.launch as launch
launch.AGENT = Path(sys.argv[1])
from penstock.cli.main import main
sys.exit(main(["run", *sys.argv[2:]]))
"""

#: Nobody is excluded.
NOBODY = EntryGuard(NoHistory(), print)


class Started:
    """A launcher with the stand-in."""

    def __init__(self, folder: Path, *words: str) -> None:
        environment, agent = stand_in(folder)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(agent), *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err

    def pids(self, count: int) -> list[int]:
        wait_until(lambda: len(self._files()) == count, f"{count} hosts run", timeout_s=60)
        return [int(path.read_text()) for path in self._files()]

    def _files(self) -> list[Path]:
        return [path for path in self.folder.glob("*/local/jobs/*/pid") if path.read_text()]


def test_every_host_gets_its_bundle_and_its_output_comes_back(tmp_path: Path) -> None:
    code, out, err = Started(tmp_path, "--hosts", "gpu[1-3]", "--ranks", "2", "--", "true", "7").end()
    assert (code, sorted(out.splitlines())) == (7, ["[0] here", "[1] here", "[2] here"]), err
    files = sorted(tmp_path.glob("gpu*/local/jobs/*/host.json"))
    hosts = [json.loads(file.read_text()) for file in files]
    assert [(host["name"], host["node_rank"], host["founder"]) for host in hosts] == [
        ("gpu1", 0, True),
        ("gpu2", 1, False),
        ("gpu3", 2, False),
    ]
    assert len({host["endpoint"] for host in hosts}) == 1
    assert len({host["host"] for host in hosts}) == 3
    assert hosts[0]["endpoint"] == f"{hosts[0]['address']}:{hosts[0]['port']}"
    keys = {file.with_name("key").read_text() for file in files}
    assert len(keys) == 1
    assert len({file.parent.name for file in files}) == 1
    # Copied once, by its digest.
    assert len(list(tmp_path.glob("gpu*/.cache/penstock/agents/*/penstock-agent"))) == 3


def test_equal_lines_of_more_than_eight_hosts_are_folded_and_none_is_lost(tmp_path: Path) -> None:
    """Method: ranks of nine hosts say the same; however many lines that makes, each rank is in one of them."""
    code, out, err = Started(tmp_path, "--hosts", "gpu[1-9]", "--ranks", "1", "--", "true").end()
    assert code == 0, err
    lines = [line.removeprefix("[").split("] ") for line in out.splitlines()]
    assert {text for _, text in lines} == {"here"}
    assert sorted(rank for ranks, _ in lines for rank in numbers_in(ranks)) == list(range(9))


def test_one_refused_login_is_named_in_its_own_words_and_nothing_is_left(tmp_path: Path) -> None:
    code, out, err = Started(tmp_path, "--hosts", "gpu1,denied7,gpu2", "--", "true", "wait").end()
    assert code == 1
    assert out == ""
    assert "3 asked" in err
    assert "denied7: Permission denied (publickey)" in err
    assert not list(tmp_path.glob("*/local/jobs/*"))
    assert not list((tmp_path / "launcher/jobs").iterdir())


def test_hosts_with_other_versions_are_refused_unless_mixed() -> None:
    spec = JobSpec(roles=[Role(command=["true"])], directory=Path("/"))
    asked = SshHosts([NamedHost("a"), NamedHost("b", rack="r2")], 0, HostSizes(2))
    greetings = [
        HostGreeting("a", "10.0.0.1", 4001, versions={"python": "3.11.2"}),
        HostGreeting("b", "10.0.0.2", 4002, versions={"python": "3.12.1"}),
    ]
    options = host_options(read([], {}).values)
    with pytest.raises(JoinInvalid, match=r"b has python 3\.12\.1, and a has 3\.11\.2"):
        JobBundles(spec, "x-1", asked, options, NOBODY).first(greetings)
    first, second = JobBundles(spec, "x-1", asked, replace(options, mixed=True), NOBODY).first(greetings)
    assert first.secret == second.secret
    assert (second.host.endpoint, second.host.rack, second.host.expected) == (
        "10.0.0.1:4001",
        "r2",
        ["a", "b"],
    )
    with pytest.raises(JoinInvalid, match="no common network: a"):
        JobBundles(spec, "x-1", asked, options, NOBODY).first(
            [replace(greetings[0], address="127.0.0.1"), greetings[1]]
        )


def test_an_unknown_host_is_named(tmp_path: Path) -> None:
    code, _, err = Started(tmp_path, "--hosts", "unknown1", "--", "true").end()
    assert code == 1
    assert (
        "1 asked · 0 here · unknown1: Could not resolve hostname unknown1: Name or service not known" in err
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_reaches_every_host(tmp_path: Path, number: signal.Signals) -> None:
    started = Started(tmp_path, "--hosts", "a,b", "--", "true", "wait")
    started.pids(2)
    started.process.send_signal(number)
    code, out, err = started.end()
    assert code == 0, err
    assert sorted(line for line in out.splitlines() if "signal" in line) == [
        f"[0] signal {int(number)}",
        f"[1] signal {int(number)}",
    ]


def test_a_killed_launcher_ends_every_host(tmp_path: Path) -> None:
    """Goal: kill -9 of the launcher leaves nothing. Method: the process beside it says goodbye, and hosts kill what they started."""
    started = Started(tmp_path, "--hosts", "a,b,c", "--", "true", "wait")
    pids = started.pids(3)
    started.process.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "nothing runs any more")
    started.process.communicate(timeout=60)


def test_a_broken_connection_is_forgiven_for_a_while(tmp_path: Path) -> None:
    """Method: kill the receiver's parent connection by closing its input without a goodbye; after --detach-after the job is stopped."""
    environment, agent = stand_in(tmp_path)
    copy = tmp_path / hashlib.sha256(agent.read_bytes()).hexdigest() / "penstock-agent"
    copy.parent.mkdir()
    shutil.copy(agent, copy)
    environment |= {"PENSTOCK_LOCAL": str(tmp_path / "x/local")}
    receiver = subprocess.Popen(
        [sys.executable, "-m", "penstock.process.hosts.bundle", str(copy)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert receiver.stdin is not None
    assert receiver.stdout is not None
    assert json.loads(receiver.stdout.readline())["penstock"] == "here"
    bundle = Bundle(
        description={
            "id": "job-1",
            "directory": str(tmp_path),
            "roles": [{"command": ["wait"], "environment": {}}],
        },
        host=HostFile(
            name="x", address="127.0.0.1", endpoint="127.0.0.1:1", founder=True, nnodes=1, node_rank=0
        ),
        secret="ab" * 32,
        detach_after_s=2.0,
    )
    receiver.stdin.write(json.dumps(bundle.to_json()).encode() + b"\n")
    receiver.stdin.flush()
    assert receiver.stdout.readline() == b"[0] here\n"
    receiver.stdin.close()
    assert receiver.stdout.readline() == b"[0] signal 15\n"
    assert receiver.wait(timeout=60) == 0
    receiver.stdout.close()


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"bundle": {"version": 9}},
        {"bundle": {"version": 1, "description": {}, "host": {}, "secret": "", "detach_after_s": 1}},
        {
            "bundle": {
                "version": 1,
                "description": {"id": "x"},
                "host": [],
                "secret": "zz",
                "detach_after_s": 1,
            }
        },
    ],
)
def test_what_is_no_bundle_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(BundleInvalid):
        Bundle.of(message)


def test_a_copy_of_the_agent_that_does_not_run_is_named_with_the_words_of_the_system(tmp_path: Path) -> None:
    """Goal: an old system says what it lacks. Method: what a loader says of a newer glibc, said by a copy with the right digest."""
    said = "/lib64/libc.so.6: version `GLIBC_2.38' not found (required by penstock-agent)"
    text = f'#!/bin/sh\necho "{said}" >&2\nexit 1\n'.replace("`", "\\`")
    folder = tmp_path / hashlib.sha256(text.encode()).hexdigest()
    folder.mkdir()
    agent = folder / "penstock-agent"
    agent.write_text(text)
    agent.chmod(0o755)
    with pytest.raises(AgentUnusable) as caught:
        check_agent(agent)
    assert said in str(caught.value)
    assert "glibc 2.28" in (caught.value.hint or "")
    agent.write_text("#!/bin/sh\n")
    with pytest.raises(BundleInvalid, match="is damaged"):
        check_agent(agent)
    assert not agent.exists()


def test_the_last_hosts_are_in_reserve() -> None:
    spec = JobSpec(roles=[Role(command=["true"])], directory=Path("/"))
    asked = SshHosts([NamedHost(name) for name in "abc"], 0, host_sizes("1:2"))
    greetings = [HostGreeting(name, f"10.0.0.{n}", 4000 + n) for n, name in enumerate("abc", 1)]
    bundles = JobBundles(spec, "x-1", asked, host_options(read([], {}).values), NOBODY).first(greetings)
    assert [(bundle.host.node_rank, bundle.host.spare) for bundle in bundles] == [
        (0, False),
        (1, False),
        (None, True),
    ]
    assert {bundle.host.nnodes for bundle in bundles} == {2}
    assert bundles[2].host.sizes == [1, 2]
