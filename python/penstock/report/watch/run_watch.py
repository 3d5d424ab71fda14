"""One run watched: its ranks as they are now, and its figures. A refresh reads what was added since the last one."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.observe.steps.clock import boot_id, boottime_ns
from penstock.observe.steps.columns import FOLDER
from penstock.observe.steps.flop_record import read_flop_notes
from penstock.observe.steps.reader import step_files
from penstock.report.watch.rank_rows import RankRows, RankState
from penstock.report.watch.recent_speed import recent_speed
from penstock.report.watch.run_figures import Figures, RunFigures

#: Refreshes without anything new after which everything is read once more: what is written last, such as how a life ended, has come by then.
_QUIET = 2
#: Seconds after which the files that name devices are read again, although their folder has not changed.
_NOTES_S = 30.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment."""

    name: str
    path: Path
    ranks: list[RankState]
    figures: Figures
    #: By rank: seconds since its last step ended; since the life began to be watched, where none did.
    ages_s: dict[int, float]
    #: Seconds of a usual step lately; None before there are any.
    usual_step_s: float | None
    #: MFU and tokens a second of the last rows alone, None where they are not known; and whether that MFU is impossible.
    recent_mfu: float | None
    recent_tokens_per_s: float | None
    impossible: str
    #: Whether the run's directory is gone.
    is_gone: bool = False

    @property
    def is_running(self) -> bool:
        """Whether a rank may still write."""
        return any(not rank.is_over for rank in self.ranks)


class RunWatch:
    """Follows the newest life of every rank below a run's directory."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or path.name or str(path)
        self._folder_stamp: tuple[int, ...] = ()
        self._followed: dict[int, RankRows] = {}
        self._ranks: list[int] = []
        self._figures = RunFigures(path)
        self._notes_not_before = 0.0
        self._quiet = 0
        #: When a rank was last seen to move; seconds of the monotonic clock.
        self._moved: dict[int, float] = {}

    def refresh(self, *, at_once: bool = False) -> Snapshot:
        """Look, and say what is seen; ``at_once``: with figures of this moment, whatever that takes."""
        is_gone = not self._list_files()
        moved = self._look()
        self._quiet = 0 if moved else self._quiet + 1
        if self._quiet == _QUIET and self._followed:
            self._figures.forget()
        followed = [self._followed[rank] for rank in sorted(self._followed)]
        if time.monotonic() >= self._notes_not_before or at_once:
            self._notes_not_before = time.monotonic() + _NOTES_S
            self._figures.notes = read_flop_notes(self.path)
        if not is_gone:
            self._figures.refresh(followed, self._ranks, at_once=at_once)
        states = [rows.state for rows in followed]
        newest = max((state.life for state in states), default=0)
        for state in states:
            state.is_replaced = state.life < newest
        recent = recent_speed(followed, self._figures.notes)
        return Snapshot(
            name=self.name,
            path=self.path,
            ranks=states,
            figures=self._figures.figures,
            ages_s={state.rank: self._age_s(state) for state in states},
            usual_step_s=recent.usual_step_s,
            recent_mfu=recent.mfu,
            recent_tokens_per_s=recent.tokens_per_s,
            impossible=recent.impossible or _impossible(self._figures.figures),
            is_gone=is_gone,
        )

    def _list_files(self) -> bool:
        """Follow the newest file of each rank. Names are read only when the folder has changed. False where the run is gone."""
        folder = self.path / FOLDER
        try:
            about = os.stat(folder)
        except OSError:
            self._begin_anew()
            return self.path.is_dir()
        stamp = (about.st_ino, about.st_mtime_ns)
        if self._folder_stamp and self._folder_stamp[0] != about.st_ino:
            self._begin_anew()
        # Two changes within one tick of the file system's clock look like one.
        is_old = time.time_ns() - about.st_mtime_ns > 1_000_000_000
        if stamp == self._folder_stamp and is_old:
            return True
        self._folder_stamp = stamp
        self._notes_not_before = 0.0
        newest: dict[int, tuple[int, Path]] = {}
        try:
            for life, rank, path in step_files(self.path):
                newest[rank] = (life, path)
        except OSError:
            return self.path.is_dir()
        self._ranks = sorted(newest)
        for rank, (life, path) in newest.items():
            rows = self._followed.get(rank)
            if rows is None or rows.key != (life, rank, path.name):
                before = None if rows is None else rows.state
                self._followed[rank] = RankRows(life, rank, path)
                if before is not None:
                    self._followed[rank].state.not_finite = before.not_finite
                self._moved[rank] = time.monotonic()
                self._figures.forget()
        return True

    def _begin_anew(self) -> None:
        """What was followed is gone; whatever comes in its place is another run."""
        self._followed.clear()
        self._ranks, self._folder_stamp = [], ()
        self._figures.forget()

    def _look(self) -> bool:
        """Whether anything moved."""
        moved = False
        for rank, rows in self._followed.items():
            seen, closed = rows.state.steps_seen, rows.state.is_closed
            settled = rows.look()
            if rows.state.steps_seen != seen:
                self._moved[rank] = time.monotonic()
            moved |= rows.state.steps_seen != seen or rows.state.is_closed != closed
            if rows.is_broken:
                rows.is_broken = False
                self._figures.forget()
            elif settled is not None:
                self._figures.settle(settled)
        return moved

    def _age_s(self, state: RankState) -> float:
        """By the boot's clock where it is ours; else since the watch last saw it move."""
        if state.ended_ns is not None and state.boot_id == boot_id():
            return max(0.0, (boottime_ns() - state.ended_ns) / 1e9)
        return time.monotonic() - self._moved.get(state.rank, time.monotonic())


def _impossible(figures: Figures) -> str:
    return str(figures.mfu.get("reason", "")) if "impossible" in figures.mfu else ""
