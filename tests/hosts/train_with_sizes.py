"""A training script whose job loses hosts, goes on with fewer, and grows again because its ranks are asked to save and leave.

``python -m tests.hosts.train_with_sizes KIND STREAM OUT FOLDER``. In the first life rank 1 makes ``waits`` in the folder and stands still, so
that hosts can be lost there; in the second all wait for ``asked``, so that the notice comes in the middle of the run.
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

STEPS = 14
#: After a checkpoint and steps that are lost; and later, in the life with fewer hosts.
WAITS_AT, ASKED_AT = 7, 9
LIMIT_S = 90.0


@dataclass(frozen=True)
class Pauses(Faults):
    """Where ranks stand still."""

    folder: Path = Path()

    def act(self, run: ps.Run, step: int, loss: torch.Tensor) -> torch.Tensor:
        """At every step."""
        life = os.environ["PENSTOCK_INCARNATION"]
        (self.folder / f"world-{life}").write_text(os.environ["WORLD_SIZE"])
        if (life, step, run.rank) == ("0", WAITS_AT, 1):
            (self.folder / "waits").touch()
            _await(self.folder / "never")
        if (life, step) == ("1", ASKED_AT):
            (self.folder / "small").touch()
            _await(self.folder / "asked")
        return loss


def _await(path: Path) -> None:
    until = time.monotonic() + LIMIT_S
    while not path.exists() and time.monotonic() < until:
        threading.Event().wait(0.05)


def main(kind: str, stream: str, out: str, folder: str) -> None:
    """The program."""
    policy = Policy(save_every=SAVE_EVERY, stop_at=STEPS, digest_every=1)
    with take_rank(Path(folder)):
        train(Stream(Path(stream)), Path(out), policy, wrap=WRAPS[kind], faults=Pauses(folder=Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
