"""The diagnosis: the largest avoidable cost first. It abstains where rows are missing, and says when nothing avoidable is large."""

from dataclasses import dataclass

from penstock.report.accounts.account_names import STEP_PARTS
from penstock.report.diagnosis import device_rules, life_rules, part_rules, rank_rules
from penstock.report.diagnosis.cause import SHARE_MIN, Cause, seconds, share_text
from penstock.report.diagnosis.observation import Observation

#: Of the rows; with more of them lost nothing is named.
_LOST_MAX = 0.05
#: Of the time after the start, where that was most of a run: what costs so much of the rest is named.
_SHARE_AFTER_START = 0.2
#: What a rank does before its first step.
_START = ("queue", "spawn", "start", "rendezvous", "restore")
#: Of the cost of long steps; retries that took so much are why they are long.
_EXPLAINED = 0.8
RULES = (
    part_rules.data,
    part_rules.plain_parts,
    part_rules.own_code,
    part_rules.checkpoints,
    part_rules.stalls,
    rank_rules.slow_rank,
    device_rules.host_bound,
    device_rules.padding,
    device_rules.allocator,
    life_rules.restarts,
    life_rules.compiling,
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What costs most, and what else."""

    #: The first line of a report.
    line: str
    #: ``named``, ``none`` or ``abstains``.
    verdict: str
    causes: tuple[Cause, ...]
    #: What costs are shares of: all of the time, or what came after a start that was most of it.
    wall: int
    #: The start, where it is not in ``wall``.
    start: int = 0

    @property
    def first(self) -> Cause | None:
        """The largest avoidable cost."""
        return self.causes[0] if self.verdict == "named" else None

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "line": self.line,
            "verdict": self.verdict,
            "wall_ns": self.wall,
            "start_ns": self.start,
            "causes": [cause.to_json(self.wall) for cause in self.causes],
        }


def diagnosis_of(observation: Observation) -> Diagnosis:
    """Ask every rule, and order what they say by cost. Pure (O4)."""
    missing = _missing(observation)
    if missing:
        # What the ledger alone shows stands, below a first line that does not pretend to know the rest.
        of_lives = _ordered([*life_rules.restarts(observation), *life_rules.compiling(observation)])
        return Diagnosis(f"no diagnosis: {missing}", "abstains", of_lives, observation.wall)
    causes = _ordered(_unexplained([cause for rule in RULES for cause in rule(observation)]))
    if causes and causes[0].cost >= SHARE_MIN * observation.wall:
        return Diagnosis(causes[0].line(observation.wall), "named", causes, observation.wall)
    start = _long_start(observation)
    rest = observation.wall - start
    if start and causes and causes[0].cost >= _SHARE_AFTER_START * rest:
        # A short run is mostly its start; its steps are slow all the same.
        return Diagnosis(causes[0].line(rest), "named", causes, rest, start)
    return Diagnosis(_nothing(observation), "none", causes, observation.wall)


def _unexplained(causes: list[Cause]) -> list[Cause]:
    """Without long steps that the allocator's retries explain: one cost is told once."""
    retried = sum(cause.cost for cause in causes if cause.kind == "allocator")
    return [cause for cause in causes if cause.kind != "stall" or retried < _EXPLAINED * cause.cost]


def _ordered(causes: list[Cause]) -> tuple[Cause, ...]:
    return tuple(sorted(causes, key=lambda cause: (-cause.cost, cause.kind, cause.sentence)))


def _missing(observation: Observation) -> str:
    """Why nothing can be said; empty where something can."""
    if observation.wall <= 0 or not observation.ranks or not len(observation.steps):
        return "no rows of steps were recorded" + (
            f" ({observation.faults[0]})" if observation.faults else ""
        )
    rows = len(observation.steps) * len(observation.ranks)
    if observation.lost_rows > _LOST_MAX * (rows + observation.lost_rows):
        return f"{observation.lost_rows} of {rows + observation.lost_rows} rows of steps were lost"
    if not observation.names("host."):
        return "what steps spend their time on was not recorded"
    return ""


def _long_start(observation: Observation) -> int:
    """What the longest rank took before its first step, where that is most of its time; else 0."""
    ranks = () if observation.ledger is None else observation.ledger.ranks
    longest = max(ranks, key=lambda rank: rank.wall, default=None)
    if longest is None or not longest.lives:
        return 0
    start = sum(longest.lives[0].accounts[name] for name in _START)
    return start if 2 * start > observation.wall else 0


def _nothing(observation: Observation) -> str:
    """No cause is large: say what the time is spent on."""
    words = f"nothing avoidable costs {100 * SHARE_MIN:.0f} % of {seconds(observation.wall)}"
    start = _long_start(observation)
    if start:
        words += f", {seconds(start)} of which are the start"
    bound = device_rules.device_bound(observation)
    if bound is not None:
        return f"{words}: {bound.sentence}"
    total = int(observation.times.max(axis=0).sum())
    sums = {}
    for part in STEP_PARTS:
        column = observation.middle(f"host.{part}")
        if column is not None:
            sums[part] = int(column.sum())
    largest = sorted(sums, key=lambda part: (-sums[part], part))[:3]
    parts = ", ".join(f"{part} {share_text(sums[part], total)}" for part in largest)
    unknown = (
        "; a rank that is slow inside of backward would not show"
        if len(observation.ranks) > 1 and "backward" in largest
        else ""
    )
    return f"{words}: steps are {parts}{unknown}"
