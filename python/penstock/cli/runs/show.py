"""``penstock runs show``: the story of a run."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, print_table
from penstock.cli.runs.account import show_account
from penstock.cli.runs.metrics import show_metrics
from penstock.cli.runs.place import run_at
from penstock.cli.runs.run_text import clock, newest_start
from penstock.report.loop_summary import loop_summary
from penstock.report.run_story import sentence
from penstock.report.watch.alert_book import alert_entries
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from penstock.run.journal.journal import Entry

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


@show_app.default
def show(
    run: str,
    *,
    account: Annotated[bool, Parameter(negative=(), help="Where the wall time went, life by life.")] = False,
    metrics: Annotated[bool, Parameter(negative=(), help="What the program logged, step by step.")] = False,
    json: Json = False,
) -> int:
    """Tell what happened, in order, across all lives.

    Parameters
    ----------
    run
        The directory of a run, run:DIR, or a name below runs/.
    """
    place = run_at(run)
    if account:
        return show_account(place, json=json)
    if metrics:
        return show_metrics(place, json=json)
    if RunDirectory(place).is_only_observed():
        return _show_loop(place, json=json)
    entries = [*journal.read(place), *alert_entries(place)]
    entries.sort(key=lambda entry: (entry.incarnation, entry.at, entry.rank))
    if json:
        for entry in entries:
            print_json(_document(entry))
        return 0
    about = RunDirectory(place).about()
    print_facts(
        {
            "run": place,
            "seed": about.seed,
            "recipe": about.recipe_digest,
            "registry": about.registry,
            "checkpoints": about.checkpoints,
            "lives": 1 + max((entry.incarnation for entry in entries), default=-1),
            "newest step": records.last_step(place),
            "not pinned": "; ".join(newest_start(entries).get("unpinned", ())),
        }
    )
    print()
    rows = [
        (
            clock(entry.at),
            entry.incarnation,
            _of(entry),
            "" if entry.step is None else entry.step,
            sentence(entry),
        )
        for entry in entries
    ]
    print_table(["time", "life", "rank", "step", "what"], rows, right=["life", "rank", "step"])
    return 0


def _show_loop(place: Path, *, json: bool) -> int:
    """A loop that was only observed has no story: what its steps tell."""
    loop = loop_summary(place)
    facts = {
        "run": str(place),
        "lives": loop.lives,
        "ranks": loop.ranks,
        "newest step": loop.last_step,
        "loss": "" if loop.loss != loop.loss else float(f"{loop.loss:.6g}"),
        "state": loop.state,
        "since": "" if loop.at is None else clock(loop.at),
    }
    if json:
        print_json(facts)
    else:
        print_facts(facts)
    return 0


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
