"""Done means of the stacks of a whole job: a planted hang of one rank of eight is the odd group, on one screen."""

import os
import shutil
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
ODD, RANKS = 5, 8
PROGRAM = Path(__file__).with_name("hang_on_hosts.py")
#: A terminal as small as there are.
SCREEN_LINES = 24


def _look(job: JobOfHosts, phase: int, place: str) -> tuple[list[str], str]:
    """What is shown once all are where they stay: asked for until the odd rank is there, and the others wait."""
    shown = ""

    def stands() -> bool:
        nonlocal shown
        done = job.penstock(0, "stacks", job.name(0), "--patience", "20")
        shown = done.stdout + done.stderr
        return done.returncode == 0 and place in shown and "elsewhere" in shown

    until(
        lambda: all((job.folder / f"hangs-{phase}-{rank}").exists() for rank in range(RANKS)), job.account, 60
    )
    until(stands, lambda: shown)
    return shown.splitlines(), shown


def test_a_planted_hang_is_the_odd_group_in_one_screen(tmp_path: Path) -> None:
    """Method: rank 5 waits at a lock, then in C code, then in another collective of gloo; seven wait for it on two hosts."""
    with job_of_hosts(tmp_path, 2, ranks=RANKS // 2, options=("--lease", "10s")) as job:
        for phase in range(2):
            os.mkfifo(tmp_path / f"fifo-{phase}")
        job.start(program=[str(PROGRAM), str(tmp_path), str(ODD)])
        odd_host = job.host(1).name
        cases = [
            (0, "wait_at_a_lock", "all_reduce"),
            (1, "wait_in_c", "all_reduce"),
            (2, "recv", "barrier"),
        ]
        for phase, place, collective in cases:
            lines, shown = _look(job, phase, place)
            assert lines[0].startswith(f"rank {ODD}  (1 of {RANKS}) on {odd_host}: "), shown
            assert any(place in line for line in lines[:SCREEN_LINES]), shown
            assert f"rank 0-4,6-7 wait in {collective} · elsewhere: rank {ODD}" in shown, shown
            assert len(lines) <= SCREEN_LINES, shown
            if phase < 2:
                with (tmp_path / f"fifo-{phase}").open("wb", buffering=0) as fifo:
                    fifo.write(b"!")
        job.penstock(0, "stop", job.name(0), "--force")
        job.penstock(1, "stop", job.name(1), "--force")
        job.codes()
