"""``penstock simulate``: what spares, leases and save intervals are worth, before a run."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_text, say
from penstock.cli.simulate.request import Request, plan_of, profile_of
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
_Text = str | None


def _named(name: str, help_: str) -> Parameter:
    return Parameter(name=name, help=help_)


@app.default
def simulate(
    *,
    hosts: Annotated[int | None, Parameter(help="Hosts that train.")] = None,
    gpus_per_host: Annotated[int, Parameter(help="GPUs of each; one rank for each GPU.")] = 8,
    spare_hosts: Annotated[int, Parameter(help="Hosts in reserve.")] = 0,
    nnodes: Annotated[
        _Text, Parameter(help="Hosts as MIN:MAX: without a spare the gang continues smaller.")
    ] = None,
    sizes: Annotated[
        _Text, Parameter(help="Allowed numbers of hosts, as in 1024,2048 (default: divisors).")
    ] = None,
    racks: Annotated[
        int | None, Parameter(help="Racks that fail together (default: one for two hosts).")
    ] = None,
    faults: Annotated[
        list[str] | None,
        Parameter(consume_multiple=True, help="A profile: llama3 (default), a TOML file, or `from JOB…`."),
    ] = None,
    for_: Annotated[str, _named("--for", "How long the job runs, as in 54d.")] = "54d",
    save_every: Annotated[str, Parameter(help="Training between two saves.")] = "10m",
    lease: Annotated[str, Parameter(help="Lease of hosts, as of `penstock run`.")] = "30s",
    detect: Annotated[str, Parameter(help="From a fault of a rank to the end of its process.")] = "10s",
    start: Annotated[
        _Text, Parameter(help="From the start of processes to the first step (default 2m).")
    ] = None,
    load: Annotated[_Text, Parameter(help="Loading a checkpoint (default 1m).")] = None,
    save: Annotated[_Text, Parameter(help="How long training stands still for a save (default 2s).")] = None,
    write: Annotated[str, Parameter(help="From there until the checkpoint exists.")] = "30s",
    replace_within: Annotated[
        str, Parameter(help="How long a host is waited for before the gang shrinks.")
    ] = "10m",
    restarts: Annotated[
        int, Parameter(help="As of `penstock run`: failures in a row without progress.")
    ] = 100,
    like: Annotated[
        _Text, Parameter(help="Take start, load, save and step times from this run's records.")
    ] = None,
    seeds: Annotated[int, Parameter(help="Lives of the job, each with other faults.")] = 20,
    seed: Annotated[int, Parameter(help="The first of them.")] = 0,
    compare: Annotated[
        _Text, Parameter(help="Try several values of an option, as in spare-hosts=0,4,16.")
    ] = None,
    svg: Annotated[Path | None, Parameter(help="Write the picture as an SVG file as well.")] = None,
    show_profile: Annotated[_Text, Parameter(help="Print a profile as TOML, and simulate nothing.")] = None,
    json: Json = False,
) -> int:
    """The real decider, policies and host states, on hosts and in weeks that are imagined. Time without events is skipped.

    Same seed, same faults: choices that are compared meet the same ones. What is modelled and what is not is in the guide,
    "How many spares do I need".
    """
    if show_profile is not None:
        print_text(profile_of([show_profile]).to_toml().rstrip("\n"))
        return 0
    times = {
        "for": for_, "save_every": save_every, "lease": lease, "detect": detect, "start": start, "load": load,
        "save": save, "write": write, "replace_within": replace_within,
    }  # fmt: skip
    counts = {"gpus_per_host": gpus_per_host, "spare_hosts": spare_hosts, "seeds": seeds, "first_seed": seed}
    request = Request(hosts, nnodes, sizes, racks, faults or ["llama3"], times, counts, restarts, like)
    return _run(request, compare, svg, json=json)


def _run(request: Request, compare: str | None, svg: Path | None, *, json: bool) -> int:
    from penstock.cli.simulate.comparison import choices_of, comparison_document, print_comparison
    from penstock.cli.simulate.result_text import document_of, print_summary
    from penstock.process.simulation import simulate as live

    plan = plan_of(request)
    if plan.profile.origin:
        say(f"faults: {plan.profile.origin}")
    if compare is not None:
        if svg is not None:
            raise UsageError("--svg draws one choice: leave out --compare")
        choices = choices_of(request, compare)
        summaries = [(value, live(choice)) for value, choice in choices]
        key = compare.partition("=")[0]
        if json:
            print_json(comparison_document(key, summaries))
        else:
            print_comparison(key, summaries)
        return 0
    summary = live(plan)
    if svg is not None:
        from penstock.cli.simulate.picture import write_svg

        write_svg(summary, svg)
    document: dict[str, Any] = document_of(summary)
    if json:
        print_json(document)
    else:
        print_summary(summary)
    return 0
