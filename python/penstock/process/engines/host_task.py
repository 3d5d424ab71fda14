"""The task of an engine on one host: it runs ``penstock run`` and, when nobody else is left to do so, gives the hosts back.

``python -m penstock.process.engines.host_task COMMAND…``. An allocation ends with its batch script. Where the host of that script was lost,
Slurm would keep all others until their time is up; so a task whose job has ended, and whose ``srun`` is gone with its host, cancels the rest.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

from penstock.errors.engines import EngineError
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.slurm import SlurmAllocator

#: Slurm signals every process of a task itself; forwarded, an interrupt would be the second one, which ends a job at once.
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: For srun's host to answer.
KNOCK_S = 3.0
KNOCKS = 3
#: Tasks do not all cancel at the same moment: one is enough.
APART_S, APART_MOST_S = 0.2, 5.0


def main(words: list[str]) -> int:
    """The program."""
    for number in HEARD:
        signal.signal(number, _heard)
    code = subprocess.Popen(words).wait()
    code = 128 - code if code < 0 else code
    directory = os.environ.get(files.VARIABLE)
    if directory and Path(directory).is_dir():
        _end(Path(directory), code)
    return code


def _heard(_number: int, _frame: FrameType | None) -> None:
    """Nothing: the command has it too. A handler is not inherited by it, as an ignored signal would be."""


def _end(directory: Path, code: int) -> None:
    node, number = os.environ.get("SLURM_NODEID", "0"), os.environ.get("SLURM_JOB_ID", "")
    (directory / files.CODES).mkdir(exist_ok=True)
    files.write(directory / files.CODES, node, str(code))
    if not number or not _is_alone():
        return
    threading.Event().wait(min(APART_S * int(node), APART_MOST_S))
    if files.end_code(directory) is not None:
        return
    files.write(directory, files.ENDED, json.dumps({"code": code}))
    files.note(directory, "ended", number=number, code=code, by=f"host {node}: the batch host is lost")
    try:
        SlurmAllocator().cancel(number)
    except EngineError as problem:
        sys.stderr.write(f"note: job {number} of Slurm is over and keeps its hosts: {problem}\n")


def _is_alone() -> bool:
    """Whether the srun that started us is gone with its host. One that was killed alone has a batch script that waits for us."""
    host = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
    port = os.environ.get("SLURM_SRUN_COMM_PORT", "")
    if not host or not port.isdigit():
        return False
    for _ in range(KNOCKS):
        try:
            socket.create_connection((host, int(port)), timeout=KNOCK_S).close()
        except ConnectionRefusedError:
            # The host answers, so its batch script may.
            return False
        except OSError:
            continue
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
