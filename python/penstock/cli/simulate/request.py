"""What the words of ``penstock simulate`` ask for, as a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.cli.output import say
from penstock.errors import SimulationInvalid
from penstock.process.job.spec import Budget, Policy
from penstock.process.job.units import second_count
from penstock.process.simulation import FaultProfile, SimulationPlan, read_profile

#: Hosts that are imagined when nobody says how many: those of Llama 3.
_USUAL_HOSTS = 2048


@dataclass(frozen=True)
class Request:
    """The words, still as text where they are times."""

    hosts: int | None
    nnodes: str | None
    sizes: str | None
    racks: int | None
    faults: Sequence[str]
    #: By field of the plan; None for the usual, or what a run recorded.
    times: Mapping[str, str | None]
    counts: Mapping[str, int]
    restarts: int
    like: str | None


def plan_of(request: Request) -> SimulationPlan:
    """The plan, or an error with the word that makes no sense."""
    hosts, least = _hosts(request)
    times = {f"{name}_s": _seconds(name, text) for name, text in request.times.items() if text is not None}
    if request.like is not None:
        times = {**_recorded(request.like), **times}
    if hosts < 1:
        raise SimulationInvalid(field="hosts", reason=f"must be 1 or more, got {hosts}", hint="--hosts 128")
    return SimulationPlan(
        profile=profile_of(request.faults),
        hosts=hosts,
        sizes=_sizes(request, hosts, least),
        racks=request.racks,
        policy=Policy(budget=Budget.of(request.restarts), hang=None),
        **request.counts,
        **times,
    )


def changed(request: Request, key: str, value: str) -> Request:
    """The same words with another value of one option."""
    name = key.replace("-", "_")
    if name in request.times:
        return replace(request, times={**request.times, name: value})
    if name in ("hosts", "racks", "restarts"):
        return replace(request, **{name: whole_number(key, value)})
    if name == "nnodes":
        return replace(request, nnodes=value, hosts=None)
    return replace(request, counts={**request.counts, name: whole_number(key, value)})


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


def _hosts(request: Request) -> tuple[int, int]:
    """How many, and the fewest that may train."""
    if request.nnodes is None:
        hosts = _USUAL_HOSTS if request.hosts is None else request.hosts
        return hosts, hosts
    least, _, most = request.nnodes.partition(":")
    if (
        not least.isdigit()
        or not (most or least).isdigit()
        or int(least) > int(most or least)
        or least == "0"
    ):
        reason = f"must be a number or MIN:MAX, got {request.nnodes!r}"
        raise SimulationInvalid(field="nnodes", reason=reason, hint="--nnodes 1024:2048")
    hosts = int(most or least)
    if request.hosts not in (None, hosts):
        raise SimulationInvalid(
            field="nnodes", reason=f"says {hosts} hosts, and --hosts says {request.hosts}"
        )
    return hosts, int(least)


def _sizes(request: Request, hosts: int, least: int) -> list[int]:
    """Numbers of hosts that the gang may have: divisors of the first, unless some are named."""
    if request.sizes is None:
        return [size for size in range(least, hosts + 1) if hosts % size == 0]
    named = [whole_number("sizes", text) for text in request.sizes.split(",")]
    outside = [size for size in named if not least <= size <= hosts]
    if outside:
        reason = f"{outside[0]} is not within --nnodes {least}:{hosts}"
        raise SimulationInvalid(field="sizes", reason=reason)
    return sorted({*named, hosts})


def _recorded(run: str) -> dict[str, float]:
    """Times that a run recorded."""
    from penstock.cli.runs.place import run_at
    from penstock.report.run_times import run_times

    found: dict[str, Any] = {}
    recorded = run_times(run_at(run))
    for name in ("start_s", "load_s", "save_s", "step_s"):
        value = getattr(recorded, name)
        if value is not None:
            found[name] = value
    said = ", ".join(f"{name.removesuffix('_s')} {value:.3g} s" for name, value in found.items())
    say(f"as {run} recorded: {said or 'nothing; the usual times are taken'}")
    return found


def _seconds(option: str, text: str) -> float:
    seconds = second_count(text)
    if seconds is None:
        hint = f"--{option.replace('_', '-')} 90s, 10m, 2h or 54d"
        raise SimulationInvalid(field=option, reason=f"must be a time, got {text!r}", hint=hint)
    return seconds
