"""A report as lines of text."""

from collections.abc import Iterator
from typing import Any

from penstock.cli.escape import harmless
from penstock.report.accounts.account_names import ACCOUNTS, PARTS, UNKNOWN
from penstock.report.accounts.ledger import Ledger
from penstock.report.diagnosis.cause import SHARE_MIN, seconds, share_text
from penstock.report.quantities import duration, measured, percent, rate, size
from penstock.report.run_report import RunReport

_CAUSES_SHOWN = 8
_INCIDENTS_SHOWN = 20
_STALLS_SHOWN = 8


def lines(report: RunReport) -> Iterator[str]:
    """The diagnosis first."""
    yield one_line(report.diagnosis.line)
    first = report.diagnosis.first
    if first is not None and first.next_step:
        yield f"  next: {first.next_step}"
    for alignment in report.clocks:
        yield f"clocks: {alignment.sentence()}"
    for fault in report.faults:
        yield f"  note: {one_line(fault)}"
    yield from _causes(report)
    yield ""
    yield from _speed(report)
    yield ""
    yield from ledger_lines(report.ledger)
    yield from _breakdown(report)
    yield from _incidents(report)
    yield from _stalls(report)
    yield from _memory(report)


def one_line(text: str) -> str:
    """A name or a reason of somebody else, which may hold anything."""
    return harmless(text.replace("\n", "\\n"))


def table(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Right-aligned columns but the first."""
    cells = [heads, *[[one_line(cell) for cell in row] for row in rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(heads))]
    for row in cells:
        columns = [row[0].ljust(widths[0])]
        columns += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield ("  " + "  ".join(columns)).rstrip()


def _causes(report: RunReport) -> Iterator[str]:
    others = report.diagnosis.causes[1 if report.diagnosis.first else 0 :]
    shown = [cause for cause in others if cause.cost * 100 >= report.diagnosis.wall][:_CAUSES_SHOWN]
    if shown:
        yield ""
        yield f"other causes (named first from {100 * SHARE_MIN:.0f} % on):"
        for cause in shown:
            yield f"  {one_line(cause.line(report.diagnosis.wall))}"


def _speed(report: RunReport) -> Iterator[str]:
    speed = report.speed
    yield (
        f"speed: {speed['steps']} steps, p50 {measured(speed['p50_ns'], duration)}, "
        f"p99 {measured(speed['p99_ns'], duration)}, {measured(speed['tokens_per_s'], rate)} tokens/s"
    )
    value = report.mfu["value"]
    yield f"MFU: {measured(value, percent)}" + (
        "" if isinstance(value, float) else f": {report.mfu.get('reason', '')}"
    )


def ledger_lines(ledger: Ledger) -> Iterator[str]:
    """Goodput and accounts: all of it, and of each life."""
    goodput = ledger.goodput()
    shares = ", ".join(
        f"{name} {measured(goodput[name], percent)}" for name in ("runtime", "scheduling", "program")
    )
    yield f"goodput: {shares}"
    yield f"ledger of {len(ledger.ranks)} {'rank' if len(ledger.ranks) == 1 else 'ranks'}, {seconds(ledger.wall)} of device time:"
    accounts, parts = ledger.accounts, ledger.parts
    rows = []
    for name in ACCOUNTS:
        if accounts[name]:
            rows.append([name, _seconds(accounts[name]), share_text(accounts[name], ledger.wall)])
        if name == "train":
            rows += [
                [f"  {part}", _seconds(spent), share_text(spent, ledger.wall)]
                for part, spent in parts.items()
                if spent
            ]
    yield from table(["account", "s", "share"], rows)
    for change in (change for rank in ledger.ranks for change in rank.clock_changes):
        estimate = change["gap_estimate_ns"]
        about = "an unknown time is" if estimate is None else f"about {seconds(estimate)} are"
        yield f"after life {change['life']} the clock began anew: {about} in no account (by wall clocks)"
    yield from _device(ledger)


def _device(ledger: Ledger) -> Iterator[str]:
    """The device's own split, beside the accounts of the host."""
    split = ledger.device
    if not split.marked_steps:
        return
    parts = ", ".join(
        f"{part} {share_text(spent, split.wall)}"
        for part, spent in sorted(split.parts.items(), key=lambda entry: (-entry[1], entry[0]))
        if spent
    )
    steps = f"{split.marked_steps} of {split.marked_steps + split.unmarked_steps} steps"
    yield f"device, beside the host: {seconds(split.wall)} between the marks of {steps}: {parts}"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.3f}"


def _breakdown(report: RunReport) -> Iterator[str]:
    sides: dict[str, Any] = {side: parts for side, parts in report.breakdown.items() if parts != UNKNOWN}
    if not sides:
        return
    yield ""
    yield "a step, mean over ranks (the device runs beside the host):"
    names = sorted({part for parts in sides.values() for part in parts}, key=_order)
    rows = []
    for name in names:
        values = [sides.get(side, {}).get(name, UNKNOWN) for side in ("host", "device")]
        if any(value not in (UNKNOWN, 0) for value in values):
            rows.append([name, *(measured(value, duration) if value else "0" for value in values)])
    yield from table(["part", "host", "device"], rows)


def _order(name: str) -> tuple[int, str]:
    return (list(PARTS).index(name) if name in PARTS else len(PARTS), name)


def _incidents(report: RunReport) -> Iterator[str]:
    ledger = report.ledger
    if not ledger.incidents:
        return
    yield ""
    yield f"incidents: {len(ledger.incidents)}"
    dearest = sorted(ledger.incidents, key=lambda incident: -incident.cost)[:_INCIDENTS_SHOWN]
    rows = [
        [
            f"{incident.kind} of life {incident.life}",
            f"{incident.cost / 1e9:.1f}",
            str(incident.lost_steps),
            incident.cause,
        ]
        for incident in dearest
    ]
    yield from table(["what", "device-seconds", "steps again", "cause"], rows)
    repair = ledger.repair()
    means = repair["mean_ns"]
    if isinstance(means, dict):
        parts = ", ".join(f"{name} {duration(spent)}" for name, spent in means.items())
        yield f"  mean time to repair: {duration(sum(means.values()))} ({parts})"
    else:
        yield f"  mean time to repair: {means}"


def _stalls(report: RunReport) -> Iterator[str]:
    if not report.stalls:
        return
    yield ""
    yield "longest steps:"
    rows = [
        [str(stall["step"]), str(stall["rank"]), duration(stall["took_ns"]), stall["part"], stall["line"]]
        for stall in report.stalls[:_STALLS_SHOWN]
    ]
    yield from table(["step", "rank", "took", "longer in", "line"], rows)


def _memory(report: RunReport) -> Iterator[str]:
    known = {
        name: value
        for name, value in report.memory.items()
        if value != UNKNOWN and name != "allocator_retries"
    }
    if known:
        yield ""
        yield "memory: " + ", ".join(f"{name} {size(value)}" for name, value in known.items())
