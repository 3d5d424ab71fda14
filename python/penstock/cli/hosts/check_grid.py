"""A check of hosts as lines that fit a terminal, at any number of hosts: those that are alike are one row, and each sentence is said once."""

import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence

from penstock.process.health.report import CheckReport, HostLook
from penstock.process.health.verdict import CHECKS, Verdict, has_verdict, size
from penstock.process.questions.host_sets import fold

#: What a cell shows; the state of a check that was not made is a dash.
SHOWN = {"ok": "ok", "odd": "odd", "bad": "BAD", "none": "-"}
_GAP = " "
#: Sentences that are said in full; the rest is counted. ``--json`` has all.
FINDINGS_MAX = 40
NAME_MIN = 8
#: Hosts whose figures are shown one by one.
FIGURES_MAX = 8


def grid_lines(verdict: Verdict, width: int) -> list[str]:
    """Heads, a rule, and a row for each group of hosts with equal cells: the worst first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for number, row in verdict.grid.items():
        groups.setdefault(tuple(row[check] for check in CHECKS), []).append(verdict.names[number])
    kept = [place for place in range(len(CHECKS)) if any(states[place] != "none" for states in groups)]
    heads = [CHECKS[place] for place in kept]
    widths = [max(len(head), 3) for head in heads]
    room = max(NAME_MIN, width - sum(widths) - len(_GAP) * len(widths))
    order = sorted(
        groups, key=lambda states: (-states.count("bad"), -states.count("odd"), -len(groups[states]))
    )
    names = {states: fold(groups[states]) for states in order}
    first = min(room, max([len("host"), *map(len, names.values())]))
    lines = [_line("host", heads, first, widths)]
    lines.append("─" * (first + sum(widths) + len(_GAP) * len(widths)))
    for states in order:
        cells = [SHOWN[states[place]] for place in kept]
        name = names[states] if len(names[states]) <= first else f"{names[states][: first - 1]}…"
        lines.append(_line(name, cells, first, widths))
    return lines


def finding_lines(verdict: Verdict, width: int) -> list[str]:
    """Each sentence once, with the hosts that it is about; the bad ones first."""
    by_words: dict[tuple[str, str, str], list[str]] = {}
    for finding in verdict.findings:
        key = (finding.state, finding.check, finding.words)
        by_words.setdefault(key, []).append(verdict.names[finding.host])
    order = sorted(by_words, key=lambda key: (key[0] != "bad", CHECKS.index(key[1])))
    lines: list[str] = []
    for about in order[:FINDINGS_MAX]:
        text = f"{fold(by_words[about])}: {about[1]}: {about[2]}"
        lines += textwrap.wrap(text, max(width, 40), subsequent_indent="  ", break_long_words=False)
    if len(order) > FINDINGS_MAX:
        lines.append(f"and {len(order) - FINDINGS_MAX} more (--json has all)")
    return [*lines, *(line for text in verdict.remarks for line in textwrap.wrap(text, max(width, 40)))]


def figure_lines(report: CheckReport) -> list[str]:
    """Figures: of few hosts each, of many the median and what lies around it."""
    hosts = [look for look in report.hosts if look.facts is not None and not look.is_witness]
    lines = []
    for name, unit, read in _figures(report):
        known = [(look, value) for look in hosts if (value := read(look)) is not None]
        if not known:
            continue
        if len(hosts) <= FIGURES_MAX and not has_verdict(report):
            figures = ", ".join(f"{look.name} {_shown(value, unit)}" for look, value in known)
            lines.append(f"{name}: {figures}")
        else:
            values = [value for _, value in known]
            low, middle, high = min(values), statistics.median(values), max(values)
            lines.append(f"{name}: {_shown(middle, unit)} ({_shown(low, unit)} to {_shown(high, unit)})")
    return lines


def _shown(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1e6:.0f} µs" if abs(value) < 1e-3 else f"{value * 1e3:.1f} ms"
    return size(value, unit)


def _figures(report: CheckReport) -> Iterable[tuple[str, str, Callable[[HostLook], float | None]]]:
    def worst_rate(look: HostLook) -> float | None:
        rates = [
            min(one.there, one.back)
            for one in report.meetings
            if look.number in (one.one, one.two) and not one.problem
        ]
        return min(rates, default=None)

    def trip(look: HostLook) -> float | None:
        trips = [
            one.round_trip_s
            for one in report.meetings
            if look.number in (one.one, one.two) and not one.problem
        ]
        return statistics.median(trips) if trips else None

    def device(what: str) -> Callable[[HostLook], float | None]:
        def read(look: HostLook) -> float | None:
            devices = look.compute.devices if look.compute else ()
            return min((getattr(one, what) for one in devices if getattr(one, what)), default=None)

        return read

    return [
        ("clock", "s", lambda look: look.clock_s),
        (
            "disk",
            "B/s",
            lambda look: min((d.write_rate for d in look.facts.disks if d.write_rate), default=None),
        ),
        ("memory", "B", lambda look: float(look.facts.memory_bytes)),
        ("/dev/shm", "B", lambda look: float(look.facts.shm_bytes)),
        ("processor", "B/s", lambda look: look.processor or None),
        ("product", "FLOP/s", device("product")),
        ("copy", "B/s", device("copy")),
        ("network", "B/s", worst_rate),
        ("round trip", "s", trip),
    ]


def _line(name: str, cells: Sequence[str], first: int, widths: Sequence[int]) -> str:
    shown = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return _GAP.join([name.ljust(first), *shown]).rstrip()
