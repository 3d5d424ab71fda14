"""What the words of ``penstock simulate`` ask for, as a plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import say
from penstock.errors import SimulationInvalid
from penstock.process.job.spec import Budget, Policy
from penstock.process.job.units import second_count
from penstock.process.simulation import FaultProfile, SimulationPlan, read_profile

#: Usual times of what a run may have recorded, in seconds.
_USUAL_S = {"start": 120.0, "load": 60.0, "save": 2.0, "step": 10.0}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Hosts."""

    hosts: Annotated[int | None, Parameter(help="Hosts that train (default 2048).")] = None
    gpus_per_host: Annotated[int, Parameter(help="GPUs of each; one rank for each GPU.")] = 8
    spare_hosts: Annotated[int, Parameter(help="Hosts in reserve.")] = 0
    nnodes: Annotated[
        str | None, Parameter(help="Hosts as MIN:MAX: without a spare the gang continues smaller.")
    ] = None
    sizes: Annotated[
        str | None, Parameter(help="Allowed numbers of hosts, as in 1024,2048 (default: divisors of MAX).")
    ] = None
    racks: Annotated[int | None, Parameter(help="Racks that fail together (default: one for two hosts).")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long things take, as people write it."""

    for_: Annotated[str, Parameter(name="--for", help="How long the job runs.")] = "54d"
    save_every: Annotated[str, Parameter(help="Training between two saves.")] = "10m"
    lease: Annotated[str, Parameter(help="Lease of hosts, as of `penstock run`.")] = "30s"
    detect: Annotated[str, Parameter(help="From a fault of a rank to the end of its process.")] = "10s"
    start: Annotated[
        str | None, Parameter(help="From the start of processes to the first step (default 2m).")
    ] = None
    load: Annotated[str | None, Parameter(help="Loading a checkpoint (default 1m).")] = None
    save: Annotated[str | None, Parameter(help="How long training stands still for a save (default 2s).")] = (
        None
    )
    write: Annotated[str, Parameter(help="From there until the checkpoint exists.")] = "30s"
    replace_within: Annotated[
        str, Parameter(help="How long a host is waited for before the gang shrinks.")
    ] = "10m"
    like: Annotated[
        str | None, Parameter(help="Take start, load, save and step times from this run's records.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Lives:
    """What interrupts, and how often all of it is lived through."""

    faults: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            help="A profile: llama3 (default), a TOML file, or `from JOB…`.",
        ),
    ] = None
    restarts: Annotated[int, Parameter(help="As of `penstock run`: failures in a row without progress.")] = (
        100
    )
    seeds: Annotated[int, Parameter(help="Lives of the job, each with other faults.")] = 20
    seed: Annotated[int, Parameter(help="The first of them.")] = 0


@dataclass(frozen=True)
class Request:
    """All words."""

    cluster: Cluster
    times: Times
    lives: Lives


def plan_of(request: Request) -> SimulationPlan:
    """The plan, or an error with the word that makes no sense."""
    cluster, times, lives = request.cluster, request.times, request.lives
    hosts, least = _hosts(cluster)
    recorded = _USUAL_S if times.like is None else {**_USUAL_S, **_recorded(times.like)}
    if hosts < 1:
        raise SimulationInvalid(field="hosts", reason=f"must be 1 or more, got {hosts}", hint="--hosts 128")
    if lives.restarts < 0:
        raise SimulationInvalid(field="restarts", reason=f"must be 0 or more, got {lives.restarts}")
    return SimulationPlan(
        profile=profile_of(lives.faults or ["llama3"]),
        hosts=hosts,
        gpus_per_host=cluster.gpus_per_host,
        spare_hosts=cluster.spare_hosts,
        sizes=_sizes(cluster, hosts, least),
        racks=cluster.racks,
        for_s=_seconds("for", times.for_),
        save_every_s=_seconds("save_every", times.save_every),
        lease_s=_seconds("lease", times.lease),
        detect_s=_seconds("detect", times.detect),
        start_s=_seconds("start", times.start, recorded["start"]),
        load_s=_seconds("load", times.load, recorded["load"]),
        save_s=_seconds("save", times.save, recorded["save"]),
        write_s=_seconds("write", times.write),
        replace_within_s=_seconds("replace_within", times.replace_within),
        step_s=recorded["step"],
        policy=Policy(budget=Budget.of(lives.restarts), hang=None),
        seeds=lives.seeds,
        first_seed=lives.seed,
    )


def changed(request: Request, key: str, value: str) -> Request:
    """The same words with another value of one option."""
    name = "for_" if key == "for" else key.replace("-", "_")
    if name in Times.__dataclass_fields__:
        return replace(request, times=replace(request.times, **{name: value}))
    if name == "nnodes":
        return replace(request, cluster=replace(request.cluster, nnodes=value, hosts=None))
    count = whole_number(key, value)
    if name == "restarts":
        return replace(request, lives=replace(request.lives, restarts=count))
    cluster = request.cluster
    by_name = {
        "hosts": lambda: replace(cluster, hosts=count),
        "gpus_per_host": lambda: replace(cluster, gpus_per_host=count),
        "spare_hosts": lambda: replace(cluster, spare_hosts=count),
        "racks": lambda: replace(cluster, racks=count),
    }
    return replace(request, cluster=by_name[name]())


def whole_number(field: str, text: str) -> int:
    """A number of things."""
    if not text.strip().isdigit():
        raise SimulationInvalid(field=field, reason=f"must be a whole number, 0 or more, got {text!r}")
    return int(text)


def profile_of(words: Sequence[str]) -> FaultProfile:
    """The profile that ``--faults`` names."""
    if words[0] != "from":
        if len(words) > 1:
            reason = f"takes one profile, got {len(words)}"
            raise SimulationInvalid(
                field="faults", reason=reason, hint="--faults from JOB… takes several jobs"
            )
        return read_profile(words[0])
    if len(words) == 1:
        raise SimulationInvalid(field="faults", reason="from names no job", hint="--faults from JOB…")
    from penstock.cli.job.choice import job_called
    from penstock.process.simulation.own_faults import profile_of_jobs

    return profile_of_jobs([job_called(name) for name in words[1:]])


def _hosts(cluster: Cluster) -> tuple[int, int]:
    """How many, and the fewest that may train."""
    if cluster.nnodes is None:
        hosts = 2048 if cluster.hosts is None else cluster.hosts
        return hosts, hosts
    least, _, most = cluster.nnodes.partition(":")
    most = most or least
    if not (least.isdigit() and most.isdigit() and 0 < int(least) <= int(most)):
        reason = f"must be a number or MIN:MAX, got {cluster.nnodes!r}"
        raise SimulationInvalid(field="nnodes", reason=reason, hint="--nnodes 1024:2048")
    if cluster.hosts not in (None, int(most)):
        reason = f"says {most} hosts, and --hosts says {cluster.hosts}"
        raise SimulationInvalid(field="nnodes", reason=reason)
    return int(most), int(least)


def _sizes(cluster: Cluster, hosts: int, least: int) -> list[int]:
    """Numbers of hosts that the gang may have: divisors of the first, unless some are named."""
    if cluster.sizes is None:
        return [size for size in range(least, hosts + 1) if hosts % size == 0]
    named = [whole_number("sizes", text) for text in cluster.sizes.split(",")]
    outside = [size for size in named if not least <= size <= hosts]
    if outside:
        reason = f"{outside[0]} is not within --nnodes {least}:{hosts}"
        raise SimulationInvalid(field="sizes", reason=reason)
    return sorted({*named, hosts})


def _recorded(run: str) -> dict[str, float]:
    """Times that a run recorded."""
    from penstock.cli.runs.place import run_at
    from penstock.report.run_times import run_times

    times = run_times(run_at(run))
    known = {"start": times.start_s, "load": times.load_s, "save": times.save_s, "step": times.step_s}
    recorded = {name: value for name, value in known.items() if value is not None}
    words = ", ".join(f"{name} {value:.3g} s" for name, value in recorded.items())
    say(f"as {run} recorded: {words or 'nothing; the usual times are taken'}")
    return recorded


def _seconds(option: str, text: str | None, usual: float = 0.0) -> float:
    if text is None:
        return usual
    seconds = second_count(text)
    if seconds is None:
        hint = f"--{option.replace('_', '-')} 90s, 10m, 2h or 54d"
        raise SimulationInvalid(field=option, reason=f"must be a time, got {text!r}", hint=hint)
    return seconds
