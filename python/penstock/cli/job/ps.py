"""``penstock ps``: the processes of a job, as a tree."""

from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.job.choice import job_called
from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.job.catalogue import jobs as all_jobs
from penstock.process.sweep import sweep_lost
from penstock.process.watch.gpus import GpuUse, gpu_uses
from penstock.process.watch.snapshot import Row, rows
from penstock.report.quantities import duration, size

app = command_app(
    "ps",
    "Show the processes of jobs: roles, ranks and their descendants, with step, processor time and memory.",
    examples="  penstock ps\n  penstock ps train-3f2a --all\n  penstock ps train-3f2a --json | jq .pid",
)
#: Of a command that holds a whole program, such as `python -c`.
COMMAND_LETTERS_MAX = 200
STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "in kernel",
    "T": "stopped",
    "t": "traced",
    "I": "idles",
    "Z": "zombie",
}


@app.default
def ps(
    job: str | None = None,
    *,
    all_: Annotated[
        bool, Parameter(name="--all", negative=(), help="Keeper, agent, coordinator and zygote too.")
    ] = False,
    json: Json = False,
) -> int:
    """Without a job, all that run. Of a job that is over, how its ranks ended.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    sweep_lost(home(), tell=say)
    chosen = [job_called(job)] if job is not None else _running()
    gpus = gpu_uses()
    if json:
        for handle in chosen:
            for row in rows(handle, supervisors=all_, gpus=gpus):
                print_json(row)
        return 0
    if not chosen:
        say("no job runs")
        return 0
    heads = [
        "what",
        "pid",
        "state",
        "step",
        "phase",
        "cpu",
        "memory",
        *(["GPU", "GPU memory"] if gpus else []),
    ]
    heads += ["age", "life", "start", "command"]
    shown = [line for shown_job in chosen for line in _tree(shown_job, supervisors=all_, gpus=gpus)]
    print_table(heads, shown, right=["pid", "step", "cpu", "memory", "GPU", "GPU memory", "age", "life"])
    return 0


def _running() -> list[Job]:
    return [job for job in all_jobs(home()) if job.phase() not in (*FINAL, "lost", "unreadable")]


def _tree(job: Job, *, supervisors: bool, gpus: dict[int, GpuUse]) -> list[list[object]]:
    """Lines of the table: the job, its roles, their workers, what is below each."""
    width = 13 if gpus else 11

    def line(what: str, state: str, why: str = "", life: object = "") -> list[object]:
        cells: list[object] = [what, "", state, *[""] * (width - 3)]
        cells[-1], cells[-3] = why, life
        return cells

    state = job.state()
    lines = [line(job.id, job.phase(), job.reason())]
    process_rows = rows(job, supervisors=supervisors, gpus=gpus)
    lines += [_row(row, 1, gpus) for row in process_rows if row["role"] is None]
    for role in job.description()["roles"]:
        gangs = [gang for gang in state.gangs if gang.role == role["name"]] if state else []
        phases = {gang.phase for gang in gangs}
        reason = "" if phases == {"running"} else " · ".join(sorted({gang.reason for gang in gangs}))
        lines.append(line(f"  {role['name']} ({role['kind']})", " ".join(sorted(phases)), reason))
        lines += [_row(row, 2, gpus) for row in process_rows if row["role"] == role["name"]]
    return lines


def _row(row: Row, indent: int, gpus: dict[int, GpuUse]) -> list[object]:
    name = row["worker"] if row["depth"] == 0 else "└"
    state = row.get("held") or STATES.get(row["state"], row["state"])
    if row.get("exit"):
        state = _ended(row["exit"])
    return [
        f"{'  ' * (indent + row['depth'])}{name}",
        row["pid"],
        state,
        _or_nothing(row.get("step")),
        row.get("phase") or "",
        duration(row["cpu_s"] * 1e9) if row["cpu_s"] else "",
        size(row["rss_bytes"]) if row["rss_bytes"] else "",
        *(_gpu(row) if gpus else []),
        span(row["age_s"]),
        _or_nothing(row["incarnation"]) if row["depth"] == 0 else "",
        row.get("how", ""),
        _on_a_line(row["command"]),
    ]


def _on_a_line(command: str) -> str:
    """A command as far as a table has room for it; ``--json`` has all of it."""
    whole = command.replace("\n", "\\n")
    return whole if len(whole) <= COMMAND_LETTERS_MAX else f"{whole[:COMMAND_LETTERS_MAX]}…"


def _gpu(row: Row) -> list[str]:
    if not row.get("gpu_bytes"):
        return ["", ""]
    return [f"{row['gpu_percent']:.0f} %", size(row["gpu_bytes"])]


def _ended(exit_: dict[str, Any]) -> str:
    return (
        f"over: {exit_['code']}" if exit_.get("code") is not None else f"over: signal {exit_.get('signal')}"
    )


def _or_nothing(value: object) -> object:
    return "" if value is None else value


def span(seconds: float | None) -> str:
    """A time that people compare: ``42 s``, ``3:07``, ``1:02:03``, ``2 d 3 h``."""
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < 86400:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 86400} d {whole // 3600 % 24} h"
