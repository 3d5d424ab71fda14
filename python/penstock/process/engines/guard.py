"""A second process beside a launcher: when the launcher is killed, it gives the hosts back.

``python -m penstock.process.engines.guard LIFELINE DIRECTORY``. The launcher holds the other end of a pipe and writes a word into it when it
ends in order. The name of an allocation is known before the engine is asked, so a launcher killed in the middle of that leaves nothing either.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from penstock.errors.engines import EngineError
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.allocators import allocator_of

DONE = b"done"
#: A controller that does not answer is asked again, with growing waits, for about an hour.
TRIES, FIRST_WAIT_S, WAIT_MOST_S = 100, 1.0, 60.0
#: How often an allocation that is not known to exist is given back: as many seconds as a command of Slurm may take, and some.
IN_FLIGHT = 25


class Guard:
    """The launcher's end of the pipe."""

    def __init__(self, directory: Path) -> None:
        read_end, self._lifeline = os.pipe()
        words = [sys.executable, "-m", "penstock.process.engines.guard", str(read_end), str(directory)]
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[read_end],
            start_new_session=True,
        )
        os.close(read_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to be given back, or it is not to be."""
        os.write(self._lifeline, DONE)
        os.close(self._lifeline)


def main(words: list[str]) -> int:
    """The program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    lifeline, directory = int(words[0]), Path(words[1])
    last = b""
    while piece := os.read(lifeline, 64):
        last = piece
    if last.startswith(DONE):
        return 0
    engine, wait_s, pause = allocator_of(directory), FIRST_WAIT_S, threading.Event()
    files.note(directory, "released", by="the launcher was killed")
    # A question that the launcher had just asked may be answered after its death.
    again = 0 if files.read_allocation(directory) else IN_FLIGHT
    for _ in range(TRIES):
        try:
            engine.release_named(directory.name)
        except EngineError:
            pause.wait(wait_s)
            wait_s = min(2 * wait_s, WAIT_MOST_S)
            continue
        if not again:
            return 0
        again -= 1
        pause.wait(FIRST_WAIT_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
