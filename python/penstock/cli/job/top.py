"""``penstock top``: what every worker of a job is doing, or how runs go, live."""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from cyclopts import Parameter

from penstock.cli.escape import said
from penstock.cli.job.choice import job_or_run
from penstock.cli.job.home import home
from penstock.cli.job.keys import Keys
from penstock.cli.output import Json, command_app, print_json, say
from penstock.errors import UsageError
from penstock.process.job.catalogue import ELSEWHERE, FINAL, Job, jobs
from penstock.process.job.control import elsewhere
from penstock.process.watch.usage import Row, Seen, Watcher
from penstock.report.quantities import duration, size

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Shares of processors are differences, so a single picture needs two looks.
BETWEEN_LOOKS_S = 0.3
#: Lines around the rows of workers.
FRAME_LINES = 6
#: In a pipe, where nobody scrolls.
ROWS_MAX = 4096
PIPE_WIDTH = 200

app = command_app(
    "top",
    "Watch a job, rank by rank, or runs: diagnosis, loss, tokens/s, MFU, goodput, step time, memory, live.",
    examples=(
        "  penstock top\n"
        "  penstock top train-3f2a --every 5\n"
        "  penstock top runs/a runs/b\n"
        "  penstock top runs/a --once --json | jq '.runs[0].speed.tokens_per_s'\n"
        "  penstock top train-3f2a --json | jq '.workers[] | select(.step_age_s > 10).rank'"
    ),
)


@app.default
def top(
    *what: str,
    every: Annotated[float, Parameter(help="Seconds between updates.")] = 1.0,
    once: Annotated[
        bool, Parameter(negative=(), help="Print once and exit; without a terminal it always does.")
    ] = False,
    here: Annotated[
        bool, Parameter(negative=(), help="Of a job of many hosts: only this host, rank by rank.")
    ] = False,
    json: Json = False,
) -> int:
    """Of a job of many hosts, a cell for each host; arrows choose, Enter opens one. Of a job of one host, those furthest behind come first; it ends with the job, or when q is pressed.

    Of runs, arrows choose the run and the curve, m the column of the map of ranks and steps, o whether curves lie over each other. With
    --json and without --once an object is printed for each refresh, until none of the runs runs.

    Parameters
    ----------
    what
        A job: its name, or how it begins (default: the newest that runs). Or runs: directories, run:DIR, or names below runs/.
    """
    if not 0.1 <= every <= 3600:
        raise UsageError(f"--every must be seconds from 0.1 to 3600, got {every}")
    subjects = [job_or_run(text) for text in what] or [_newest()]
    places = [subject for subject in subjects if isinstance(subject, Path)]
    if places:
        from penstock.cli.live.run_top import RUNS_MAX, top_runs

        if len(places) < len(subjects):
            raise UsageError("jobs and runs cannot be watched together", hint="one command for each")
        if len(places) > RUNS_MAX:
            raise UsageError(f"at most {RUNS_MAX} runs can be watched, got {len(places)}")
        return top_runs(list(dict.fromkeys(places)), every_s=every, once=once, json=json)
    if len(subjects) > 1:
        raise UsageError(f"one job can be watched, got {len(subjects)}", hint="runs can be watched together")
    handle = subjects[0]
    assert isinstance(handle, Job), "runs have been told apart"
    if not here and handle.host_file() is not None and handle.phase() not in (*FINAL, "lost"):
        from penstock.cli.live.host_top import top_hosts
        from penstock.report.hosts.asked_job import AskedJob

        if handle.phase() == ELSEWHERE:
            raise elsewhere(handle, "top")
        return top_hosts(AskedJob(handle), every_s=every, once=once, json=json)
    return _top_job(handle, every, once=once, json=json)


def _top_job(handle: Job, every: float, *, once: bool, json: bool) -> int:
    if (host := handle.host_file()) is not None:
        say(f"note: {handle.id} has {host.get('nnodes')} hosts, and this is {host.get('name')} alone")
    watcher = Watcher(handle)
    seen = watcher.look()
    if json or once or not sys.stdout.isatty():
        if seen.phase not in FINAL:
            time.sleep(BETWEEN_LOOKS_S)
            seen = watcher.look()
        if json:
            print_json(_plain(seen))
        else:
            from rich.console import Console

            console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
            console.print(picture(seen, rows_max=ROWS_MAX, width=console.width))
        return 0
    _live(watcher, every)
    return 0


def _newest() -> Job:
    running = [job for job in jobs(home()) if job.phase() not in (*FINAL, "lost")]
    if not running:
        raise UsageError("no job runs", hint="`penstock jobs` lists those that ran")
    return running[-1]


def _plain(seen: Seen) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(seen)
    rows = document.pop("rows")
    return {**document, "workers": rows}


def _live(watcher: Watcher, every_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            seen = watcher.look()
            rows_max = max(1, console.size.height - FRAME_LINES)
            live.update(picture(seen, rows_max=rows_max, width=console.width), refresh=True)
            if seen.phase in (*FINAL, "lost") or keys.leave_within(every_s):
                break
    console.print(picture(seen, rows_max=ROWS_MAX, width=console.width))


def picture(seen: Seen, *, rows_max: int, width: int) -> "RenderableType":
    """A line about the job, the workers that fit, and a line about all of them."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    has_gpus = any(row.gpu_percent is not None for row in seen.rows)
    shown = [column for column in COLUMNS if width >= column.width_min and (has_gpus or not column.is_gpu)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in shown:
        table.add_column(column.head, justify="right" if column.is_number else "left", no_wrap=True)
    ordered = order(seen.rows)
    for row in ordered[:rows_max]:
        table.add_row(*(Text(said(column.cell(row))) for column in shown), style=_style(row))
    lasting = "after" if seen.phase in FINAL else "for"
    title = f"{seen.job}  {seen.phase} {lasting} {_time(seen.age_s)}: {seen.reason}"
    lines: list[RenderableType] = [Text(said(title), style="bold"), table]
    if len(ordered) > rows_max:
        lines.append(Text(f"… and {len(ordered) - rows_max} more that are not behind these"))
    return Group(*lines, Text(said(summary(seen.rows))))


def order(rows: Sequence[Row]) -> list[Row]:
    """Who does not run comes first, then who is furthest behind, then by name."""
    return sorted(
        rows,
        key=lambda row: (
            row.state in ("R", "S") and row.held is None,
            row.step if row.step is not None else -1,
            row.role,
            row.rank,
        ),
    )


def summary(rows: Sequence[Row]) -> str:
    """All workers in one line."""
    if not rows:
        return "no workers"
    said = [f"{len(rows)} workers"]
    phases = Counter(row.held or row.phase or "no pulse" for row in rows)
    said.append(", ".join(f"{count} {phase}" for phase, count in phases.most_common()))
    steps = [row.step for row in rows if row.step is not None]
    if steps:
        low, high = min(steps), max(steps)
        said.append(f"step {low}" if low == high else f"steps {low} to {high}")
    usual = [row.typical_s for row in rows if row.typical_s]
    if usual:
        said.append(f"a step takes {_time(statistics.median(usual))}, at most {_time(max(usual))}")
    said.append(f"cpu {sum(row.cpu_percent or 0 for row in rows):.0f} %")
    said.append(f"memory {size(sum(row.rss_bytes or 0 for row in rows))}")
    gpus = [row.gpu_percent for row in rows if row.gpu_percent is not None]
    if gpus:
        memory = size(sum(row.gpu_bytes or 0 for row in rows))
        said.append(f"gpu {statistics.mean(gpus):.0f} % on average, {memory}")
    return " · ".join(said)


def _quiet_s(row: Row) -> float:
    """Since when nothing was heard: the last step, or the beginning of the phase if that is later."""
    ages = [age for age in (row.step_age_s, row.phase_age_s) if age is not None]
    return min(ages, default=0.0)


def _style(row: Row) -> str:
    if row.state not in ("R", "S"):
        return "red" if row.state != "exit 0" else "dim"
    if row.held is not None:
        return "yellow"
    late = row.typical_s is not None and row.phase == "step" and _quiet_s(row) > 5 * row.typical_s + 1
    return "yellow" if late else ""


def _time(seconds: float) -> str:
    if seconds < 100:
        return duration(seconds * 1e9)
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


class Column(NamedTuple):
    """What a row shows."""

    head: str
    cell: Callable[[Row], str]
    is_number: bool = True
    #: Left out on terminals that are narrower.
    width_min: int = 0
    is_gpu: bool = False


def _known(value: float | int | None, form: Callable[[float], str]) -> str:
    return "" if value is None else form(value)


COLUMNS = (
    Column("worker", lambda row: row.worker, is_number=False),
    Column("pid", lambda row: str(row.pid), width_min=90),
    Column("life", lambda row: str(row.incarnation), width_min=110),
    Column("state", lambda row: row.held or row.state, is_number=False),
    Column("step", lambda row: _known(row.step, lambda step: f"{step:.0f}")),
    Column("step time", lambda row: _known(row.step_s, _time)),
    Column("steps/s", lambda row: _known(row.steps_per_s, lambda rate: f"{rate:.3g}"), width_min=90),
    Column("phase", lambda row: row.phase or "", is_number=False),
    Column("for", lambda row: "" if row.phase is None or row.is_over else _time(_quiet_s(row))),
    Column("cpu %", lambda row: _known(row.cpu_percent, lambda share: f"{share:.0f}")),
    Column("memory", lambda row: _known(row.rss_bytes, size)),
    Column("gpu %", lambda row: _known(row.gpu_percent, lambda share: f"{share:.0f}"), is_gpu=True),
    Column("gpu mem", lambda row: _known(row.gpu_bytes, size), is_gpu=True),
    Column("last line", lambda row: row.last_line, is_number=False, width_min=100),
)
