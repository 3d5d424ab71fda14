"""``penstock report``: why training is slow, and where the time went."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_text
from penstock.errors import UsageError

app = command_app(
    "report",
    "Say why training is slow and where its time went: diagnosis, ledger, breakdown, incidents, stalls, memory.",
    examples=(
        "  penstock report runs/exp1\n"
        "  penstock report runs/exp1 --steps 100:200 --rank 3\n"
        "  penstock report --timeline log.json\n"
        "  penstock report runs/exp1 --json | jq .diagnosis.line"
    ),
)
_STEPS = re.compile(r"(\d{1,15}):(\d{1,15})")


@app.default
def report(
    run: str | None = None,
    *,
    steps: Annotated[str | None, Parameter(help="Only these steps, as FIRST:END.")] = None,
    rank: Annotated[int | None, Parameter(help="Only this rank.")] = None,
    timeline: Annotated[
        Path | None, Parameter(help="Instead of a run: a file of moments, steps and phases from elsewhere.")
    ] = None,
    html: Annotated[Path | None, Parameter(help="Write the report as one HTML file as well.")] = None,
    json: Json = False,
) -> int:
    """The first line names the largest avoidable cost, with its place and what shows it.

    Parameters
    ----------
    run
        The directory of a run, run:DIR, or a name below runs/ (default: the newest below runs/).
    """
    from penstock.report.accounts.timeline_form import read_timeline, timelines_of
    from penstock.report.run_report import Evidence, report_of

    if timeline is not None:
        if run is not None:
            raise UsageError("--timeline takes the place of a run: name one of the two")
        evidence = Evidence(timeline.name, tuple(timelines_of(read_timeline(timeline))))
    else:
        from penstock.cli.runs.place import run_at
        from penstock.report.run_evidence import evidence_of

        evidence = evidence_of(run_at(run))
    ranks = [one.rank for one in evidence.timelines]
    if rank is not None and rank not in ranks:
        raise UsageError(f"there is no rank {rank}; there are {', '.join(map(str, ranks)) or 'none'}")
    result = report_of(evidence, None if steps is None else _range(steps), rank)
    if html is not None:
        from penstock.cli.report.report_page import write_page

        write_page(result, html)
    if json:
        print_json(result.to_json())
        return 0
    from penstock.cli.report.report_text import lines

    for line in lines(result):
        print_text(line)
    return 0


def _range(text: str) -> range:
    bounds = _STEPS.fullmatch(text)
    if bounds is None or int(bounds[1]) >= int(bounds[2]):
        raise UsageError(f"--steps wants two numbers as FIRST:END, the first the smaller one; got {text!r}")
    return range(int(bounds[1]), int(bounds[2]))
