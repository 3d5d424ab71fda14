"""``penstock runs list`` and ``show``."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.cli.runs.accounts import show_account
from penstock.cli.runs.metrics import show_metrics
from penstock.cli.runs.story import sentence
from penstock.errors import RunUnknown
from penstock.run.directory import RunDirectory, runs_below
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from penstock.run.journal.journal import Entry

list_app = command_app(
    "list",
    "List the runs in a folder: lives, steps, loss, and how the last life ended.",
    examples="  penstock runs list\n  penstock runs list runs --json",
)
show_app = command_app(
    "show",
    "Tell the story of a run: starts, restores, checkpoints, decisions, ends.",
    examples=(
        "  penstock runs show runs/exp1\n"
        "  penstock runs show runs/exp1 --account\n"
        "  penstock runs show runs/exp1 --metrics\n"
        "  penstock runs show runs/exp1 --json | jq -r .kind | sort | uniq -c"
    ),
)


@list_app.default
def list_runs(folder: Path = Path("."), *, json: Json = False) -> int:
    """Find every run in a folder and the folders in it.

    Parameters
    ----------
    folder
        Where to look (default: here).
    """
    found = [_summary(run, folder) for run in runs_below(folder)]
    if json:
        for each in found:
            print_json(each)
        return 0
    if not found:
        say(f"no runs in {folder}")
        return 0
    heads = ["run", "lives", "step", "loss", "ranks", "state", "since"]
    print_table(
        heads, [[each[head] for head in heads] for each in found], right=["lives", "step", "loss", "ranks"]
    )
    return 0


@show_app.default
def show(
    run: Path,
    *,
    account: Annotated[bool, Parameter(negative=(), help="Where the wall time went, life by life.")] = False,
    metrics: Annotated[bool, Parameter(negative=(), help="What the program logged, step by step.")] = False,
    json: Json = False,
) -> int:
    """Tell what happened, in order, across all lives.

    Parameters
    ----------
    run
        The directory of the run.
    """
    directory = RunDirectory(run)
    if not directory.is_run():
        raise RunUnknown(directory=str(run))
    if account:
        return show_account(run, json=json)
    if metrics:
        return show_metrics(run, json=json)
    entries = journal.read(run)
    if json:
        for entry in entries:
            print_json(_document(entry))
        return 0
    about = directory.about()
    print_facts(
        {
            "run": run,
            "seed": about.seed,
            "recipe": about.recipe_digest,
            "registry": about.registry,
            "checkpoints": about.checkpoints,
            "lives": 1 + max((entry.incarnation for entry in entries), default=-1),
            "newest step": records.last_step(run),
            "not pinned": "; ".join(_newest_start(entries).get("unpinned", ())),
        }
    )
    print()
    rows = [
        (
            _clock(entry.at),
            entry.incarnation,
            _of(entry),
            "" if entry.step is None else entry.step,
            sentence(entry),
        )
        for entry in entries
    ]
    print_table(["time", "life", "rank", "step", "what"], rows, right=["life", "rank", "step"])
    return 0


def _summary(run: RunDirectory, folder: Path) -> dict[str, Any]:
    entries = journal.read(run.path)
    last = records.last(run.path)
    newest = entries[-1] if entries else None
    # A save that was under way may be told after the end.
    life = [entry for entry in entries if newest is not None and entry.incarnation == newest.incarnation]
    end = next((entry for entry in life if entry.kind == "end"), None)
    name = run.path.relative_to(folder) if run.path != folder else run.path
    return {
        "run": str(name),
        "lives": 1 + max((entry.incarnation for entry in entries), default=-1),
        "step": -1 if last is None else last.step,
        "loss": "" if last is None or last.whole_loss != last.whole_loss else float(f"{last.whole_loss:.6g}"),
        "ranks": _newest_start(entries).get("ranks", ""),
        "state": "running, or killed" if end is None else end.facts["how"],
        "since": "" if newest is None else _clock(newest.at),
    }


def _newest_start(entries: list[Entry]) -> dict[str, Any]:
    return next((entry.facts for entry in reversed(entries) if entry.kind == "start"), {})


def _document(entry: Entry) -> dict[str, Any]:
    about = {
        "at": entry.at,
        "kind": entry.kind,
        "life": entry.incarnation,
        "rank": entry.rank,
        "step": entry.step,
    }
    return {**about, "facts": entry.facts, "sentence": sentence(entry)}


def _of(entry: Entry) -> str:
    return str(entry.rank) if entry.rank else ""


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
