"""A report as one HTML file: no script, no network, and nothing of a name or a reason that a browser would obey."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from penstock.cli.report.report_text import one_line
from penstock.errors import UsageError
from penstock.report.accounts.account_names import ACCOUNTS, PARTS, UNKNOWN
from penstock.report.diagnosis.cause import share_text
from penstock.report.quantities import duration, measured
from penstock.report.run_report import RunReport

#: Lives that are drawn; --json has all of them.
_LIVES_DRAWN = 200
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1b2733; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: 1.1rem; margin: .15rem 0; background: #eef1f4; } .bar span { display: block; }
.key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; }
"""
_COLOURS = (
    "#8899aa", "#a3b4c4", "#5b8def", "#3bb3c3", "#b58cf0", "#4f6bd8", "#2f9e5b", "#e0653a",
    "#c94f4f", "#7fbf7b", "#b03060", "#d98f3d", "#e3c567", "#666e78", "#c2a5cf", "#d9dde2",
)  # fmt: skip


def write_page(report: RunReport, path: Path) -> None:
    """Write it; an error of the disk is told as one of the command."""
    try:
        path.write_text(page_of(report), encoding="utf-8")
    except OSError as reason:
        raise UsageError(f"{path} cannot be written: {reason.strerror or reason}") from reason


def page_of(report: RunReport) -> str:
    """The text of the file."""
    diagnosis = report.diagnosis
    first = diagnosis.first
    sections = [
        f"<h1>{_text(diagnosis.line)}</h1>",
        f"<p>{_text(first.next_step)}</p>" if first is not None else "",
        *(f"<p>{_text(fault)}</p>" for fault in report.faults),
        _table("Causes", ["share", "cause"], _causes(report)),
        _ledger(report),
        _table("A step, mean over ranks", ["part", "host", "device"], _parts(report)),
        _table("Incidents", ["what", "device-seconds", "steps again", "cause"], _incidents(report)),
        _table("Longest steps", ["step", "rank", "took", "longer in", "line"], _stalls(report)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_text(report.name)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, sections))
        + "\n</body></html>\n"
    )


def _text(words: object) -> str:
    return escape(one_line(str(words)))


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    return (
        f"<h2>{_text(title)}</h2>\n<table><tr>{head}</tr>\n" + "\n".join(lines) + "</table>" if lines else ""
    )


def _causes(report: RunReport) -> list[list[object]]:
    wall = report.diagnosis.wall
    causes = [cause for cause in report.diagnosis.causes if cause.cost * 100 >= wall]
    return [[share_text(cause.cost, wall), cause.line(wall).partition(": ")[2]] for cause in causes]


def _ledger(report: RunReport) -> str:
    """Accounts as a table, and every life of every rank as a bar."""
    ledger = report.ledger
    spent = [name for name, total in ledger.accounts.items() if total]
    rows = [
        [
            name,
            f"{ledger.accounts[name] / 1e9:.3f}",
            share_text(ledger.accounts[name], ledger.wall),
            ACCOUNTS[name],
        ]
        for name in spent
    ]
    colours = dict(zip(ACCOUNTS, _COLOURS, strict=True))
    key = "".join(f'<span style="background:{colours[name]}"></span>{_text(name)}' for name in spent)
    lives = [(rank.rank, life) for rank in ledger.ranks for life in rank.lives]
    longest = max((life.wall for _, life in lives), default=0) or 1
    bars = []
    for rank, life in lives[:_LIVES_DRAWN]:
        pieces = "".join(
            f'<span style="width:{100 * life.accounts[name] / longest:.4f}%;background:{colours[name]}" title="{_text(name)}"></span>'
            for name in spent
        )
        bars.append(f'<div>rank {rank}, life {life.number}<div class="bar">{pieces}</div></div>')
    table = _table("Where the time went", ["account", "s", "share", "what it is"], rows)
    return f'{table}\n<p class="key">{key}</p>\n' + "\n".join(bars)


def _parts(report: RunReport) -> list[list[object]]:
    sides = [parts if isinstance(parts, dict) else {} for parts in report.breakdown.values()]
    names = [*(name for name in PARTS if name != UNKNOWN), "idle"]
    rows: list[list[object]] = [
        [name, *(measured(side.get(name, UNKNOWN), duration) for side in sides)] for name in names
    ]
    return [row for row in rows if any(cell != UNKNOWN for cell in row[1:])]


def _incidents(report: RunReport) -> list[list[object]]:
    return [
        [f"{one.kind} of life {one.life}", f"{one.cost / 1e9:.1f}", one.lost_steps, one.cause]
        for one in report.ledger.incidents
    ]


def _stalls(report: RunReport) -> list[list[object]]:
    return [
        [stall["step"], stall["rank"], duration(stall["took_ns"]), stall["part"], stall["line"]]
        for stall in report.stalls
    ]
