"""Programs of others over two hosts: JAX, and a script that was written for torchrun (P2, H6)."""

import os
import re
import signal
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.hosts.job_of_hosts import PENSTOCK, JobOfHosts, job_of_hosts, until

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SCRIPT = Path(__file__).with_name("ddp_script.py")


def test_jax_sums_over_two_hosts_and_a_killed_rank_begins_again_with_all(tmp_path: Path) -> None:
    """Goal: item 7, JAX. Method: a psum on two hosts through the variables that ranks find; one rank is killed, and all sum again."""
    with job_of_hosts(tmp_path, 2) as job:
        job.path = (ROOT,)
        # JAX on CPUs gives gloo the host's own name, and has no option for an interface.
        for host in job.world.hosts:
            host.name_itself()
        job.start(program=["-m", "tests.hosts.jax_on_hosts", str(tmp_path)])

        def sums(life: int) -> list[str]:
            paths = [tmp_path / f"summed-{rank}-{life}" for rank in range(2)]
            return [path.read_text() for path in paths if path.exists()]

        until(lambda: len(sums(0)) == 2, job.account, 90.0)
        (rank,) = job.host(1).pids("tests.hosts.jax_on_hosts", "-m tests")
        os.kill(rank, signal.SIGKILL)
        assert job.codes(patience_s=90.0) == [0, 0], job.account()
        for life in (0, 1):
            assert len(set(sums(life))) == 1, sums(life)
            assert re.fullmatch(rf"11 of 2 processes at {job.host(0).address}:\d+", sums(life)[0])
        job.assert_nothing_left()


def _trained(job: JobOfHosts, command: list[str], snapshot: Path) -> list[str]:
    """What the script says when a command runs it on both hosts; the command's own words apart."""
    meeting = ["--master-addr", job.host(0).address, "--master-port", "29511"]
    outputs = [job.folder / f"{snapshot.stem}-{index}" for index in range(2)]
    # A host of tests has no name that gloo could look up.
    variables = {**job.variables(), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    for index, output in enumerate(outputs):
        hosts = ["--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(index)]
        words = [*command, *hosts, *meeting, str(SCRIPT), "3", str(snapshot)]
        job.launchers[index] = job.host(index).start(words, output=output, variables=variables)
    said = lambda: "".join(output.read_text() for output in outputs)  # noqa: E731
    assert job.codes(patience_s=120.0) == [0, 0], said()
    return sorted(re.findall(r"\[RANK \d\].*", said()))


def test_a_script_for_torchrun_says_the_same_with_one_word_changed(tmp_path: Path) -> None:
    """Goal: a script moves over as it is. Method: two hosts, the same options; once `torchrun` runs them, once `penstock run`."""
    with job_of_hosts(tmp_path, 2) as job:
        before = _trained(job, TORCHRUN, tmp_path / "torchrun.pt")
        after = _trained(job, [*PENSTOCK, "run"], tmp_path / "penstock.pt")
        assert len(before) == 4 * (3 + 1)
        assert after == before
        job.assert_nothing_left()
