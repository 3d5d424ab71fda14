"""``penstock simulate``: what spares, leases and save intervals are worth, before a run."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_text, say
from penstock.cli.simulate.request import Cluster, Lives, Request, Times
from penstock.errors import UsageError

app = command_app(
    "simulate",
    "Live a job through on imagined hosts: what faults, spares, leases and save intervals cost over weeks.",
    examples=(
        "  penstock simulate --hosts 2048 --faults llama3 --for 54d --spare-hosts 16\n"
        "  penstock simulate --hosts 128 --compare spare-hosts=0,1,2,4\n"
        "  penstock simulate --hosts 128 --compare save-every=5m,10m,30m --like runs/exp1\n"
        "  penstock simulate --show-profile llama3 > mine.toml"
    ),
)


@app.default
def simulate(
    *,
    cluster: Annotated[Cluster | None, Parameter(name="*")] = None,
    times: Annotated[Times | None, Parameter(name="*")] = None,
    lives: Annotated[Lives | None, Parameter(name="*")] = None,
    compare: Annotated[
        str | None, Parameter(help="Try several values of an option, as in spare-hosts=0,4,16.")
    ] = None,
    svg: Annotated[Path | None, Parameter(help="Write the picture as an SVG file as well.")] = None,
    show_profile: Annotated[
        str | None, Parameter(help="Print a profile as TOML, and simulate nothing.")
    ] = None,
    json: Json = False,
) -> int:
    """The real decider, policies and host states, on hosts and in weeks that are imagined. Time without events is skipped.

    Same seed, same faults: choices that are compared meet the same ones. What is modelled and what is not is in the guide,
    "How many spares do I need".
    """
    from penstock.cli.simulate.request import plan_of, profile_of

    if show_profile is not None:
        print_text(profile_of([show_profile]).to_toml().rstrip("\n"))
        return 0
    request = Request(cluster or Cluster(), times or Times(), lives or Lives())
    plan = plan_of(request)
    if plan.profile.origin:
        say(f"faults: {plan.profile.origin}")
    if compare is not None:
        if svg is not None:
            raise UsageError("--svg draws one choice: leave out --compare")
        return _compare(request, compare, json=json)
    from penstock.cli.simulate.result_text import document_of, print_summary
    from penstock.process.simulation import simulate as live

    summary = live(plan)
    if svg is not None:
        from penstock.cli.simulate.picture import write_svg

        write_svg(summary, svg)
    if json:
        print_json(document_of(summary))
    else:
        print_summary(summary)
    return 0


def _compare(request: Request, words: str, *, json: bool) -> int:
    from penstock.cli.simulate.comparison import choices_of, comparison_document, print_comparison
    from penstock.process.simulation import simulate as live

    key = words.partition("=")[0]
    summaries = [(value, live(plan)) for value, plan in choices_of(request, words)]
    if json:
        print_json(comparison_document(key, summaries))
    else:
        print_comparison(key, summaries)
    return 0
