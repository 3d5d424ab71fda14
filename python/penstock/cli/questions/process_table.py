"""The processes of jobs, of all hosts, as a table or as JSON: what ``penstock ps`` does once its words are read.

It is apart from the command because scripts and people at a thousand hosts ask often, and the command-line library takes as long to load
as all the rest. ``read`` understands the usual words; everything else, mistakes and ``--help`` too, is for the library.
"""

import shutil
import sys
from typing import Any, Literal, NamedTuple

from penstock.cli.job.choice import job_called
from penstock.cli.job.home import home
from penstock.cli.output import print_json, print_table, say
from penstock.cli.questions.rank_groups import HEADS, RIGHT, ROWS_MAX, groups_of_ranks
from penstock.errors import JobSilent
from penstock.process.job.catalogue import ELSEWHERE, FINAL, Job
from penstock.process.job.catalogue import jobs as all_jobs
from penstock.process.job.control import elsewhere
from penstock.process.questions.answers import PATIENCE_S, check_patience
from penstock.process.sweep import sweep_lost
from penstock.process.watch.gpus import GpuUse, gpu_uses
from penstock.process.watch.snapshot import Row, rows
from penstock.report.quantities import duration, size

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
#: Columns that go where a terminal is too narrow, the first of them first.
SPARE = ("start", "phase", "age", "life", "pid", "GPU memory", "GPU", "cpu", "memory", "step")
Grouping = Literal["group", "host", "rank"]
GROUPINGS: tuple[Grouping, ...] = ("group", "host", "rank")


class Wish(NamedTuple):
    """What is to be shown."""

    #: All jobs that run, without one.
    job: str | None = None
    supervisors: bool = False
    by: Grouping | None = None
    patience_s: float = PATIENCE_S
    json: bool = False


def quick(words: list[str]) -> int:
    """``penstock ps`` with these words, without the command-line library if they are the usual ones."""
    wish = read(words)
    if wish is None:
        from penstock.cli.root import call

        return call(["ps", *words])
    return show(wish)


def read(words: list[str]) -> Wish | None:
    """What usual words mean; nothing for all others."""
    wish = Wish()
    rest = iter(words)
    for word in rest:
        option, is_joined, value = word.partition("=")
        if option in ("--by", "--patience") and not is_joined:
            value = next(rest, "")
        grouping = next((known for known in GROUPINGS if known == value), None)
        if word == "--all":
            wish = wish._replace(supervisors=True)
        elif word == "--json":
            wish = wish._replace(json=True)
        elif option == "--by" and grouping is not None:
            wish = wish._replace(by=grouping)
        elif option == "--patience" and value.replace(".", "", 1).isdecimal():
            wish = wish._replace(patience_s=float(value))
        elif word and not word.startswith("-") and wish.job is None:
            wish = wish._replace(job=word)
        else:
            return None
    return wish


def show(wish: Wish) -> int:
    """Print it."""
    check_patience(wish.patience_s)
    sweep_lost(home(), tell=say)
    chosen = [job_called(wish.job)] if wish.job is not None else _running()
    if wish.job is not None and chosen[0].phase() == ELSEWHERE:
        there = elsewhere(chosen[0], "ps")
        if there.reach:
            raise there
    gpus = gpu_uses()
    views = [
        _view(handle, supervisors=wish.supervisors, gpus=gpus, patience_s=wish.patience_s)
        for handle in chosen
    ]
    if wish.json:
        for view in views:
            for row in view.rows:
                print_json(row)
        return 0
    if not chosen:
        say("no job runs")
        return 0
    for view in [view for view in views if _is_grouped(view, wish.by)]:
        lines = groups_of_ranks(view.rows, wish.by or "group")
        say(f"{view.job.id}: {view.job.phase()}")
        print_table(HEADS, lines, right=RIGHT)
    _print_trees([view for view in views if not _is_grouped(view, wish.by)], gpus)
    for view in views:
        if view.hosts:
            say(f"{view.job.id}: {view.hosts}")
    return 0


def _is_grouped(view: "View", by: str | None) -> bool:
    if by is not None:
        return by != "rank"
    count = sum(1 for row in view.rows if row["role"] is not None and row["depth"] == 0)
    return view.is_many and count > ROWS_MAX


def _print_trees(views: list["View"], gpus: dict[int, GpuUse]) -> None:
    if not views:
        return
    many = any(view.is_many for view in views)
    heads = [
        "what",
        *(["host"] if many else []),
        "pid",
        "state",
        "step",
        "phase",
        "cpu",
        "memory",
        *(["GPU", "GPU memory"] if gpus else []),
    ]
    heads += ["age", "life", "start", "command"]
    shown = [line for view in views for line in _tree(view, many=many, gpus=gpus)]
    right = ["pid", "step", "cpu", "memory", "GPU", "GPU memory", "age", "life"]
    if not sys.stdout.isatty():
        print_table(heads, shown, right=right)
        return
    from penstock.cli.questions.table_fit import fitted

    cells = [[str(cell) for cell in line] for line in shown]
    heads, cells = fitted(heads, cells, columns=shutil.get_terminal_size().columns, spare=SPARE)
    print_table(heads, cells, right=right)


class View(NamedTuple):
    """A job as it is shown: rows of its processes, and of a job of many hosts a line about those."""

    job: Job
    rows: list[Row]
    is_many: bool = False
    hosts: str = ""


def _view(job: Job, *, supervisors: bool, gpus: dict[int, GpuUse], patience_s: float = PATIENCE_S) -> View:
    """Rows of all hosts, as far as the agent here knows of the others; else of this host."""
    host = job.host_file()
    own = [{**row, "host": (host or {}).get("name")} for row in rows(job, supervisors=supervisors, gpus=gpus)]
    if host is None:
        return View(job, [{key: value for key, value in row.items() if key != "host"} for row in own])
    if job.phase() in (*FINAL, "lost", "unreadable"):
        return View(job, own, is_many=True)
    from penstock.process.hosts.host_table import host_table, worker_rows

    try:
        table, workers = host_table(job), worker_rows(job, patience_s=patience_s)
    except JobSilent as problem:
        return View(job, own, is_many=True, hosts=f"only this host is shown: {problem.reason}")
    others = [_of_another(job, row) for row in workers.rows if row["host"] != host.get("name")]
    everyone = sorted([*own, *others], key=lambda row: -1 if row["rank"] is None else row["rank"])
    ranks = {place.name: place.rank for place in table.hosts or []}
    slots = {place.rank: place.slots for place in table.hosts or []}
    account = workers.account.line("ranks", lambda hosts: sum(slots.get(host, 0) for host in hosts))
    line = table.line() if not slots else f"{table.line()} · {account}"
    everyone = [{**row, "host_rank": ranks.get(row["host"])} for row in everyone]
    return View(job, everyone, is_many=True, hosts=line)


def _of_another(job: Job, row: Row) -> Row:
    """A worker of another host, of which less is known here."""
    blank = {"cpu_s": None, "rss_bytes": None, "age_s": None, "phase": None, "command": ""}
    state = "" if row["exit"] else ("runs" if row["running"] else "gone")
    known = {"job": job.id, "worker": f"{row['role']}-{row['rank']}", "depth": 0, "state": state}
    return {**known, **blank, **row}


def _running() -> list[Job]:
    return [job for job in all_jobs(home()) if job.phase() not in (*FINAL, ELSEWHERE, "lost", "unreadable")]


def _tree(view: View, *, many: bool, gpus: dict[int, GpuUse]) -> list[list[object]]:
    """Lines of the table: the job, its roles, their workers, what is below each."""
    job, process_rows = view.job, view.rows
    width = (13 if gpus else 11) + many

    def line(what: str, state: str, why: str = "", life: object = "") -> list[object]:
        cells: list[object] = [what, *[""] * (1 + many), state, *[""] * (width - 3 - many)]
        cells[-1], cells[-3] = why, life
        return cells

    state = job.state()
    lines = [line(job.id, job.phase(), job.reason())]
    lines += [_row(row, 1, gpus, many=many) for row in process_rows if row["role"] is None]
    for role in job.description()["roles"]:
        gangs = [gang for gang in state.gangs if gang.role == role["name"]] if state else []
        phases = {gang.phase for gang in gangs}
        reason = "" if phases == {"running"} else " · ".join(sorted({gang.reason for gang in gangs}))
        lines.append(line(f"  {role['name']} ({role['kind']})", " ".join(sorted(phases)), reason))
        lines += [_row(row, 2, gpus, many=many) for row in process_rows if row["role"] == role["name"]]
    return lines


def _row(row: Row, indent: int, gpus: dict[int, GpuUse], *, many: bool) -> list[object]:
    name = row["worker"] if row["depth"] == 0 else "└"
    state = row.get("held") or STATES.get(row["state"], row["state"])
    if row.get("exit"):
        state = _ended(row["exit"])
    return [
        f"{'  ' * (indent + row['depth'])}{name}",
        *([row.get("host") or ""] if many else []),
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
