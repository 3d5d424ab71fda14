"""A program whose first life is killed in the middle of a step: ``mortal.py STREAM OUT``."""

import os
import signal
import sys
import time
from pathlib import Path

import penstock as ps
from penstock.run import Policy
from penstock.state.ranks.clock import Clock
from tests.run.small import start
from tests.torch.stream import Stream

STEPS, SAVE_EVERY, KILLED_AT = 12, 4, 6
STEP_S = 0.02


def main(stream: str, out: str) -> None:
    place = Path(out)
    run = ps.Run(
        place,
        recipe=Stream(Path(stream)).recipe(),
        registry=Stream(Path(stream)).registry,
        policy=Policy(stop_at=STEPS, save_every=SAVE_EVERY),
        seed=3,
    )
    state = start()
    dead = place.with_suffix(".dead")
    for step, _ in run.steps(state):
        Clock().pause(STEP_S)
        if step == KILLED_AT and not dead.exists():
            Clock().pause(10 * STEP_S)
            dead.write_text(str(time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
            os.kill(os.getpid(), signal.SIGKILL)
        run.report(loss=1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
