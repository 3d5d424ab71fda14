"""A training script over several hosts that waits in the middle of its first life, so that a host can be lost there.

``python -m tests.hosts.train_on_hosts STREAM OUT MARK``: rank 1 makes the file when it is at the step; without a name nobody waits.
Each rank holds a lock beside OUT.
"""

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import penstock as ps
from penstock.run import Policy
from tests.hosts.rank_lock import take_rank
from tests.run.programs import SAVE_EVERY, WRAPS, Faults, train
from tests.torch.stream import Stream

STEPS = 12
#: After a checkpoint and steps that are lost.
WAITS_AT = 8
LIMIT_S = 60.0


@dataclass(frozen=True)
class Pause(Faults):
    """A rank that says where it is and goes no further."""

    mark: str = ""

    def act(self, run: ps.Run, step: int, loss: torch.Tensor) -> torch.Tensor:
        """At every step."""
        if self.mark and step == WAITS_AT and run.rank == 1 and os.environ["PENSTOCK_INCARNATION"] == "0":
            Path(self.mark).touch()
            until = time.monotonic() + LIMIT_S
            while time.monotonic() < until:
                threading.Event().wait(0.05)
        return loss


def main(stream: str, out: str, mark: str = "") -> None:
    """The program."""
    policy = Policy(save_every=SAVE_EVERY, stop_at=STEPS, digest_every=1)
    with take_rank(Path(out).parent):
        train(Stream(Path(stream)), Path(out), policy, wrap=WRAPS["ddp"], faults=Pause(mark=mark))


if __name__ == "__main__":
    main(*sys.argv[1:])
