"""A loop that was only observed, in a few numbers: what its steps tell without a journal."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.observe.steps import StepRows, read_anchors, read_steps

LOSS = "scalar.loss"


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """Of all starts together."""

    lives: int
    ranks: int
    #: -1 before the first.
    last_step: int
    #: NaN where none was reported.
    loss: float
    #: How the newest start ended, as far as its files tell.
    state: str
    #: Wall time at which the newest start began, in seconds; None where no clock was read.
    at: float | None


def loop_summary(place: Path) -> LoopSummary:
    """Read what its ranks recorded."""
    tables = read_steps(place, columns=(LOSS,))
    newest = max((rows.life for rows in tables), default=-1)
    last = [rows for rows in tables if rows.life == newest]
    walls = [anchor.wall for anchor in read_anchors(place) if anchor.life == newest]
    return LoopSummary(
        lives=newest + 1,
        ranks=len(last),
        last_step=max((int(rows.columns["step"][-1]) for rows in last if len(rows)), default=-1),
        loss=_last_loss(last[0]) if last else float("nan"),
        state="ended" if last and all(rows.is_closed for rows in last) else "running, or killed",
        at=min(walls) / 1e9 if walls else None,
    )


def _last_loss(rows: StepRows) -> float:
    losses = rows.columns.get(LOSS)
    known = np.empty(0) if losses is None else losses[np.isfinite(losses) & (losses > -(2.0**63))]
    return float(known[-1]) if len(known) else float("nan")
