"""``penstock simulate``: what spares, leases and save intervals are worth, before a run."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_text, say
from penstock.cli.simulate.request import Cluster, Lives, Request, Times
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.process.simulation import SimulationPlan

app = command_app(
    "simulate",
    "Live a job through on imagined hosts: what faults, spares, leases and save intervals cost over weeks.",
    examples=(
        "  penstock simulate --hosts 2048 --faults llama3 --for 54d --spare-hosts 16\n"
        "  penstock simulate --hosts 128 --compare spare-hosts=0,1,2,4\n"
        "  penstock simulate --hosts 128 --compare save-every=5m,10m,30m --like runs/exp1\n"
        "  penstock simulate --hosts 512 --spare-hosts 4 --watch\n"
        "  penstock simulate --show-profile llama3 > mine.toml"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What is made of it, where that is not the table."""

    compare: Annotated[
        str | None, Parameter(help="Try several values of an option, as in spare-hosts=0,4,16.")
    ] = None
    svg: Annotated[Path | None, Parameter(help="Write the picture as an SVG file as well.")] = None
    show_profile: Annotated[str | None, Parameter(help="Print a profile as TOML, and simulate nothing.")] = (
        None
    )
    watch: Annotated[
        bool,
        Parameter(negative=(), help="Play the first seed as `penstock top` shows a real job: hosts, live."),
    ] = False
    web: Annotated[
        bool,
        Parameter(negative=(), help="With --watch: in a browser; what `penstock web` serves, with this job."),
    ] = False
    speed: Annotated[
        float, Parameter(help="With --watch: seconds that pass in one. Quiet time is jumped over.")
    ] = 10.0


@app.default
def simulate(
    *,
    cluster: Annotated[Cluster | None, Parameter(name="*")] = None,
    times: Annotated[Times | None, Parameter(name="*")] = None,
    lives: Annotated[Lives | None, Parameter(name="*")] = None,
    shown: Annotated[Shown | None, Parameter(name="*")] = None,
    json: Json = False,
) -> int:
    """The real decider, policies and host states, on hosts and in weeks that are imagined. Time without events is skipped.

    Same seed, same faults: choices that are compared meet the same ones. What is modelled and what is not is in the guide,
    "How many spares do I need".
    """
    from penstock.cli.simulate.request import plan_of, profile_of

    chosen = shown or Shown()
    if chosen.show_profile is not None:
        print_text(profile_of([chosen.show_profile]).to_toml().rstrip("\n"))
        return 0
    request = Request(cluster or Cluster(), times or Times(), lives or Lives())
    plan = plan_of(request)
    if plan.profile.origin:
        say(f"faults: {plan.profile.origin}")
    if chosen.watch or chosen.web:
        return _watch(plan, chosen, json=json)
    if chosen.compare is not None:
        if chosen.svg is not None:
            raise UsageError("--svg draws one choice: leave out --compare")
        return _compare(request, chosen.compare, json=json)
    from penstock.cli.simulate.result_text import document_of, print_summary
    from penstock.process.simulation import simulate as live

    summary = live(plan)
    if chosen.svg is not None:
        from penstock.cli.simulate.picture import write_svg

        write_svg(summary, chosen.svg)
    if json:
        print_json(document_of(summary))
    else:
        print_summary(summary)
    return 0


def _watch(plan: "SimulationPlan", shown: Shown, *, json: bool) -> int:
    """Play it: in this terminal, or in a browser."""
    if shown.compare is not None or shown.svg is not None or json:
        raise UsageError("--watch plays one life: leave out --compare, --svg and --json")
    if not shown.watch:
        raise UsageError("--web goes with --watch", hint="penstock simulate --watch --web")
    if not 0.1 <= shown.speed <= 86_400:
        raise UsageError(f"--speed must be from 0.1 to 86400, got {shown.speed:g}")
    from penstock.report.hosts.simulated_job import SimulatedJob

    if shown.web:
        from penstock.cli.web import serve_simulation

        return serve_simulation(SimulatedJob(plan), shown.speed)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "leave out --watch for the table, or add --web for a browser"
        raise UsageError("--watch needs a terminal", hint=hint)
    from penstock.cli.live.host_top import watch_simulation

    return watch_simulation(SimulatedJob(plan), speed=shown.speed)


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
