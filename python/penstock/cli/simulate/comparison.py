"""``--compare``: the same faults for several choices, and what each costs."""

from collections.abc import Sequence
from typing import Any

from penstock.cli.output import print_table, print_text
from penstock.cli.simulate.request import Request, changed, plan_of
from penstock.cli.simulate.result_text import document_of, head_line, interval_line, percent
from penstock.errors import SimulationInvalid
from penstock.process.simulation import SimulationPlan, Summary

#: Options that may have several values.
KEYS = (
    "spare-hosts", "lease", "save-every", "save", "write", "load", "start", "detect", "hosts", "gpus-per-host", "racks",
    "nnodes", "replace-within", "restarts", "for",
)  # fmt: skip
#: Values of one comparison, at most.
_VALUES_MAX = 32
#: Accounts that differ by less are not shown.
_DIFFERENCE = 0.0005
_SHOWN = ("redone", "saving", "lease", "waiting", "smaller", "over")


def choices_of(request: Request, words: str) -> list[tuple[str, SimulationPlan]]:
    """Values and their plans."""
    key, equals, listed = words.partition("=")
    if key not in KEYS:
        hint = f"one of {', '.join(KEYS)}"
        raise SimulationInvalid(field="compare", reason=f"{key!r} cannot be compared", hint=hint)
    values = [value.strip() for value in listed.split(",") if value.strip()]
    if not equals or not values or len(values) > _VALUES_MAX:
        reason = f"needs 1 to {_VALUES_MAX} values, got {len(values)}"
        raise SimulationInvalid(field="compare", reason=reason, hint="--compare spare-hosts=0,4,16")
    return [(value, plan_of(changed(request, key, value))) for value in values]


def gpu_days_lost(summary: Summary) -> float:
    """GPU-days that were paid for and not useful, spares included."""
    plan = summary.plan
    paid = (plan.hosts + plan.spare_hosts) * plan.gpus_per_host * plan.for_s / 86400
    return paid - summary.share("useful").mean * plan.gpus * plan.for_s / 86400


def print_comparison(key: str, summaries: Sequence[tuple[str, Summary]]) -> None:
    """A row for each choice; the cheapest has a mark."""
    print_text(head_line(summaries[0][1].plan, without=key))
    shown = [name for name in _SHOWN if _differs([summary.share(name).mean for _, summary in summaries])]
    best = min(gpu_days_lost(summary) for _, summary in summaries)
    rows = []
    for value, summary in summaries:
        useful, lost = summary.share("useful"), gpu_days_lost(summary)
        ended = len(summary.ended)
        rows.append(
            (
                value,
                f"{percent(useful.mean)} ± {100 * useful.deviation:.2g}",
                *(percent(summary.share(account).mean) for account in shown),
                f"{lost:,.0f}",
                "least" if lost == best else f"+{lost - best:,.0f}",
                f"gave up {ended}×" if ended else "",
            )
        )
    heads = [key, "useful", *shown, "GPU-days lost", "", " "]
    print_table(heads, rows, right=heads[:-1])
    print_text("GPU-days lost: paid for and not useful, hosts in reserve included")
    if key in ("save-every", "save"):
        for value, summary in summaries if key == "save" else summaries[:1]:
            print_text(
                (f"save {value}: " if key == "save" else "") + interval_line(summary, with_own=key == "save")
            )


def _differs(shares: Sequence[float]) -> bool:
    """Whether a choice matters to an account."""
    return max(shares) - min(shares) >= _DIFFERENCE


def comparison_document(key: str, summaries: Sequence[tuple[str, Summary]]) -> dict[str, Any]:
    """As plain values."""
    choices = [
        {"value": value, "gpu_days_lost": gpu_days_lost(summary), **document_of(summary)}
        for value, summary in summaries
    ]
    return {"compare": key, "choices": choices}
