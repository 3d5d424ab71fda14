"""The process of a batch script: it starts a task on every host, outlives the command that did so, and writes down how the job ended.

``python -m penstock.process.engines.batch_task DIRECTORY``. Slurm takes the hosts back when a batch script ends. So this stays when ``srun``
is killed, whose tasks run on, until Slurm says that they are over.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from penstock.errors.engines import EngineRefused, EngineSilent
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.slurm import SlurmAllocator

#: srun forks its child when it has the hosts; without one it only ends its tasks with it, as it always does.
SHEPHERD_S, SHEPHERD_LOOK_S = 30.0, 0.05
#: Between looks at a step whose srun was killed.
LOOK_S = 2.0
#: A step that Slurm tells nothing of for so long is over for us.
SILENCE_S = 3600.0
#: What Slurm sends reaches the tasks as well; this waits for them.
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(words: list[str]) -> int:
    """The program."""
    directory = Path(words[0])
    plan = json.loads((directory / files.PLAN).read_text())
    for heard in HEARD:
        signal.signal(heard, _heard)
    number = os.environ.get("SLURM_JOB_ID", "")
    files.note(directory, "granted", number=number, hosts=os.environ.get("SLURM_JOB_NODELIST", ""))
    slurm = SlurmAllocator()
    environment = {**os.environ, files.VARIABLE: str(directory), **_end_of_time(slurm, number)}
    step = subprocess.Popen(plan["step"], env=environment, stdin=subprocess.DEVNULL)
    _end_shepherd(step)
    code = step.wait()
    if code == -signal.SIGKILL:
        sys.stderr.write(f"note: srun was killed; the tasks of job {number} run on\n")
        sys.stderr.flush()
        _outlast(slurm, number)
        code = _code_of_hosts(directory)
    code = 128 - code if code < 0 else code
    files.write(directory, files.ENDED, json.dumps({"code": code, "at": time.time()}))
    files.note(directory, "ended", number=number, code=code)
    return code


def _end_shepherd(step: subprocess.Popen[bytes]) -> None:
    """End the child of srun that ends all tasks when srun is killed: nothing of the job is to depend on a client of the engine."""
    until = time.monotonic() + SHEPHERD_S
    while step.poll() is None and time.monotonic() < until:
        for child in _children(step.pid):
            with suppress(OSError):
                if b"srun" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                    os.kill(child, signal.SIGKILL)
                    return
        time.sleep(SHEPHERD_LOOK_S)


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _heard(_number: int, _frame: FrameType | None) -> None:
    """Slurm tells the tasks itself; a handler that does nothing is not inherited by them, as an ignored signal would be."""


def _end_of_time(slurm: SlurmAllocator, number: str) -> dict[str, str]:
    """When Slurm will end the job, where it does not say so itself (before 23.02)."""
    if "SLURM_JOB_END_TIME" in os.environ:
        return {}
    try:
        text = slurm.end_of(number)
        return {"SLURM_JOB_END_TIME": str(int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))))}
    except (EngineSilent, EngineRefused, ValueError):
        return {}


def _outlast(slurm: SlurmAllocator, number: str) -> None:
    heard_s = time.monotonic()
    pause = threading.Event()
    while time.monotonic() - heard_s < SILENCE_S:
        pause.wait(LOOK_S)
        try:
            if not slurm.has_step(number, "0"):
                return
            heard_s = time.monotonic()
        except EngineSilent:
            continue


def _code_of_hosts(directory: Path) -> int:
    """What the hosts wrote: the job failed if one says so."""
    codes = [int(path.read_text() or 1) for path in directory.glob(f"{files.CODES}/*")]
    return max(codes, default=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
