"""``penstock runs list``: the runs in a folder."""

from pathlib import Path
from typing import Any

from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.cli.runs.run_text import clock, newest_start
from penstock.report.loop_summary import loop_summary
from penstock.run.directory import RunDirectory, runs_below
from penstock.run.journal import journal
from penstock.run.journal import step_records as records

list_app = command_app(
    "list",
    "List the runs in a folder: lives, steps, loss, and how the last life ended.",
    examples="  penstock runs list\n  penstock runs list runs --json",
)


@list_app.default
def list_runs(folder: Path = Path("."), *, json: Json = False) -> int:
    """Find every run in a folder and the folders in it.

    Parameters
    ----------
    folder
        Where to look (default: here).
    """
    summaries = [_summary(run, folder) for run in runs_below(folder)]
    if json:
        for summary in summaries:
            print_json(summary)
        return 0
    if not summaries:
        say(f"no runs in {folder}")
        return 0
    heads = ["run", "lives", "step", "loss", "ranks", "state", "since"]
    print_table(
        heads, [[row[head] for head in heads] for row in summaries], right=["lives", "step", "loss", "ranks"]
    )
    return 0


def _summary(run: RunDirectory, folder: Path) -> dict[str, Any]:
    name = run.path.relative_to(folder) if run.path != folder else run.path
    if run.is_only_observed():
        loop = loop_summary(run.path)
        return {
            "run": str(name),
            "lives": loop.lives,
            "step": loop.last_step,
            "loss": _loss(loop.loss),
            "ranks": loop.ranks,
            "state": loop.state,
            "since": "" if loop.at is None else clock(loop.at),
        }
    entries = journal.read(run.path)
    last = records.last(run.path)
    newest = entries[-1] if entries else None
    # A save that was under way may be told after the end.
    life = [entry for entry in entries if newest is not None and entry.incarnation == newest.incarnation]
    end = next((entry for entry in life if entry.kind == "end"), None)
    return {
        "run": str(name),
        "lives": 1 + max((entry.incarnation for entry in entries), default=-1),
        "step": -1 if last is None else last.step,
        "loss": "" if last is None else _loss(last.whole_loss),
        "ranks": newest_start(entries).get("ranks", ""),
        "state": "running, or killed" if end is None else str(end.facts.get("how", "ended")),
        "since": "" if newest is None else clock(newest.at),
    }


def _loss(loss: float) -> float | str:
    return "" if loss != loss else float(f"{loss:.6g}")
