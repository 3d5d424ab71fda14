"""All hosts on a screen of letters: a cell for each, or one for several where there are more hosts than cells. Pure.

Hosts of one rack stand together. Where all racks fit, each begins a line of its own, or stands apart from the next one; else one host
follows the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.report.hosts.snapshot import HostCell, HostSnapshot, worst

#: What stands for a state, so that a map is read without colours. A late host shows how many heartbeats are missing.
LETTERS = {
    "expired": "X", "gone": "G", "left": "L", "unkillable": "K", "unheard": "?", "excluded": "e", "joining": "j",
    "late": "1", "here": ".", "spare": "s",
}  # fmt: skip
#: Of a state that is not known here.
OTHER = "*"
_LABEL_MAX = 14
_DIGIT_MAX = 9


@dataclass(frozen=True, slots=True)
class MapRow:
    """One line: what it is called, and its cells."""

    label: str
    #: First and end in ``order`` of each cell.
    cells: Sequence[tuple[int, int]]
    #: Cells with a space before them, because another rack begins.
    gaps: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CellMap:
    """Where each host is shown."""

    #: Places of hosts, as they are shown.
    order: Sequence[int]
    rows: Sequence[MapRow]
    per_cell: int
    label_width: int

    @property
    def cells(self) -> int:
        """How many there are."""
        return sum(len(row.cells) for row in self.rows)

    def places(self, cell: int) -> Sequence[int]:
        """The hosts of a cell."""
        for row in self.rows:
            if cell < len(row.cells):
                first, end = row.cells[cell]
                return self.order[first:end]
            cell -= len(row.cells)
        return ()

    def moved(self, cell: int, *, right: int = 0, down: int = 0) -> int:
        """The cell beside another one; the same at an edge."""
        if not self.cells:
            return 0
        cell = min(max(cell + right, 0), self.cells - 1)
        starts = [0]
        for row in self.rows:
            starts.append(starts[-1] + len(row.cells))
        at = next(number for number in range(len(self.rows)) if cell < starts[number + 1])
        to = min(max(at + down, 0), len(self.rows) - 1)
        return starts[to] + min(cell - starts[at], len(self.rows[to].cells) - 1)


def in_racks(hosts: Sequence[HostCell], places: Sequence[int]) -> list[list[int]]:
    """The same places, those of one rack together; racks in the order in which they come."""
    racks: dict[str, list[int]] = {}
    for place in places:
        racks.setdefault(hosts[place].rack, []).append(place)
    return list(racks.values())


def lay_out(hosts: Sequence[HostCell], places: Sequence[int], *, width: int, height: int) -> CellMap:
    """Put hosts on so many columns and lines, at least one of each."""
    racks = in_racks(hosts, places)
    order = [place for rack in racks for place in rack]
    if len(racks) > 1:
        label = min(_LABEL_MAX, max(len(hosts[rack[0]].rack) for rack in racks))
        across = max(1, width - label - 1)
        if sum(-(-len(rack) // across) for rack in racks) <= height:
            return CellMap(order, _rack_rows(hosts, racks, across), 1, label)
        rows = _rack_words(hosts, racks, across)
        if len(rows) <= height:
            return CellMap(order, rows, 1, label)
    label = min(_LABEL_MAX, max((len(hosts[place].name) for place in order), default=0))
    across = max(1, width - label - 1)
    per_cell = max(1, -(-len(order) // (across * max(1, height))))
    cells = [(first, min(first + per_cell, len(order))) for first in range(0, len(order), per_cell)]
    rows = [
        MapRow(hosts[order[cells[at][0]]].name, cells[at : at + across])
        for at in range(0, len(cells), across)
    ]
    return CellMap(order, rows, per_cell, label)


def _rack_rows(hosts: Sequence[HostCell], racks: Sequence[Sequence[int]], across: int) -> list[MapRow]:
    rows, at = [], 0
    for rack in racks:
        for first in range(0, len(rack), across):
            end = min(first + across, len(rack))
            label = hosts[rack[0]].rack if first == 0 else ""
            rows.append(MapRow(label, [(at + number, at + number + 1) for number in range(first, end)]))
        at += len(rack)
    return rows


def _rack_words(hosts: Sequence[HostCell], racks: Sequence[Sequence[int]], across: int) -> list[MapRow]:
    """Racks one after the other as words of a text: none is broken unless it is longer than a line."""
    rows: list[tuple[str, list[tuple[int, int]], set[int]]] = []
    at = used = 0
    for rack in racks:
        fits = bool(rows) and used + 1 + len(rack) <= across
        if fits:
            rows[-1][2].add(len(rows[-1][1]))
            used += 1
        for number in range(at, at + len(rack)):
            if not rows or (not fits and number == at) or used >= across:
                rows.append((hosts[rack[0]].rack, [], set()))
                used = 0
            rows[-1][1].append((number, number + 1))
            used += 1
        at += len(rack)
    return [MapRow(label, cells, frozenset(gaps)) for label, cells, gaps in rows]


def state_of(hosts: Sequence[HostCell], places: Sequence[int]) -> str:
    """What a cell shows: the worst state of its hosts."""
    return worst(hosts[place].shown_state for place in places)


def letter_of(snapshot: HostSnapshot, places: Sequence[int]) -> tuple[str, str]:
    """The letter of a cell, and the state that it stands for."""
    state = state_of(snapshot.hosts, places)
    if state != "late":
        return LETTERS.get(state, OTHER), state
    beats = max(snapshot.late_beats(snapshot.hosts[place]) for place in places)
    return str(min(max(int(beats), 1), _DIGIT_MAX)), state
