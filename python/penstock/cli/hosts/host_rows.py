"""Hosts as a table that is as wide as the terminal, whatever their number: names and ranks are folded, and cut where they do not fit."""

from collections.abc import Sequence

from penstock.cli.questions.process_table import span
from penstock.report.hosts.host_groups import HostGroup, groups_of, span_of
from penstock.report.hosts.snapshot import HostSnapshot

_GAP = "  "
#: Columns that are cut when lines are too long, and what they keep.
_CUT = ("host", "ranks", "rack")
_KEPT_MIN = 5


def host_lines(snapshot: HostSnapshot, width: int, *, groups: Sequence[HostGroup] | None = None) -> list[str]:
    """Heads, a rule, and a line for each host or group of hosts."""
    shown = groups_of(snapshot) if groups is None else groups
    heads = ["host", "count", "state", "for", "ranks", "lease", "late", "part", "rack"]
    rows = [_cells(snapshot, group) for group in shown]
    kept = [
        place
        for place, head in enumerate(heads)
        if head in ("host", "state") or any(row[place] for row in rows)
    ]
    heads, rows = [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    narrow = fitted(heads, widths, width)
    rule = "─" * (sum(narrow) + len(_GAP) * (len(narrow) - 1))
    return [_line(heads, narrow, heads), rule, *(_line(row, narrow, heads) for row in rows)]


def fitted(heads: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit: what may be cut is, the widest first."""
    fit = list(widths)
    cut = [place for place, head in enumerate(heads) if head in _CUT]
    while sum(fit) + len(_GAP) * (len(fit) - 1) > width:
        place = max(cut, key=lambda place: fit[place])
        if fit[place] <= _KEPT_MIN:
            break
        fit[place] -= 1
    return fit


def _cells(snapshot: HostSnapshot, group: HostGroup) -> list[str]:
    lease = span_of(map(snapshot.lease_left_s, group.hosts))
    late = max(map(snapshot.late_beats, group.hosts))
    return [
        group.names,
        f"{len(group.hosts):,}" if len(group.hosts) > 1 else "",
        group.state,
        _between(span_of(map(snapshot.for_s, group.hosts))),
        group.ranks,
        "" if lease is None else span(lease[0]),
        str(max(1, int(late))) if late else "",
        group.part,
        group.racks,
    ]


def _between(known: tuple[float, float] | None) -> str:
    if known is None:
        return ""
    low, high = span(known[0]), span(known[1])
    return low if low == high else f"{low} +"


def cut(text: str, width: int) -> str:
    """The beginning of what is too long."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _line(cells: Sequence[str], widths: Sequence[int], heads: Sequence[str]) -> str:
    at_right = ("count", "for", "lease", "late")
    shown = [
        cut(cell, width).rjust(width) if head in at_right else cut(cell, width).ljust(width)
        for cell, width, head in zip(cells, widths, heads, strict=True)
    ]
    return _GAP.join(shown).rstrip()
