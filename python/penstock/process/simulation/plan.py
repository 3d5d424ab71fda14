"""What is imagined: a cluster, a profile of faults, times and a policy; and its form for the engine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from penstock.errors import SimulationInvalid
from penstock.process.job.spec import Budget, Policy
from penstock.process.simulation.fault_profile import FaultProfile

#: More lives of a job than these say nothing new.
SEEDS_MAX = 10_000
#: A host with ranks needs less than one host in reserve.
_SPARES_HINT = "spares that never get a rank cost as much as hosts that train"


@dataclass(frozen=True, kw_only=True)
class SimulationPlan:
    """Everything that a simulation needs. Times are in seconds."""

    profile: FaultProfile
    hosts: int
    for_s: float
    gpus_per_host: int = 8
    spare_hosts: int = 0
    #: Racks that fail together; None: two hosts share one.
    racks: int | None = None
    #: How many hosts the gang may have; empty: as many as there are.
    sizes: Sequence[int] = ()
    seeds: int = 20
    first_seed: int = 0
    lease_s: float = 30.0
    #: From a fault of a rank to the end of its process.
    detect_s: float = 10.0
    end_s: float = 1.0
    prepare_s: float = 0.5
    #: From the beginning of a life until all ranks have found each other: imports, the model, the communicators.
    start_s: float = 120.0
    load_s: float = 60.0
    save_every_s: float = 600.0
    #: How long training stands still for a save, and until the checkpoint exists after that.
    save_s: float = 2.0
    write_s: float = 30.0
    step_s: float = 10.0
    replace_within_s: float = 600.0
    policy: Policy = field(default_factory=lambda: Policy(budget=Budget.of(100), hang=None))

    def __post_init__(self) -> None:
        self._at_least("hosts", self.hosts, 1)
        self._at_least("gpus_per_host", self.gpus_per_host, 1)
        self._at_least("spare_hosts", self.spare_hosts, 0)
        self._at_least("seeds", self.seeds, 1)
        if self.for_s <= 0:
            raise SimulationInvalid(
                field="for", reason=f"must be longer than 0, got {self.for_s:g} s", hint="--for 54d"
            )
        if self.spare_hosts > self.hosts:
            reason = f"{self.spare_hosts} are more than the {self.hosts} hosts that they stand in for"
            raise SimulationInvalid(field="spare_hosts", reason=reason, hint=_SPARES_HINT)
        if self.seeds > SEEDS_MAX:
            raise SimulationInvalid(field="seeds", reason=f"must be at most {SEEDS_MAX}, got {self.seeds}")
        if self.racks is not None and not 1 <= self.racks <= self.hosts:
            raise SimulationInvalid(field="racks", reason=f"must be 1 to {self.hosts}, got {self.racks}")
        for known in fields(self):
            if known.name.endswith("_s") and getattr(self, known.name) < 0:
                value = getattr(self, known.name)
                raise SimulationInvalid(
                    field=known.name[:-2], reason=f"must be 0 s or longer, got {value:g} s"
                )

    def _at_least(self, name: str, value: int, least: int) -> None:
        if value < least:
            raise SimulationInvalid(field=name, reason=f"must be {least} or more, got {value}")

    @property
    def all_seeds(self) -> range:
        """One life for each."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def gpus(self) -> int:
        """All that train."""
        return self.hosts * self.gpus_per_host

    @property
    def expected(self) -> float:
        """Unplanned faults that are expected."""
        per_day = sum(
            self.per_day(place) for place, cause in enumerate(self.profile.causes) if cause.loses != "job"
        )
        return per_day * self.for_s / 86400

    def per_day(self, place: int) -> float:
        """Events of a cause that are expected in a day."""
        return self.profile.causes[place].per_day(hosts=self.hosts, gpus_per_host=self.gpus_per_host)

    def to_json(self, seeds: Sequence[int]) -> str:
        """As the engine reads it, for some of its seeds."""
        causes = [
            {
                "name": cause.name,
                "per_day": self.per_day(place),
                "loses": cause.loses,
                "repair_ms": _ms(cause.repair_s),
                "detect_ms": _ms(self.detect_s if cause.detect_s is None else cause.detect_s),
            }
            for place, cause in enumerate(self.profile.causes)
        ]
        times = (
            "lease",
            "end",
            "prepare",
            "start",
            "load",
            "save_every",
            "save",
            "write",
            "step",
            "replace_within",
        )
        document = {
            "hosts": self.hosts,
            "gpus_per_host": self.gpus_per_host,
            "spare_hosts": self.spare_hosts,
            "racks": (self.hosts + 1) // 2 if self.racks is None else self.racks,
            "sizes": list(self.sizes) or [self.hosts],
            "for_ms": _ms(self.for_s),
            "seeds": list(seeds),
            "causes": causes,
            "times": {f"{name}_ms": _ms(getattr(self, f"{name}_s")) for name in times},
            "policy": replace(self.policy, hang=None).to_json(),
        }
        return json.dumps(document)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
