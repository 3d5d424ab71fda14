"""``penstock hosts excluded``: who is left out, and why."""

import time
from typing import Annotated

import msgspec
from cyclopts import Parameter

from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.process.exclusion.history import open_history, pasts
from penstock.process.exclusion.rule import FAILURES_MIN, WINDOW_S, HostPast
from penstock.process.health.verdict import span

excluded_app = command_app(
    "excluded",
    "Show hosts that are left out because they failed, and why.",
    examples="  penstock hosts excluded\n  penstock hosts excluded --all --json",
)

History = Annotated[
    str | None,
    Parameter(name="--host-history", help="Where failures of hosts are remembered, if not in the home."),
]


@excluded_app.default
def excluded(
    *,
    all_: Annotated[
        bool,
        Parameter(
            name="--all", negative=(), help="Hosts that showed anything within the last seven days, too."
        ),
    ] = False,
    host_history: History = None,
    json: Json = False,
) -> int:
    """Two failures that a host itself has shown within seven days exclude it; when one is older, it is used again."""
    history = open_history(home(), host_history)
    known = pasts(history)
    now = time.time()
    shown = [past for past in known.all if past.exclusion is not None or (all_ and _recent(past, now))]
    if json:
        for past in shown:
            print_json(document(past))
        return 0
    if not shown:
        say(f"nobody is excluded ({history.place})")
        return 0
    print_table(["host", "until", "failures", "why"], [_row(past, now) for past in shown], right=["failures"])
    say("hint: `penstock hosts include HOST` uses one again")
    return 0


def _recent(past: HostPast, now: float) -> bool:
    return any(record.at > now - WINDOW_S for record in past.failures)


def _row(past: HostPast, now: float) -> tuple[object, ...]:
    recent = [record for record in past.failures if record.at > now - WINDOW_S]
    if past.exclusion is None:
        return (
            past.name,
            "not excluded",
            f"{len(recent)} of {FAILURES_MIN}",
            "; ".join(one.why for one in recent),
        )
    return past.name, until_words(past.exclusion.until), len(recent), past.exclusion.why


def until_words(until: float | None) -> str:
    """``2026-11-27 (6 days)``."""
    if until is None:
        return "it is included"
    return f"{time.strftime('%Y-%m-%d', time.localtime(until))} ({span(max(0.0, until - time.time()))})"


def document(past: HostPast) -> dict[str, object]:
    """A host's past as plain values."""
    exclusion = past.exclusion
    return {
        "host": past.name,
        "excluded": exclusion is not None,
        "why": exclusion.why if exclusion else None,
        "until": exclusion.until if exclusion else None,
        "identity": msgspec.to_builtins(past.identity),
        "failures": [msgspec.to_builtins(record) for record in past.failures],
    }
