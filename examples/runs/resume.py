"""Kill a training run with SIGKILL at some step, start it again, and see that every bit is as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.run.journal import step_records as records

HERE = Path(__file__).parent
STEPS = 24


def train(run: str) -> "subprocess.Popen[bytes]":
    """The same command, whether it begins or goes on."""
    return subprocess.Popen(
        [sys.executable, HERE / "train_gpt.py", "--run", run, "--steps", str(STEPS), "--save-every", "5"]
    )


def main() -> None:
    """Once without a kill, once with."""
    assert train("runs/whole").wait() == 0

    killed = train("runs/killed")
    while len(records.read("runs/killed")) < 13:  # a step is on file as soon as it is over
        assert killed.poll() is None
        time.sleep(0.005)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    print("killed; starting again")
    assert train("runs/killed").wait() == 0

    whole, resumed = records.read("runs/whole"), records.read("runs/killed")
    assert list(whole) == list(resumed) == list(range(STEPS))
    for step in whole:
        one, other = whole[step].ranks[0], resumed[step].ranks[0]
        assert (one.batch, one.loss_bits, one.parameters) == (other.batch, other.loss_bits, other.parameters)
    lives = sorted({record.incarnation for record in resumed.values()})
    print(f"{STEPS} steps in lives {lives}: batches, losses and parameters are bit-equal")


if __name__ == "__main__":
    main()
