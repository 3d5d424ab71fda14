"""``penstock compare``: two runs beside each other."""

from dataclasses import replace
from typing import Annotated, Literal

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_text
from penstock.cli.report.report_text import one_line

app = command_app(
    "compare",
    "Compare two runs: speed and loss with an interval, and the first step whose bits differ.",
    examples=(
        "  penstock compare runs/a runs/b\n"
        "  penstock compare runs/a runs/b --by tokens\n"
        "  penstock compare a b --json | jq .speed"
    ),
)


@app.default
def compare(
    first: str,
    second: str,
    *,
    by: Annotated[
        Literal["step", "tokens", "time"], Parameter(help="What is the same in both where they are compared.")
    ] = "step",
    json: Json = False,
) -> int:
    """Say how much slower or faster the second run is, and whose loss is lower, each with an interval from blocks of steps.

    Parameters
    ----------
    first
        The directory of a run, run:DIR, or a name below runs/.
    second
        Another one.
    """
    from penstock.cli.runs.place import run_at
    from penstock.report.compared_run import compared_run
    from penstock.report.run_comparison import comparison_of

    places = [run_at(first), run_at(second)]
    runs = [compared_run(place) for place in places]
    if runs[0].name == runs[1].name:
        runs = [replace(run, name=str(place)) for run, place in zip(runs, places, strict=True)]
    comparison = comparison_of(runs[0], runs[1], by)
    if json:
        print_json(comparison.to_json())
        return 0
    for line in comparison.lines():
        print_text(one_line(line))
    return 0
