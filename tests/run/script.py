"""A user's training script, started by ``penstock run`` or torchrun: DDP or FSDP2 over a small stream. In early lives a rank is killed at a step.

``script.py KIND STREAM OUT RANK:STEP,RANK:STEP…``: in life n the n-th rank is killed when it begins the n-th step.
"""

import os
import sys
from pathlib import Path


def main(kind: str, stream: str, out: str, kills: str) -> None:
    life, rank = int(os.environ.get("PENSTOCK_INCARNATION", "0")), os.environ["RANK"]
    plan = [part.split(":") for part in kills.split(",") if part]
    from penstock.events import points

    if life < len(plan) and plan[life][0] == rank:
        # Read from the variable when Penstock is imported, which may have been before this process was forked.
        points._plans.update(points._parse(f"run.step=kill@{plan[life][1]}"))
    from penstock.run import Policy
    from tests.run.programs import SAVE_EVERY, WRAPS, train
    from tests.torch.stream import Stream

    policy = Policy(save_every=SAVE_EVERY, stop_at=12, digest_every=1)
    train(Stream(Path(stream)), Path(out), policy, wrap=WRAPS[kind])


if __name__ == "__main__":
    main(*sys.argv[1:])
