"""What a command line means: which program runs, how many ranks, where they meet, whose output is shown.

Whoever comes from torchrun may leave their command line as it is. What torchrun offers for one machine is understood here; what is not
needed is accepted and said so, and what cannot be done is refused with what to do instead.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.errors.root import UsageError
from penstock.process.job.spec import RANKS_MAX, Role

STREAMS = ("stdout", "stderr")
#: Listing accelerators starts a program of the vendor, which takes seconds on a machine with trouble.
LISTING_PATIENCE_S = 20.0


def executable(
    words: Sequence[str],
    *,
    module: bool = False,
    direct: bool = False,
    python: str | None = None,
    directory: Path | None = None,
    is_here: bool = True,
) -> list[str]:
    """The command as it will be executed, or a sentence about why it cannot be.

    A module and a file that ends in ``.py`` are run by the Python that runs us; ``direct`` is torchrun's ``--no-python``. Relative paths
    are looked for where the command will run, if that ``is_here``.
    """
    if not words:
        return []
    first = words[0]
    there = os.path.join(directory or "", first)
    interpreter = python or sys.executable
    if module:
        if direct:
            raise UsageError("--module and --no-python exclude each other")
        return [interpreter, "-m", *words]
    if first.endswith(".py") and not direct:
        if is_here and not os.path.exists(there):
            raise UsageError(
                f"there is no file {first}", hint=None if directory is None else f"looked in {directory}"
            )
        return [interpreter, *words]
    if not is_here or _program(there if os.path.dirname(first) else first):
        return list(words)
    if os.path.isfile(there):
        raise UsageError(
            f"{first} is not executable",
            hint=f"`chmod +x {first}`, or say who runs it: `-- python {first}`",
        )
    raise UsageError(f"no program {first!r} was found", hint="give its path, or install it")


def _program(name: str) -> str | None:
    """Where a program is; as ``shutil.which``, whose module is slow to load."""
    places = [name] if os.path.dirname(name) else [os.path.join(place, name) for place in os.get_exec_path()]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def rank_count(text: str, *, visible: str | None = None) -> int:
    """A number, or one rank for each accelerator (``gpu``), each processor (``cpu``), or whichever there is (``auto``).

    ``visible`` is the caller's CUDA_VISIBLE_DEVICES.
    """
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if text == "cpu":
        return min(_processors(), RANKS_MAX)
    if text == "gpu":
        count = accelerators(visible)
        if count == 0:
            raise UsageError(
                "there is no GPU here", hint="`--ranks N` takes any number; `auto` falls back to processors"
            )
        return count
    if text == "auto":
        return accelerators(visible) or min(_processors(), RANKS_MAX)
    raise UsageError(f"--ranks must be a number, `auto`, `gpu` or `cpu`, got {text}")


def accelerators(visible: str | None = None) -> int:
    """How many GPUs a process would see that is started with this CUDA_VISIBLE_DEVICES."""
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() not in ("", "-1")])
    program = _program("nvidia-smi")
    if program is None:
        return 0
    import subprocess

    try:
        done = subprocess.run(
            [program, "--list-gpus"], capture_output=True, text=True, timeout=LISTING_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def warmed(role: Role, mode: str, preload: Sequence[str], *, directory: Path) -> Role:
    """The role with what its ranks are forked from, where that is wished for and possible; else with the reason."""
    if role.stdin is not None:
        return replace(role, zygote=None, zygote_why=f"rank {role.stdin} reads standard input")
    from penstock.process.job.fork_choice import Surroundings, warmth

    around = Surroundings(
        directory=role.directory or directory,
        environment=role.environment,
        ranks=role.ranks,
        # Of preemption and lost hosts nobody knows beforehand; a warm Python is not kept for them alone.
        restarts=any(
            lives for cause, lives in vars(role.policy.budget).items() if cause not in {"preemption", "host"}
        ),
    )
    warm = warmth(role.command, around, mode=mode, preload=preload)
    return replace(role, zygote=warm.zygote, zygote_why=warm.why)


def check_one_machine(machines: str, machine_rank: str) -> None:
    """``--nnodes`` and ``--node-rank`` of a job that lives on this machine."""
    if not re.fullmatch(r"\d+(:\d+)?", machines):
        raise UsageError(f"--nnodes must be a number or MIN:MAX, got {machines}")
    least, _, most = machines.partition(":")
    if int(least) != 1 or int(most or least) != 1:
        raise UsageError(
            f"--nnodes {machines} and a job of one machine exclude each other",
            hint="leave --standalone out, or --nnodes",
        )
    if machine_rank != "0":
        raise UsageError(f"--node-rank must be 0, because there is one machine, got {machine_rank}")


def meeting_port(endpoint: str, *, option: str = "--rdzv-endpoint") -> int | None:
    """The port of ``HOST:PORT`` where the host is this machine; none for port 0 or no port, which means any free one."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:]+\]|[^:\[\]]*)(?::(\d+))?", endpoint)
    if not match:
        raise UsageError(f"{option} must be HOST:PORT, as in localhost:29500, got {endpoint}")
    check_local(match[1].strip("[]"), option=option)
    return int(match[2] or 0) or None


def check_local(host: str, *, option: str) -> None:
    """Ranks of one machine meet on it."""
    me = os.uname().nodename
    ours = {"", "localhost", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1", "0.0.0.0", me}  # noqa: S104 - compared, not bound
    if host in ours or host.partition(".")[0] == me:
        return
    raise UsageError(
        f"{option} {host}: ranks of one machine meet on this machine",
        hint="leave it out, or give localhost with a port",
    )


def hidden(ranks: int, *, redirects: str = "0", tee: str = "0", only: str = "") -> dict[str, list[int]]:
    """Ranks that torchrun's --redirects, --tee and --local-ranks-filter keep from the terminal, by stream.

    Files have all output of all ranks, whatever is shown.
    """
    chosen = set(range(ranks)) if not only else rank_set(only, ranks, option="--local-ranks-filter")
    away, kept = _streams("--redirects", redirects, ranks), _streams("--tee", tee, ranks)
    ranks_by_stream = {
        stream: [
            rank for rank in range(ranks) if rank not in chosen or (away[rank] & ~kept[rank]) >> place & 1
        ]
        for place, stream in enumerate(STREAMS)
    }
    return {stream: those for stream, those in ranks_by_stream.items() if those}


def rank_set(text: str, ranks: int, *, option: str) -> set[int]:
    """``0,3,5-7`` as a set, within the ranks that there are."""
    members: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or int(match[2] or match[1]) >= ranks:
            raise UsageError(f"{option} must name ranks from 0 to {ranks - 1}, as in 0,2 or 0-3, got {text}")
        members.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return members


def _streams(option: str, text: str, ranks: int) -> list[int]:
    """Of each rank, 1 for stdout and 2 for stderr, added up; from ``3`` or ``0:1,1:2``."""
    if re.fullmatch(r"[0-3]", text):
        return [int(text)] * ranks
    if not re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text):
        raise UsageError(
            f"{option} must be 0 to 3 for all ranks, or RANK:N,RANK:N, got {text}",
            hint="1 stdout, 2 stderr, 3 both",
        )
    pairs = [pair.split(":") for pair in text.split(",")]
    chosen = {int(rank): int(streams) for rank, streams in pairs}
    if max(chosen) >= ranks:
        raise UsageError(f"{option} must name ranks from 0 to {ranks - 1}, got {text}")
    return [chosen.get(rank, 0) for rank in range(ranks)]
