"""Columns of the steps that count, from a timeline: from its rows, or from its spans where there are none."""

import numpy as np

from penstock.observe.steps.columns import TOLD_PARTS
from penstock.report.accounts.account_names import PART_CODE, STEP_PARTS
from penstock.report.accounts.life_accounts import accounts_of
from penstock.report.accounts.timeline import UNMEASURED, LifeTimeline, RankTimeline, Times
from penstock.report.accounts.undone_steps import COUNTS, undone_steps
from penstock.report.diagnosis.observation import RankSteps


def steps_of(timeline: RankTimeline, steps: range | None = None) -> RankSteps | None:
    """All of them, or those of a range; None where there are none. Steps that are only left as sums are not among them."""
    undone = undone_steps(timeline.lives)
    open_part = timeline.open_part_of_spans
    tables: list[dict[str, Times]] = []
    for life, undone_by in zip(timeline.lives, undone.by_life, strict=True):
        is_row = life.steps.firsts == life.steps.numbers
        keep = (undone_by == COUNTS) & (life.steps.ends != UNMEASURED) & is_row
        if steps is not None:
            keep &= (life.steps.numbers >= steps.start) & (life.steps.numbers < steps.stop)
        if keep.any():
            table = _life_table(life, undone_by, open_part)
            tables.append({name: column[keep] for name, column in table.items()})
    if not tables:
        return None
    names = sorted({name for table in tables for name in table})
    columns = {name: np.concatenate([_column(table, name) for table in tables]) for name in names}
    order = np.argsort(columns["step"], kind="stable")
    return RankSteps(timeline.rank, {name: column[order] for name, column in columns.items()})


def _column(table: dict[str, Times], name: str) -> Times:
    """A column that a life did not record was not measured there."""
    missing = np.full(len(table["step"]), UNMEASURED, np.int64)
    return table.get(name, missing)


def _life_table(life: LifeTimeline, undone_by: Times, open_part: str | None) -> dict[str, Times]:
    table = {
        "step": life.steps.numbers,
        "begin": life.steps.begins,
        "end": life.steps.ends,
        "life": np.full(len(life.steps.numbers), life.number, np.int64),
        **life.steps.others,
        **{f"host.{part}": column for part, column in life.steps.parts.items()},
    }
    for part in TOLD_PARTS:
        column = life.steps.parts.get(part)
        if column is not None and (column != UNMEASURED).any():
            # A part that other steps of the life tell of did not happen in this one, as the optimizer while gradients are accumulated.
            table[f"host.{part}"] = np.where(column == UNMEASURED, 0, column)
    on_device = [name for name in table if name.startswith("device.")]
    if on_device:
        is_marked = np.logical_or.reduce([table[name] != UNMEASURED for name in on_device])
        for name in on_device:
            # A part that a marked step has no mark of did not happen.
            table[name] = np.where(is_marked & (table[name] == UNMEASURED), 0, table[name])
    if not life.steps.parts and open_part is not None:
        _, fine = accounts_of(life, undone_by, None, open_part)
        for part in STEP_PARTS:
            column = np.zeros(len(life.steps.numbers), np.int64)
            is_part = (fine.codes == PART_CODE[part]) & (fine.steps >= 0)
            np.add.at(column, fine.steps[is_part], fine.lengths[is_part])
            table[f"host.{part}"] = column
    return table
