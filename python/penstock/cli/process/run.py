"""``penstock run``: a gang of ranks, supervised."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.process.home import home
from penstock.cli.process.log_options import LogOptions
from penstock.errors import UsageError
from penstock.process.launching import Launch, Restarts, agent_path, prepare

app = command_app(
    "run",
    "Start a gang of ranks, keep them together, restart them, and leave nothing behind.",
    examples=(
        "  penstock run --ranks 8 -- python train.py --lr 3e-4\n"
        "  penstock run --ranks 8 --restarts 3 --detach -- ./train.sh\n"
        "  penstock run --nproc-per-node 4 -m -- my.package.train"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Gang:
    """What makes the gang; with torchrun's names for what torchrun has."""

    ranks: Annotated[
        int, Parameter(name=["--ranks", "--nproc-per-node"], help="How many processes run the command.")
    ] = 1
    restarts: Annotated[
        int,
        Parameter(name=["--restarts", "--max-restarts"], help="How often a failed gang is started again."),
    ] = 0
    same_failure: Annotated[
        int, Parameter(help="Give up when the same failure comes so often in a row; 0 never does.")
    ] = 2
    grace: Annotated[float, Parameter(help="Seconds from SIGTERM to SIGKILL when the job is stopped.")] = 10.0
    hang: Annotated[
        float,
        Parameter(
            help="A rank that pulses hangs after ten times its usual step, but not within so many seconds; 0: it never does."
        ),
    ] = 10.0
    silence: Annotated[
        float,
        Parameter(
            help="A rank that does not pulse hangs when it writes nothing for so many seconds; 0: it never does."
        ),
    ] = 0.0
    master_port: Annotated[int | None, Parameter(help="MASTER_PORT of the ranks (default: a free one).")] = (
        None
    )
    cgroup: Annotated[bool, Parameter(help="A control group for each rank, where that is allowed.")] = True
    zygote: Annotated[str, Parameter(help="Fork ranks from a warm Python: `auto`, `always` or `never`.")] = (
        "auto"
    )
    preload: Annotated[
        str, Parameter(help="Modules that the warm Python imports (default: what the script seems to need).")
    ] = ""
    nnodes: Annotated[str, Parameter(help="Machines; only 1 is known yet.")] = "1"
    standalone: Annotated[bool, Parameter(negative=(), help="As in torchrun; always so.")] = False


@app.default
def run(
    *command: Annotated[
        str, Parameter(help="Program and arguments, after `--`. A .py file is run by this Python.")
    ],
    gang: Annotated[Gang | None, Parameter(name="*")] = None,
    logs: Annotated[LogOptions | None, Parameter(name="*")] = None,
    module: Annotated[
        bool, Parameter(name=["--module", "-m"], negative=(), help="The command is a Python module.")
    ] = False,
    name: Annotated[
        str | None, Parameter(help="Beginning of the job's name (default: the script's).")
    ] = None,
    detach: Annotated[
        bool, Parameter(negative=(), help="Return at once; the job lives until it ends.")
    ] = False,
    json: Json = False,
) -> int:
    """Ranks find RANK, WORLD_SIZE, MASTER_ADDR and the other variables of torchrun in their environment.

    The exit code is that of the rank that failed first. Ctrl-C stops orderly, a second one at once.
    """
    gang = gang or Gang()
    if json and not detach:
        raise UsageError("--json goes with --detach; in the foreground stdout belongs to the ranks")
    if gang.nnodes not in ("1", "1:1"):
        raise UsageError(f"--nnodes {gang.nnodes}: only one machine is known yet")
    launch = Launch(
        command=_whole(list(command), module=module),
        ranks=gang.ranks,
        name=name or (command[0].rpartition(".")[2] if module and command else None),
        detached=detach,
        colour=not detach and sys.stdout.isatty() and "NO_COLOR" not in os.environ,
        master_port=gang.master_port,
        cgroup=gang.cgroup,
        output=(logs or LogOptions()).to_output(),
        restarts=Restarts(
            most=gang.restarts,
            same_failure_max=gang.same_failure,
            stop_grace_s=gang.grace,
            hang_s=gang.hang,
            silence_s=gang.silence,
        ),
        zygote=gang.zygote,
        preload=[name.strip() for name in gang.preload.split(",") if name.strip()],
    )
    job = prepare(home(), launch)
    words = [str(agent_path()), "launch", str(job.directory)]
    if not detach:
        sys.stdout.flush()
        # The launcher takes this process over: who kills it, by its number or by Ctrl-C, ends the job.
        os.execv(words[0], words)  # noqa: S606 - a shell would stand between the person and the launcher
    code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
    if code == 0 and json:
        print_json({"job": job.id, "directory": str(job.directory)})
    elif code == 0:
        print(job.id)
        say(f"hint: `penstock logs -f {job.id}` shows its output, `penstock stop {job.id}` ends it")
    return code


def _whole(command: list[str], *, module: bool) -> list[str]:
    """The command as it will be executed, or a sentence about why it cannot be."""
    if not command:
        return command
    if module:
        return [sys.executable, "-m", *command]
    if command[0].endswith(".py"):
        if not os.path.exists(command[0]):
            raise UsageError(f"there is no file {command[0]}")
        return [sys.executable, *command]
    if shutil.which(command[0]) is None:
        raise UsageError(f"there is no program {command[0]!r}", hint="give its path, or install it")
    return command
