"""What a simulation found, as lines, a small plot and plain values."""

from typing import Any

from penstock.cli.output import print_table, print_text
from penstock.cli.simulate.picture import day_line, share_bar
from penstock.process.simulation import ACCOUNTS, SimulationPlan, Summary, daly_s, young_s

_BAR_WIDTH = 20


def percent(share: float) -> str:
    """A share as people read it; small ones keep a second digit."""
    if share == 0:
        return "0 %"
    return f"{100 * share:.2f} %" if share < 0.0995 else f"{100 * share:.1f} %"


def span(seconds: float) -> str:
    """A time in two units at most: ``2 d 3 h``, ``4 min 5 s``, ``850 ms``."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    whole = round(seconds)
    for place, (unit, length) in enumerate(units):
        if whole >= length:
            rest = whole % length
            if place + 1 == len(units) or rest < units[place + 1][1]:
                return f"{whole // length} {unit}"
            following, shorter = units[place + 1]
            return f"{whole // length} {unit} {rest // shorter} {following}"
    return "0 s"


def head_line(plan: SimulationPlan, *, without: str = "") -> str:
    """What was imagined, in two lines."""
    parts = {
        "hosts": f"{plan.hosts:,} {'host' if plan.hosts == 1 else 'hosts'} × {plan.gpus_per_host} GPUs",
        "spare-hosts": f"{plan.spare_hosts} in reserve",
        "for": span(plan.for_s),
        "faults": f"faults {plan.profile.name}",
        "seeds": f"{plan.seeds} {'seed' if plan.seeds == 1 else 'seeds'}",
        "save-every": f"a save every {span(plan.save_every_s)}",
        "lease": f"lease {span(plan.lease_s)}",
        "start": f"start {span(plan.start_s)}",
        "load": f"load {span(plan.load_s)}",
        "save": f"save {span(plan.save_s)}",
    }
    shown = [text for name, text in parts.items() if name != without]
    return f"{', '.join(shown[:5])}\n{', '.join(shown[5:])}"


def interval_line(summary: Summary, *, with_own: bool = True) -> str:
    """The interval that Young's and Daly's formulas name, beside the one that was asked for."""
    plan, between_s = summary.plan, summary.between_failures_s
    if between_s is None or not plan.save_s:
        return "save interval: without faults, or with saves that cost nothing, the formulas say nothing"
    young, daly = young_s(plan.save_s, between_s), daly_s(plan.save_s, between_s)
    own = f", here {span(plan.save_every_s)}" if with_own else ""
    known = f"for a save of {span(plan.save_s)} and a fault every {span(between_s)}"
    return f"save interval by Young {span(young)}, by Daly {span(daly)}{own}\n  {known}"


def print_summary(summary: Summary) -> None:
    """Everything about one choice."""
    plan, useful = summary.plan, summary.share("useful")
    print_text(head_line(plan))
    print_text()
    print_text(f"useful  {percent(useful.mean)} ± {100 * useful.deviation:.2g} of the time")
    print_text(f"seed {summary.outcomes[0].seed}  {day_line(summary)}")
    print_text()
    lost = {name: summary.share(name) for name in ACCOUNTS if name != "useful"}
    most = max((share.mean for share in lost.values()), default=0.0)
    rows = [
        (
            ACCOUNTS[name],
            percent(share.mean),
            f"± {100 * share.deviation:.2f}",
            span(share.mean * plan.for_s),
            share_bar(share.mean / most if most else 0.0, _BAR_WIDTH),
        )
        for name, share in sorted(lost.items(), key=lambda pair: -pair[1].mean)
        if share.mean
    ]
    print_table(["where the rest went", "share", "", "time", " "], rows, right=["share", "", "time"])
    print_text()
    _print_causes(summary)
    print_text()
    for line in _notes(summary):
        print_text(line)


def _print_causes(summary: Summary) -> None:
    plan = summary.plan
    days = plan.for_s / 86400
    rows = []
    for place, cause in enumerate(plan.profile.causes):
        seen = summary.of_cause(place)
        rows.append(
            (
                cause.name,
                f"{seen.mean:.1f}",
                f"± {seen.deviation:.2g}",
                f"{plan.per_day(place) * days:.1f}",
                cause.loses,
            )
        )
    unplanned = summary.interruptions(planned=False)
    rows.append(
        (
            "all that nobody planned",
            f"{unplanned.mean:.1f}",
            f"± {unplanned.deviation:.2g}",
            f"{plan.expected:.1f}",
            "",
        )
    )
    heads = ["interruptions by cause", "mean", "", "expected", "loses"]
    print_table(heads, rows, right=["mean", "", "expected"])


def _notes(summary: Summary) -> list[str]:
    plan = summary.plan
    down = summary.spread(lambda outcome: sum(count.while_down for count in outcome.interruptions))
    restarts = summary.spread(lambda outcome: outcome.restarts)
    lines = [
        f"{restarts.mean:.1f} restarts; {down.mean:.1f} faults found the job down already",
        interval_line(summary),
    ]
    if plan.spare_hosts:
        fewest = summary.spread(lambda outcome: outcome.fewest_spares)
        lines.insert(
            1, f"fewest hosts in reserve at any time: {fewest.mean:.1f} (worst seed {fewest.least:.0f})"
        )
    if summary.ended:
        first = summary.ended[0].ended
        reason = "" if first is None else first.reason
        lines.append(f"the job gave up with {len(summary.ended)} of {plan.seeds} seeds: {reason}")
    return lines


def document_of(summary: Summary) -> dict[str, Any]:
    """As plain values; accounts of every seed are milliseconds and sum to the time."""
    plan, between_s = summary.plan, summary.between_failures_s
    causes = [
        {
            "cause": cause.name,
            "loses": cause.loses,
            "expected": plan.per_day(place) * plan.for_s / 86400,
            **summary.of_cause(place).to_json(),
        }
        for place, cause in enumerate(plan.profile.causes)
    ]
    return {
        "hosts": plan.hosts,
        "gpus_per_host": plan.gpus_per_host,
        "spare_hosts": plan.spare_hosts,
        "for_s": plan.for_s,
        "faults": plan.profile.name,
        "origin": plan.profile.origin,
        "useful": summary.share("useful").to_json(),
        "shares": {name: summary.share(name).to_json() for name in ACCOUNTS},
        "interruptions": summary.interruptions(planned=False).to_json(),
        "planned": summary.interruptions(planned=True).to_json(),
        "expected": plan.expected,
        "causes": causes,
        "save_interval_s": {
            "own": plan.save_every_s,
            "young": young_s(plan.save_s, between_s) if between_s and plan.save_s else None,
            "daly": daly_s(plan.save_s, between_s) if between_s and plan.save_s else None,
        },
        "seeds": [
            {
                "seed": outcome.seed,
                "accounts_ms": outcome.sums,
                "interruptions": [count.all for count in outcome.interruptions],
                "while_down": sum(count.while_down for count in outcome.interruptions),
                "restarts": outcome.restarts,
                "replacements": outcome.replacements,
                "shrinks": outcome.shrinks,
                "spares_lost": outcome.spares_lost,
                "fewest_spares": outcome.fewest_spares,
                "gave_up": None
                if outcome.ended is None
                else {"at_ms": outcome.ended.at_ms, "reason": outcome.ended.reason},
            }
            for outcome in summary.outcomes
        ],
    }
