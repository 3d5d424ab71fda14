"""Hosts of tests: cells in any state, and small jobs that are played."""

from hypothesis import strategies as st

from penstock.process.simulation import Cause, FaultProfile, SimulationPlan
from penstock.report.hosts.snapshot import STATES, HostCell, HostSnapshot, count_states

DAY_S = 86_400.0
REAL_STATES = [state for state in STATES if state != "late"]


def hosts_of(states: list[str], racks: int) -> list[HostCell]:
    """Hosts one after the other; neighbours share racks."""
    return [
        HostCell(
            name=f"gpu{place:04}",
            state="here" if state == "late" else state,
            rank=place,
            rack=f"r{place * racks // len(states)}" if racks else "",
            slots=8,
            first_rank=8 * place,
            since_s=1.0,
            due_s=7.5 if state in ("late", "unheard") else None,
            lease_end_s=37.0 if state == "unheard" else None,
        )
        for place, state in enumerate(states)
    ]


def snapshot_of(hosts: list[HostCell], **more: object) -> HostSnapshot:
    """All of them at second 10."""
    told: dict[str, object] = {
        "at_s": 10.0,
        "lease_s": 30.0,
        "term": 3,
        "leader": "gpu0000",
        "phase": "running",
    }
    return HostSnapshot(hosts=tuple(hosts), counts=count_states(hosts), **{**told, **more})  # type: ignore[arg-type]


STATE_LISTS = st.lists(st.sampled_from([*STATES, "here", "here", "here"]), min_size=1, max_size=300)


def plan(hosts: int = 64, *, seed: int = 1, spares: int = 4) -> SimulationPlan:
    """A few days with racks that fail."""
    causes = (
        Cause(name="switch", per_1000_host_days=20.0, loses="rack", repair_s=3600.0),
        Cause(name="host", per_1000_host_days=15.0, loses="host", repair_s=7200.0),
        Cause(name="bug", per_1000_host_days=5.0, loses="rank"),
    )
    profile = FaultProfile(name="racks", causes=causes)
    return SimulationPlan(
        profile=profile,
        hosts=hosts,
        spare_hosts=spares,
        racks=hosts // 8,
        for_s=4 * DAY_S,
        seeds=1,
        first_seed=seed,
    )
