"""Pictures of a simulation: a bar, a line of the first seed's days, and both as SVG. Pure but for the file."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from penstock.errors import UsageError
from penstock.process.simulation import ACCOUNTS, Summary

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
#: Cells of the line of days, at most.
_CELLS = 54
_WIDTH, _ROW, _LABEL, _BAR = 860, 24, 160, 560
#: What time was spent on; the same hue for what belongs together.
_COLOURS = {
    "useful": "#4c78a8", "smaller": "#9ecae9", "redone": "#e45756", "saving": "#72b7b2", "detection": "#f2cf5b",
    "lease": "#eeca3b", "ending": "#b279a2", "waiting": "#f58518", "backoff": "#d6a5c9", "start": "#54a24b",
    "load": "#88d27a", "over": "#79706e",
}  # fmt: skip


def share_bar(share: float, width: int) -> str:
    """A bar in eighths of a cell; what is more than nothing shows."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def day_line(summary: Summary) -> str:
    """The share of training in each part of the first seed's time, from the least to the most."""
    shares = training_shares(summary, _CELLS)
    least, most = min(shares), max(shares)
    height = most - least or 1.0
    marks = "".join(_LEVELS[round((share - least) / height * (len(_LEVELS) - 1))] for share in shares)
    return f"{marks}  {100 * least:.0f} to {100 * most:.0f} %"


def training_shares(summary: Summary, cells: int) -> list[float]:
    """For each of so many parts of the time: the share that was training nobody undid, saves included."""
    end_ms = round(summary.plan.for_s * 1000)
    cells = min(cells, end_ms)
    width = end_ms / cells
    lost = [0.0] * cells
    for span in summary.outcomes[0].spans:
        cell = min(int(span.from_ms / width), cells - 1)
        at: float = span.from_ms
        while at < span.to_ms and cell < cells:
            until = min(float(span.to_ms), (cell + 1) * width)
            lost[cell] += until - at
            at, cell = until, cell + 1
    return [max(0.0, 1 - value / width) for value in lost]


def write_svg(summary: Summary, path: Path) -> None:
    """The picture as a file that any browser shows."""
    try:
        path.write_text(svg_of(summary), encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror or problem}") from problem


def svg_of(summary: Summary) -> str:
    """Where the time went, and the first seed day by day."""
    plan = summary.plan
    shares = {name: summary.share(name) for name in ACCOUNTS}
    lost = sorted(
        ((name, share) for name, share in shares.items() if name != "useful" and share.mean),
        key=lambda one: -one[1].mean,
    )
    useful = shares["useful"]
    lines = [
        _text(
            20,
            28,
            f"{plan.hosts:,} hosts × {plan.gpus_per_host} GPUs, {plan.spare_hosts} in reserve, faults {plan.profile.name}",
            size=16,
        ),
        _text(
            20,
            52,
            f"{100 * useful.mean:.1f} % ± {100 * useful.deviation:.2g} of the time is useful ({plan.seeds} seeds); the rest:",
        ),
    ]
    top = 68
    most = lost[0][1].mean if lost else 1.0
    for row, (name, share) in enumerate(lost):
        y = top + row * _ROW
        lines.append(_text(20, y + 16, ACCOUNTS[name]))
        lines.append(_bar(_LABEL + 40, y + 3, share.mean / most * _BAR, 16, _COLOURS[name]))
        lines.append(_text(_LABEL + 46 + share.mean / most * _BAR, y + 16, f"{100 * share.mean:.2f} %"))
    y = top + len(lost) * _ROW + 24
    shares_by_day = training_shares(summary, max(1, round(plan.for_s / 86400)))
    lines.append(
        _text(20, y + 4, f"seed {summary.outcomes[0].seed}, day by day: training that nothing undid")
    )
    lines += _columns(shares_by_day, y + 14)
    height = y + 14 + 110 + 28
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _columns(shares: Sequence[float], top: float) -> list[str]:
    """A column for each day, with the scale beside them."""
    left, width, height = 60, _WIDTH - 80, 110
    column_width = width / len(shares)
    drawn = [_text(20, top + 12, "100 %"), _text(34, top + height, "0 %")]
    for place, share in enumerate(shares):
        x = left + place * column_width
        drawn.append(_bar(x, top, max(column_width - 1, 0.5), height, "#f1dcdc"))
        drawn.append(
            _bar(
                x, top + height * (1 - share), max(column_width - 1, 0.5), height * share, _COLOURS["useful"]
            )
        )
    drawn.append(_text(left, top + height + 18, "day 1"))
    drawn.append(_text(left + width - 44, top + height + 18, f"day {len(shares)}"))
    return drawn


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, *, size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="#222222">{escape(words)}</text>'
