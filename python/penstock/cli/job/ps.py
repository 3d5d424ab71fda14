"""``penstock ps``: the processes of a job, as a tree."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app
from penstock.cli.questions.process_table import Grouping, Wish, show
from penstock.cli.questions.rank_groups import ROWS_MAX
from penstock.process.questions.answers import PATIENCE_S

app = command_app(
    "ps",
    "Show the processes of jobs: roles, ranks and their descendants, with step, processor time and memory.",
    examples="  penstock ps\n  penstock ps train-3f2a --all\n  penstock ps train-3f2a --json | jq .pid",
)


@app.default
def ps(
    job: str | None = None,
    *,
    all_: Annotated[
        bool, Parameter(name="--all", negative=(), help="Keeper, agent, coordinator and zygote too.")
    ] = False,
    by: Annotated[
        Grouping | None,
        Parameter(
            help=f"A line for ranks that are alike, for each host, or for each rank (up to {ROWS_MAX}: rank)."
        ),
    ] = None,
    patience: Annotated[float, Parameter(help="Seconds that many hosts may take for it.")] = PATIENCE_S,
    json: Json = False,
) -> int:
    """Without a job, all that run. Of a job that is over, how its ranks ended.

    A job of many hosts with more ranks is shown in groups of ranks that are alike, the rarest first.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    return show(Wish(job=job, supervisors=all_, by=by, patience_s=patience, json=json))
