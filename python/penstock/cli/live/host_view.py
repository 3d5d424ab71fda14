"""Which part of a job's hosts a person looks at, changed by keys. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.report.hosts.cell_map import CellMap, lay_out
from penstock.report.hosts.playback import Playback
from penstock.report.hosts.snapshot import HostSnapshot

ESCAPE = b"\x1b"
#: What a key does; sequences of arrows first.
_KEYS = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left",
    b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left",
    b"k": "up", b"j": "down", b"l": "right", b"h": "left",
    b"\r": "open", b"\n": "open", ESCAPE: "back", b"q": "back", b"Q": "back", b"\x7f": "back",
    b"\x04": "leave", b"w": "worst",
    b" ": "pause", b"+": "faster", b"=": "faster", b"-": "slower", b"n": "next", b"0": "begin",
}  # fmt: skip
_MOVES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


@dataclass(frozen=True, slots=True)
class HostView:
    """What is shown: all hosts, those of one cell, or one host."""

    #: Hosts that are shown, from the outside in; empty for all.
    zoomed: tuple[tuple[int, ...], ...] = ()
    #: The chosen cell of each of these, and of the innermost.
    cells: tuple[int, ...] = (0,)
    #: The host that is open.
    host: int | None = None
    is_left: bool = False

    @property
    def cell(self) -> int:
        """The chosen one."""
        return self.cells[-1]

    def map_of(self, snapshot: HostSnapshot, width: int, height: int) -> CellMap:
        """Where hosts are shown. Of hosts that are not there any more nothing is."""
        places: Sequence[int] = self.zoomed[-1] if self.zoomed else range(len(snapshot.hosts))
        known = [place for place in places if place < len(snapshot.hosts)]
        return lay_out(snapshot.hosts, known or range(len(snapshot.hosts)), width=width, height=height)

    def after(self, word: str, cells: CellMap, worst: int) -> "HostView":
        """What is shown after a key."""
        if word == "leave":
            return replace(self, is_left=True)
        if word == "back":
            return self._back()
        if self.host is not None:
            return self
        if word in _MOVES:
            right, down = _MOVES[word]
            return self._at(cells.moved(self.cell, right=right, down=down))
        if word == "worst":
            return self._at(worst)
        if word != "open":
            return self
        places = cells.places(min(self.cell, max(cells.cells - 1, 0)))
        if len(places) == 1:
            return replace(self, host=places[0])
        return replace(self, zoomed=(*self.zoomed, tuple(places)), cells=(*self.cells, 0)) if places else self

    def _at(self, cell: int) -> "HostView":
        return replace(self, cells=(*self.cells[:-1], cell))

    def _back(self) -> "HostView":
        if self.host is not None:
            return replace(self, host=None)
        if self.zoomed:
            return replace(self, zoomed=self.zoomed[:-1], cells=self.cells[:-1])
        return replace(self, is_left=True)


def words_of(keys: bytes) -> list[str]:
    """What pressed keys mean; those that mean nothing are left out."""
    words, rest = [], keys
    while rest:
        sign = next(
            (sign for sign in _KEYS if rest.startswith(sign) and (sign != ESCAPE or rest == ESCAPE)), None
        )
        if sign is None:
            # A sequence of a key that means nothing is passed by whole.
            end = next((at + 1 for at in range(2, len(rest)) if 0x40 <= rest[at] <= 0x7E), len(rest))
            rest = rest[end:] if rest[:1] == ESCAPE else rest[1:]
            continue
        words.append(_KEYS[sign])
        rest = rest[len(sign) :]
    return words


def played(playback: Playback, word: str, next_s: float | None) -> Playback:
    """How a job is played after a key."""
    if word == "pause":
        return replace(playback, is_paused=not playback.is_paused)
    if word in ("faster", "slower"):
        return playback.faster(1 if word == "faster" else -1)
    if word == "next" and next_s is not None:
        return playback.at(next_s)
    return playback.at(0.0) if word == "begin" else playback
