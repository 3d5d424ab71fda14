"""``penstock stacks``: where every rank is right now."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from penstock.cli.job.choice import job_called
from penstock.cli.output import Json, command_app, print_json, print_text, say
from penstock.cli.questions.stacks_of_hosts import stacks_of_hosts
from penstock.errors import StacksForbidden, UsageError
from penstock.process.job.catalogue import ELSEWHERE, FINAL
from penstock.process.job.control import elsewhere
from penstock.process.stacks import Collected, collect, collect_by_agent, shown
from penstock.process.stacks.collection import Asked
from penstock.process.stacks.groups import ranks_in
from penstock.process.stacks.py_spy import FORBIDDEN, spy_path
from penstock.report.quantities import number_of

#: On many hosts: a Python has to be started on each.
PATIENCE_S = 5.0
NATIVE_PATIENCE_S = 30.0
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")

app = command_app(
    "stacks",
    "Show the stacks of all ranks at once, equal ones together.",
    examples=(
        "  penstock stacks train-3f2a\n"
        "  penstock stacks train-3f2a --ranks 0-3,8 --native\n"
        "  penstock stacks train-3f2a --json | jq '.groups[].workers'"
    ),
)


@app.default
def stacks(
    job: str,
    *,
    rank: Annotated[
        str | None, Parameter(name=["--rank", "--ranks"], help="Only these ranks, as in 0-3,8.")
    ] = None,
    native: Annotated[
        bool, Parameter(negative=(), help="Frames of native code too, of one rank of each group.")
    ] = False,
    native_all: Annotated[
        bool, Parameter(negative=(), help="Frames of native code too, of every rank; slow.")
    ] = False,
    deadline: Annotated[float, Parameter(help="Seconds for reading all stacks of one host.")] = 30.0,
    patience: Annotated[
        float | None,
        Parameter(help="Seconds that all of it may take, on many hosts (default: 5, with native frames 30)."),
    ] = None,
    json: Json = False,
) -> int:
    """The smallest group comes first, because most ranks wait for the one that does not come. Of a job of many hosts all are asked.

    Each process is stopped for the milliseconds that reading takes. Ranks that are no Python show what the kernel says, and with
    --native what gdb finds, if it is installed.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    handle = job_called(job)
    if handle.phase() == ELSEWHERE:
        raise elsewhere(handle, "stacks")
    if handle.phase() in FINAL:
        raise UsageError(f"job {handle.id} is over", hint=f"`penstock logs {handle.id}` still works")
    if not 0 < deadline <= 3600:
        raise UsageError(f"--deadline must be seconds up to an hour, got {deadline}")
    ranks = None if rank is None else _ranks(rank)
    depth = "all" if native_all else "one" if native else "no"
    if handle.host_file() is not None:
        usual_s = PATIENCE_S if depth == "no" else NATIVE_PATIENCE_S
        patience_s = usual_s if patience is None else patience
        return stacks_of_hosts(handle, ranks=ranks, native=depth, patience_s=patience_s, json=json)
    spy_path()
    wish = Asked(ranks=ranks, native=depth, deadline_s=deadline)
    collected = collect(handle, wish)
    if _is_forbidden(collected):
        # Workers let the agent's children look into them, where the kernel lets nobody else.
        collected = collect_by_agent(handle, wish.ranks) or collected
    _check(collected)
    if json:
        print_json(msgspec.to_builtins(collected))
        return 0
    print_text(shown(collected))
    say(
        f"{number_of(len(collected.looks), 'worker')}, {number_of(len(collected.groups), 'group')}, {collected.took_s:.2f} s"
    )
    return 0


def _ranks(text: str) -> frozenset[int]:
    try:
        return frozenset(ranks_in(text))
    except ValueError as problem:
        raise UsageError(f"--rank must be as in 0-3,8, got {text}") from problem


def _is_forbidden(collected: Collected) -> bool:
    return bool(collected.looks) and all(FORBIDDEN in look.problem for look in collected.looks)


def _check(collected: Collected) -> None:
    """Nothing could be read because nothing may be: then an answer without stacks would hide the reason."""
    looks = collected.looks
    if _is_forbidden(collected):
        scope = PTRACE_SCOPE.read_text().strip() if PTRACE_SCOPE.exists() else ""
        raise StacksForbidden(job=collected.job, workers=len(looks), ptrace_scope=scope)
