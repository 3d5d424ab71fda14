"""A profile of faults from the incidents of jobs that ran, and how little it may rest on."""

import math
import time
from collections import Counter
from collections.abc import Sequence

from penstock.errors import ProfileInvalid
from penstock.process.job.catalogue import Job
from penstock.process.job.incidents import numbers, read
from penstock.process.simulation.fault_profile import Cause, FaultProfile

#: What incidents are charged to, and what such a fault takes. A failure of peers is somebody else's.
_LOSES = {"crash": "rank", "memory": "rank", "hang": "rank", "preemption": "job", "host": "host"}
#: How long a host is away, of which incidents say nothing.
HOST_REPAIR_S = 3600.0
#: 95 % of a normal distribution lie within so many deviations.
_DEVIATIONS = 1.96


def profile_of_jobs(jobs: Sequence[Job]) -> FaultProfile:
    """Rates by cause, from the time that all ranks of these jobs ran."""
    counts: Counter[str] = Counter()
    rank_days = host_days = 0.0
    for job in jobs:
        ranks, hosts, days = _exposure(job)
        rank_days += ranks * days
        host_days += hosts * days
        counts.update(cause for number in numbers(job) if (cause := _cause(job, number)) in _LOSES)
    events = sum(counts.values())
    names = ", ".join(job.id for job in jobs)
    if not events or not rank_days:
        reason = f"had no incident in {rank_days:.3g} rank-days, so no rate follows from them"
        hint = "name jobs that failed, as `penstock incident list JOB` shows them, or use --faults llama3"
        raise ProfileInvalid(place=f"from {names}", reason=reason, hint=hint)
    causes = [_rate(cause, count, rank_days, host_days) for cause, count in sorted(counts.items())]
    low, high = poisson_range(events)
    plural = "event" if events == 1 else "events"
    origin = (
        f"{events} {plural} in {rank_days:.3g} rank-days of {names}: "
        f"at 95 %, the true number is {low:.1f} to {high:.1f}, so all rates may be off by as much"
    )
    return FaultProfile(name=f"from {names}", causes=tuple(causes), origin=origin)


def poisson_range(events: int) -> tuple[float, float]:
    """Between which numbers the true mean lies at 95 %, when so many were seen (Byar's approximation)."""

    def bound(count: int, deviations: float) -> float:
        return count * (1 - 1 / (9 * count) + deviations / (3 * math.sqrt(count))) ** 3 if count else 0.0

    return bound(events, -_DEVIATIONS), bound(events + 1, _DEVIATIONS)


def _rate(cause: str, count: int, rank_days: float, host_days: float) -> Cause:
    loses = _LOSES[cause]
    of_host = loses == "host"
    return Cause(
        name=cause,
        per_1000_gpu_days=None if of_host else count / rank_days * 1000,
        per_1000_host_days=count / host_days * 1000 if of_host else None,
        loses=loses,
        repair_s=HOST_REPAIR_S if of_host else 0.0,
        events=count,
    )


def _cause(job: Job, number: int) -> str:
    return str(read(job, number).document.get("cause") or "crash")


def _exposure(job: Job) -> tuple[int, int, float]:
    """Ranks, hosts, and days that it ran."""
    state = job.state()
    if state is None:
        return 0, 0, 0.0
    hosts = int((job.host_file() or {}).get("nnodes") or 1)
    ended_at = time.time() if state.ended_at is None else state.ended_at
    return len(state.workers) * hosts, hosts, max(ended_at - state.started_at, 0.0) / 86400
