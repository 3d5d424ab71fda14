"""Coming from NVRx: a rank's heartbeats become pulses, and a rank that dies costs one restart of the job."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.process import pulse

STEPS = 20


def train(folder: Path) -> None:
    """A loop that counts; in its first life rank 1 dies in the middle."""
    rank, life = int(os.environ["RANK"]), int(os.environ["PENSTOCK_INCARNATION"])
    for step in range(STEPS):
        # There: client.send_heartbeat(). What comes back says whether to save or to leave.
        notice = pulse(step)
        if notice is not None and notice.kind == "stop":
            return
        if (rank, life, step) == (1, 0, STEPS // 2):
            os._exit(1)
    (folder / f"rank-{rank}").write_text(f"life {life}")


def main(folder: Path) -> None:
    """There: ft_launcher --nproc-per-node 2 --max-restarts 3."""
    launcher = ["penstock", "run", "--nproc-per-node", "2", "--max-restarts", "3", "--backoff", "0s"]
    subprocess.run([*launcher, __file__, str(folder)], check=True)
    ends = {file.name: file.read_text() for file in sorted(folder.iterdir())}
    assert ends == {"rank-0": "life 1", "rank-1": "life 1"}
    print(ends)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory))
