"""A rank that says something and then waits to be lost, to fail, or to end well.

``python failing_program.py FOLDER``: on standard error it says who it is; ``fail-RANK`` in the folder makes it raise, ``finish`` ends it well.
"""

import os
import sys
import threading
import time
from pathlib import Path

LOOK_S = 0.02
LIMIT_S = 120.0


def main(folder: Path) -> None:
    """The program."""
    from penstock.process import pulse

    rank, life = os.environ["RANK"], os.environ["PENSTOCK_INCARNATION"]
    print(f"rank {rank} of life {life} holds token={'hunter2-' * 3}{rank}", file=sys.stderr, flush=True)
    until = time.monotonic() + LIMIT_S
    step = 0
    while time.monotonic() < until and not (folder / "finish").exists():
        if (folder / f"fail-{rank}").exists():
            raise ValueError(f"rank {rank} found a fault")
        step += 1
        pulse(step)
        (folder / f"steps-{rank}-{life}").write_text(str(step))
        threading.Event().wait(LOOK_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
