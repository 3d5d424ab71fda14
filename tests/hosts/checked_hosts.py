"""Hosts made of namespaces that are checked: each is another machine, as far as anybody can tell."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.hosts.job_of_hosts import PENSTOCK, PORT, JobOfHosts, until
from tests.hosts.network_namespace import NamespaceHost

#: A check in tests: no product, because torch takes longer to load than all the rest.
QUICK = ("--device", "none", "--for", "20s")
GROUPS = Path("/sys/fs/cgroup/cpu")
#: Of one processor, for a slow host.
PERCENT, PERIOD_US = 4, 100_000


def make_machine(host: NamespaceHost, number: int) -> None:
    """Give it an id of its own."""
    digits = f"{number:032x}".replace("0", "a")[:31] + "b"
    _bind(host, "/etc/machine-id", f"{number:08x}{digits[8:]}\n")


def _bind(host: NamespaceHost, path: str, text: str) -> None:
    """Another content of a file on this host alone."""
    kept = f"/tmp/bound{path.replace('/', '-')}"
    # Not every system has it; a file of no bytes is as good as none.
    script = f'[ -e {path} ] || : > {path}; printf %s "$1" > {kept} && mount --bind {kept} {path}'
    done = host.run("sh", "-c", script, "sh", text)
    assert done.returncode == 0, done.stderr


def rename(host: NamespaceHost, name: str) -> None:
    """Call the machine something else."""
    done = host.run("hostname", name)
    assert done.returncode == 0, done.stderr


def start_check(
    job: JobOfHosts, *hosts: int, json: bool = True, variables: Mapping[str, str] | None = None
) -> None:
    """Start a check on hosts, or on all, each by itself."""
    for index in hosts or range(job.hosts):
        words = ["--nnodes", str(job.hosts), "--rdzv-endpoint", f"{job.world[0].address}:{PORT}"]
        words += ["--node-rank", str(index), *QUICK, *(["--json"] if json else [])]
        job.launchers[index] = job.host(index).start(
            [*PENSTOCK, "hosts", "check", *words],
            output=job.folder / f"output-{index}",
            variables={**job.variables(), **(variables or {})},
        )


def deafen_to(host: NamespaceHost, others: Sequence[NamespaceHost]) -> None:
    """Drop what comes from others; what it says still reaches them."""
    addresses = ", ".join(other.address for other in others)
    for words in (
        ["add", "table", "inet", "deaf"],
        ["add", "chain", "inet", "deaf", "in", "{ type filter hook input priority 0; }"],
        ["add", "rule", "inet", "deaf", "in", "ip", "saddr", f"{{ {addresses} }}", "drop"],
    ):
        subprocess.run(["ip", "netns", "exec", host.name, "nft", *words], check=True, capture_output=True)


def has_quotas() -> bool:
    """Whether control groups of this machine limit processors."""
    return (GROUPS / "cpu.cfs_quota_us").exists()


@contextmanager
def slow_down(host: NamespaceHost) -> Iterator[None]:
    """Give what runs on a host, and what it starts, a small part of a processor."""
    if not has_quotas():
        yield
        return
    group = GROUPS / f"penstock-{host.name}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(PERIOD_US * PERCENT // 100))
    for _ in range(3):
        for pid in host.processes():
            with suppress(OSError):
                (group / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        (group / "cpu.cfs_quota_us").write_text("-1")
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (GROUPS / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()


def report_of(job: JobOfHosts, index: int = 0) -> dict[str, Any]:
    """What a check with ``--json`` said there."""
    found: list[dict[str, Any]] = []

    def come() -> bool:
        lines = [line for line in job.output(index).splitlines() if line.startswith('{"hosts"')]
        found[:] = [json.loads(line) for line in lines[-1:]]
        return bool(found)

    until(come, job.account, 60.0)
    return found[0]


def words_about(report: dict[str, Any], name: str) -> list[str]:
    """Checks in which a host is not well."""
    return sorted(
        {one["check"] for one in report["findings"] if one["host"] == name and one["state"] == "bad"}
    )


def other_torch(folder: Path) -> Path:
    """A place of packages that say that torch has another version."""
    packages = folder / "other"
    about = packages / "torch-1.99.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.99\n")
    return packages
