"""A process that records steps as fast as it can, to be killed: ``step_writer.py FOLDER PROGRESS``.

After every step it puts the number of steps that are over into the file PROGRESS, which is mapped, so that a kill takes nothing of it.
"""

import mmap
import sys
from pathlib import Path

from penstock.observe.steps import StepRecorder


def main(folder: str, progress: str) -> None:
    recorder = StepRecorder(Path(folder), 3, 1)
    with Path(progress).open("r+b") as file, mmap.mmap(file.fileno(), 8) as over:
        for step in range(10_000_000):
            recorder.begin(step)
            with recorder.part("data"):
                sum(range(100))
            with recorder.part("user"):
                sum(range(1000))
            recorder.scalar(step, "loss", step / 7)
            recorder.end(step)
            over[:] = (step + 1).to_bytes(8, "little")


if __name__ == "__main__":
    main(*sys.argv[1:])
