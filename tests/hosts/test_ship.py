"""`--ship`: every host runs its ranks in its own copy of a directory that one host had, sent down the tree."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import PATIENCE_S, JobOfHosts, job_of_hosts, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
HOSTS = 4
#: Says what it sees of its copy, and changes it.
PROGRAM = """
import json, os, pathlib, sys
here = pathlib.Path.cwd()
seen = {
    "place": str(here), "large": sum((here / "../large").read_bytes()), "mode": oct(os.stat("../tool").st_mode & 0o777),
    "link": os.readlink("link"), "ignored": (here / "../model.pt").exists(), "host": os.uname().nodename,
}
(here / "written").write_text("only here")
out = pathlib.Path(sys.argv[1]) / f"seen-{os.environ['RANK']}-{sys.argv[2]}"
(out.parent / (out.name + ".new")).write_text(json.dumps(seen))
(out.parent / (out.name + ".new")).rename(out)
"""


def _work(job: JobOfHosts, index: int) -> Path:
    return Path(f"/proc/{job.host(index).inner}/root/tmp/mine")


def _run(job: JobOfHosts, name: str) -> dict[int, dict[str, object]]:
    """Start it where only the first host has the directory; what each rank saw."""
    for index in range(HOSTS):
        command = job.words(index, program=["train.py", str(job.folder), name])
        command[command.index("run") + 1 : command.index("run") + 1] = [
            "--ship",
            "/tmp/mine",
            "--rdzv-id",
            name,
        ]
        place = "/tmp/mine/src" if index == 0 else "/tmp"
        # Whoever starts a job stands somewhere, and for the first host that is in the directory.
        words = ["sh", "-c", 'cd "$0" && exec "$@"', place, *command]
        job.launchers[index] = job.host(index).start(
            words, output=job.folder / f"output-{index}", variables=job.variables()
        )
    seen = [job.folder / f"seen-{rank}-{name}" for rank in range(HOSTS)]
    until(lambda: all(path.exists() for path in seen), job.account, 2 * PATIENCE_S)
    assert job.codes() == [0] * HOSTS, job.account()
    return {rank: json.loads(path.read_text()) for rank, path in enumerate(seen)}


def test_every_host_runs_in_its_own_copy_and_a_second_start_sends_what_changed(tmp_path: Path) -> None:
    """Method: a tree of depth 2. Only the first host has the directory. The second start has one small file more."""
    with job_of_hosts(tmp_path, HOSTS, options=("--lease", "4s", "--fanout", "2")) as job:
        mine = _work(job, 0)
        (mine / "src").mkdir(parents=True)
        (mine / "src" / "train.py").write_text(PROGRAM)
        (mine / "src" / "link").symlink_to("../tool")
        (mine / "large").write_bytes(os.urandom(20 << 20))
        (mine / "tool").write_text("#!/bin/sh\n")
        (mine / "tool").chmod(0o755)
        large = sum((mine / "large").read_bytes())
        first = _run(job, "first")
        for rank, seen in first.items():
            assert str(seen["place"]).endswith("/jobs/first-" + str(seen["place"]).split("/jobs/first-")[1])
            assert Path(str(seen["place"])).parts[-2:] == ("work", "src")
            about = {name: seen[name] for name in ("large", "mode", "link", "ignored", "host")}
            host = job.host(rank).name
            assert about == {
                "large": large,
                "mode": "0o755",
                "link": "../tool",
                "ignored": False,
                "host": host,
            }
        assert not (mine / "src" / "written").exists()

        (mine / "new").write_text("more")
        before = [_received(job, index) for index in range(1, HOSTS)]
        second = _run(job, "second")
        assert {seen["large"] for seen in second.values()} == {large}
        after = [_received(job, index) for index in range(1, HOSTS)]
        assert max(b - a for a, b in zip(before, after, strict=True)) < 10 << 20


def _received(job: JobOfHosts, index: int) -> int:
    """Bytes that came to a host."""
    return int(job.host(index).run("cat", "/sys/class/net/eth0/statistics/rx_bytes").stdout)


def test_what_cannot_be_sent_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 1, options=("--lease", "4s")) as job:
        mine = _work(job, 0)
        mine.mkdir()
        (mine / "out").symlink_to("/etc/passwd")
        words = ["sh", "-c", 'cd /tmp/mine && exec "$0" "$@"', *job.words(0, nnodes=2)]
        words[words.index("run") + 1 : words.index("run") + 1] = ["--ship", "."]
        done = job.host(0).run(*words, variables=job.variables())
        assert done.returncode == 2, done.stderr
        assert "out is a link that leads out, to /etc/passwd" in done.stderr
        elsewhere = ["sh", "-c", 'cd /tmp && exec "$0" "$@"', *words[3:]]
        elsewhere[elsewhere.index("--ship") + 1] = "/tmp/mine"
        done = job.host(0).run(*elsewhere, variables=job.variables())
        assert "ranks would run in /tmp, which is not in it" in done.stderr
        job.assert_nothing_left(0)
