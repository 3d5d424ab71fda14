"""Steps of a life over all of its ranks, one value each: what TensorBoard shows of a run.

A step is as long as on its slowest rank, memory is the largest, tokens are added up, and what the program logged is a mean over ranks: the same as on
every screen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.observe.steps import UNMEASURED
from penstock.report.exports.run_look import RunLook, Stretch
from penstock.report.exports.step_mfu import StepMfu, share

Values = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]
SCALAR = "scalar."
#: What is exported under our own names; the program's names must not begin like them.
OWN = "penstock/"
_MEMORY = {"memory_peak": "memory_peak_bytes", "memory_reserved": "memory_reserved_bytes", "rss": "rss_bytes"}
#: Rows that ranks may be ahead of one that has not told anything: it does not record, and the others are shown without it.
_PATIENCE_ROWS = 1024
#: Steps of a life between two returns; a key is the number of returns, then the step.
_RETURN = 1 << 53


@dataclass(frozen=True, slots=True, eq=False)
class MergedSteps:
    """Steps in the order of their last execution, by name NaN where there is nothing; and where training went back."""

    life: int
    steps: Times
    #: Nanoseconds since 1970 at which the last rank finished each.
    at: Times
    values: dict[str, Values]
    #: Where the program gave a value: what it gave may be NaN.
    is_there: dict[str, npt.NDArray[np.bool_]]
    #: Names of the program that cannot be told from ours.
    foreign: tuple[str, ...]
    #: By rank: when the newest row that is in here began.
    rows: dict[int, int]
    #: And its step, by rank as a word.
    last_steps: dict[str, int]


def merged_steps(look: RunLook, life: int, mfu: StepMfu, newest_step: int) -> MergedSteps | None:
    """New steps of a life that all of its ranks have told about; ``newest_step`` is exported already."""
    pieces = [look.stretch(life, rank) for rank in look.ranks(life)]
    stretches = [piece for piece in pieces if piece is not None and len(piece)]
    is_over = look.is_life_over(life)
    is_missing = len(stretches) < max(_ranks(look, life), len(pieces)) and not is_over
    if not stretches or (is_missing and min(map(len, stretches)) < _PATIENCE_ROWS):
        return None
    more = look.bookmark.more
    # Of the life that is under way: what each rank has told last. In a new life all of them begin anew.
    last_steps = more.get("rank_steps", {}) if life == more.get("life") else None
    kept: list[Stretch] = []
    keys: list[Times] = []
    for stretch in stretches:
        whole = stretch.cut(np.asarray(stretch.columns["end"] != UNMEASURED))
        before = newest_step if last_steps is None else int(last_steps.get(str(stretch.rank), -1))
        key = _keys(np.asarray(whole.columns["step"]), before)
        # Of a rank that is behind: what the others have told without it is out.
        keep = key > newest_step
        kept.append(whole.cut(keep))
        keys.append(key[keep])
    # What only some ranks have told about waits, unless nothing more comes.
    limit = min((int(key[-1]) if len(key) else -1 for key in keys), default=-1)
    rows, last = {}, {}
    for place, (stretch, key) in enumerate(zip(kept, keys, strict=True)):
        is_out = key <= limit if not is_over else np.ones(len(key), bool)
        if is_out.any():
            rows[stretch.rank] = int(stretch.columns["begin"][is_out][-1])
            last[str(stretch.rank)] = int(stretch.columns["step"][is_out][-1])
        is_out &= ~stretch.is_lost
        kept[place], keys[place] = stretch.cut(is_out), key[is_out]
    every = np.unique(np.concatenate(keys)) if keys else np.empty(0, np.int64)
    places = [np.searchsorted(every, key) for key in keys]
    at = np.zeros(len(every), np.int64)
    for stretch, spots in zip(kept, places, strict=True):
        at[spots] = np.maximum(at[spots], stretch.ends)
    values, is_there = _values(kept, places, len(every), mfu)
    names = {
        name.removeprefix(SCALAR) for stretch in kept for name in stretch.columns if name.startswith(SCALAR)
    }
    for name in sorted(names):
        if not name or name.startswith(OWN):
            continue
        values[name], is_there[name] = _logged(kept, places, len(every), SCALAR + name)
    foreign = tuple(sorted(name for name in names if not name or name.startswith(OWN)))
    return MergedSteps(life, every % _RETURN, at, values, is_there, foreign, rows, last)


def _ranks(look: RunLook, life: int) -> int:
    """How many there should be."""
    starts = [entry for entry in look.entries if entry.kind == "start" and entry.incarnation == life]
    counts = [entry.facts.get("ranks") for entry in starts]
    return next((count for count in counts if isinstance(count, int)), 1)


def _keys(steps: Times, before: int) -> Times:
    """Returns so far, then the step."""
    if not len(steps):
        return steps
    is_return = np.concatenate([[steps[0] <= before], steps[1:] <= steps[:-1]])
    return np.asarray(np.cumsum(is_return) * _RETURN + steps)


def _values(
    stretches: Sequence[Stretch], places: Sequence[Times], count: int, mfu: StepMfu
) -> tuple[dict[str, Values], dict[str, npt.NDArray[np.bool_]]]:
    slowest, tokens = np.zeros(count), np.zeros(count)
    useful, executed, ranks = np.zeros(count), np.zeros(count), np.zeros(count)
    memory = {name: np.full(count, np.nan) for name in _MEMORY}
    for stretch, place in zip(stretches, places, strict=True):
        columns = stretch.columns
        slowest[place] = np.maximum(slowest[place], columns["end"] - columns["begin"])
        ranks[place] += 1
        useful[place] += mfu.ideal_ns(columns, "useful")
        executed[place] += mfu.ideal_ns(columns, "executed")
        counted = np.asarray(columns["tokens"], np.float64)
        tokens[place] += np.where(counted < 0, np.nan, counted)
        for name, largest in memory.items():
            column = np.asarray(columns[name], np.float64)
            largest[place] = np.fmax(largest[place], np.where(column < 0, np.nan, column))
    values = {
        f"{OWN}step_s": slowest / 1e9,
        f"{OWN}tokens_per_s": np.divide(tokens, slowest / 1e9, out=np.full(count, np.nan), where=slowest > 0),
        f"{OWN}mfu": share(useful, executed, ranks * slowest),
        **{f"{OWN}{_MEMORY[name]}": largest for name, largest in memory.items()},
    }
    return values, {name: ~np.isnan(column) for name, column in values.items()}


def _logged(
    stretches: Sequence[Stretch], places: Sequence[Times], count: int, name: str
) -> tuple[Values, npt.NDArray[np.bool_]]:
    """The mean over ranks that gave a number; NaN may be one."""
    total, ranks = np.zeros(count), np.zeros(count)
    for stretch, place in zip(stretches, places, strict=True):
        column = stretch.columns.get(name)
        if column is not None:
            is_given = np.asarray(column != UNMEASURED)
            with np.errstate(invalid="ignore"):
                total[place] += np.where(is_given, column, 0.0)
            ranks[place] += is_given
    return np.divide(total, ranks, out=np.zeros(count), where=ranks > 0), ranks > 0
