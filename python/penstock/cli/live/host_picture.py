"""Many hosts on a terminal of any size: a cell for each, the chosen one in words, what happened last, and one host with its ranks. Pure."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.escape import said
from penstock.cli.hosts.host_rows import cut
from penstock.cli.live.host_view import HostView
from penstock.cli.questions.process_table import span
from penstock.process.questions.host_sets import fold
from penstock.process.watch.usage import Row
from penstock.report.hosts.cell_map import LETTERS, OTHER, CellMap, letter_of
from penstock.report.hosts.playback import Playback
from penstock.report.hosts.snapshot import HostCell, HostSnapshot, badness
from penstock.report.hosts.source import HostEvent, RanksOfHost
from penstock.report.quantities import size

if TYPE_CHECKING:
    from rich.text import Text

COLOURS = {
    "expired": "bold red", "gone": "red", "left": "red", "unkillable": "bold magenta", "unheard": "bold yellow",
    "excluded": "magenta", "joining": "blue", "late": "yellow", "here": "green", "spare": "cyan",
}  # fmt: skip
#: Lines about the chosen cell and what happened last, where there is room.
_EVENTS_MAX = 6
#: Three lines at the top, chosen cell, legend, keys.
_FRAME = 6
_RANKS_HEADS = ("worker", "state", "step", "phase", "cpu %", "memory")


def picture(
    title: str,
    snapshot: HostSnapshot,
    view: HostView,
    *,
    screen: tuple[int, int],
    events: Sequence[HostEvent] = (),
    ranks: RanksOfHost | None = None,
    playback: Playback | None = None,
) -> list["Text"]:
    """Lines for a screen of so many columns and lines; never more."""
    width, height = screen
    head = [
        _text(_title(title, snapshot), width, "bold"),
        _text(snapshot.line(), width),
        _text(_who(snapshot, playback), width),
    ]
    if view.host is not None and view.host < len(snapshot.hosts):
        return [*head, *_host_lines(snapshot, view.host, ranks, events, (width, height - len(head)))]
    cells = cells_of(view, snapshot, screen)
    lines = [*head, *_map_lines(snapshot, cells, view)]
    shown = [_text(_chosen(snapshot, cells.places(min(view.cell, max(cells.cells - 1, 0)))), width)]
    room = height - len(lines) - 3
    shown += (
        [_text(event_line(event, playback), width, "dim") for event in list(events)[-room:]]
        if room > 0
        else []
    )
    gap = height - len(lines) - len(shown) - 2
    return [
        *lines,
        *shown,
        *[_text("", width)] * gap,
        _legend(snapshot, cells, width),
        _text(_keys(playback), width, "dim"),
    ]


def cells_of(view: HostView, snapshot: HostSnapshot, screen: tuple[int, int]) -> CellMap:
    """Where hosts stand on such a screen."""
    width, height = screen
    room = max(1, height - _FRAME)
    return view.map_of(snapshot, width, max(1, room - min(_EVENTS_MAX, room // 3)))


def worst_cell(snapshot: HostSnapshot, cells: CellMap) -> int:
    """The cell that needs somebody most; the first of equal ones."""
    return min(
        range(cells.cells),
        key=lambda cell: badness(letter_of(snapshot, cells.places(cell))[1]),
        default=0,
    )


def plain_lines(title: str, snapshot: HostSnapshot, table: Sequence[str]) -> list[str]:
    """For a pipe: who decides, and the table of hosts."""
    return [_title(title, snapshot), snapshot.line(), _who(snapshot, None), "", *table]


def event_line(event: HostEvent, playback: Playback | None) -> str:
    """When, and what."""
    at = (
        _moment(event.at_s) if playback is not None else time.strftime("%H:%M:%S", time.localtime(event.at_s))
    )
    return f"{at}  {event.what}"


def _title(title: str, snapshot: HostSnapshot) -> str:
    return f"{title}  {f'as last heard: {snapshot.problem}' if snapshot.problem else snapshot.phase}"


def _who(snapshot: HostSnapshot, playback: Playback | None) -> str:
    if playback is not None:
        state = "paused" if playback.is_paused else f"{playback.speed:g}× as fast"
        return f"{_moment(snapshot.at_s)} of {_moment(playback.length_s)} · {state} · lease {span(snapshot.lease_s)}"
    votes = f" · votes {fold(snapshot.voters)}" if snapshot.voters else ""
    return f"term {snapshot.term:x} · leads {snapshot.leader or 'nobody'}{votes} · lease {span(snapshot.lease_s)}"


def _moment(seconds: float) -> str:
    """``12 d 03:04:05``."""
    whole = int(seconds)
    clock = f"{whole // 3600 % 24:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 86400} d {clock}" if whole >= 86400 else clock


def _map_lines(snapshot: HostSnapshot, cells: CellMap, view: HostView) -> list["Text"]:
    from rich.text import Text

    lines, number = [], 0
    chosen = min(view.cell, max(cells.cells - 1, 0))
    for row in cells.rows:
        line = Text(said(cut(row.label, cells.label_width)).ljust(cells.label_width) + " ", style="dim")
        for at, (first, end) in enumerate(row.cells):
            if at in row.gaps:
                line.append(" ")
            letter, state = letter_of(snapshot, cells.order[first:end])
            style = COLOURS.get(state, "")
            line.append(letter, style=f"not dim {style} reverse" if number == chosen else f"not dim {style}")
            number += 1
        lines.append(line)
    return lines


def _chosen(snapshot: HostSnapshot, places: Sequence[int]) -> str:
    """The hosts of a cell in words."""
    hosts = [snapshot.hosts[place] for place in places]
    if not hosts:
        return "no host"
    if len(hosts) == 1:
        return f"▸ {_host_words(snapshot, hosts[0])}"
    states: dict[str, int] = {}
    for host in hosts:
        states[host.shown_state] = states.get(host.shown_state, 0) + 1
    counts = ", ".join(f"{states[state]} {state}" for state in sorted(states, key=badness))
    return f"▸ {len(hosts)} hosts: {counts} · {hosts[0].name} to {hosts[-1].name}"


def _host_words(snapshot: HostSnapshot, host: HostCell) -> str:
    since_s, left_s, beats = snapshot.for_s(host), snapshot.lease_left_s(host), snapshot.late_beats(host)
    parts = [
        f"{host.name}  {host.shown_state}" + (f" for {span(since_s)}" if since_s is not None else ""),
        f"{'rank' if host.slots == 1 else 'ranks'} {host.ranks}" if host.ranks else "no rank",
        f"lease {span(left_s)}" if left_s is not None else "",
        f"{int(beats)} {'heartbeat' if int(beats) == 1 else 'heartbeats'} late" if beats >= 1 else "",
        f"{host.rack}" if host.rack else "",
        snapshot.part_of(host),
        host.trouble,
    ]
    return " · ".join(part for part in parts if part)


def _legend(snapshot: HostSnapshot, cells: CellMap, width: int) -> "Text":
    from rich.text import Text

    line = Text()
    for state in sorted((state for state, count in snapshot.counts.items() if count), key=badness):
        line.append(LETTERS.get(state, OTHER) if state != "late" else "1-9", style=COLOURS.get(state, ""))
        line.append(f" {state} {snapshot.counts[state]:,}  ")
    if cells.per_cell > 1:
        line.append(f"a cell: the worst of {cells.per_cell}", style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _keys(playback: Playback | None) -> str:
    if playback is None:
        return "arrows choose · Enter opens · w worst · q Esc back"
    return "arrows · Enter opens · w worst · q Esc back · Space pause · + - speed · n next"


def _host_lines(
    snapshot: HostSnapshot,
    place: int,
    ranks: RanksOfHost | None,
    events: Sequence[HostEvent],
    screen: tuple[int, int],
) -> list["Text"]:
    """One host: in words, its ranks, and what happened to it."""
    width, height = screen
    host = snapshot.hosts[place]
    lines = [
        _text(_host_words(snapshot, host), width, COLOURS.get(host.shown_state, "")),
        _text(
            " · ".join(
                word
                for word in (f"host rank {'-' if host.rank is None else host.rank}", host.address)
                if word
            ),
            width,
        ),
        _text("", width),
    ]
    if ranks is None:
        lines.append(_text("asking its ranks…", width, "dim"))
    else:
        shown = rank_lines(ranks.rows)
        room = max(1, height - len(lines) - 4)
        lines += [_text(line, width) for line in shown[:room]]
        if len(shown) > room:
            lines.append(_text(f"… and {len(shown) - room} more", width, "dim"))
        if ranks.problem:
            lines.append(_text(ranks.problem, width, "yellow"))
    own = [event for event in events if host.name in event.what]
    room = height - len(lines) - 2
    if own and room > 0:
        lines += [
            _text("", width),
            *(
                _text(event_line(event, None if snapshot.next_s is None else Playback(0.0)), width, "dim")
                for event in own[-(room - 1) :]
                if room > 1
            ),
        ]
    lines = lines[: height - 1]
    return [
        *lines,
        *[_text("", width)] * (height - 1 - len(lines)),
        _text("q, Esc back · Ctrl-D leaves", width, "dim"),
    ]


def rank_lines(rows: Sequence[Row]) -> list[str]:
    """The ranks of a host as a table."""
    if not rows:
        return []
    cells = [
        (
            row.worker,
            row.held or row.state,
            "" if row.step is None else str(row.step),
            row.phase or "",
            "" if row.cpu_percent is None else f"{row.cpu_percent:.0f}",
            "" if row.rss_bytes is None else size(row.rss_bytes),
        )
        for row in sorted(rows, key=lambda row: (row.role, row.rank))
    ]
    widths = [max(map(len, column)) for column in zip(_RANKS_HEADS, *cells, strict=True)]
    right = (False, False, True, False, True, True)
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (_RANKS_HEADS, *cells)
    ]


def _text(words: str, width: int, style: str = "") -> "Text":
    from rich.text import Text

    line = Text(said(words), style=style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line
