"""Two runs beside each other: which is faster, whose loss is lower, by how much and how surely, and where their bits part.

Step times and losses of neighbouring steps hang together, so an interval is made from blocks of steps and not from steps. It is the one in
which the true difference lies in 95 of 100 cases. Pure (O4).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Blocks of an interval, and of fewer nothing is said; Student's t for 4 to 19 degrees of freedom.
BLOCKS, BLOCKS_MIN = 20, 5
_T = (
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
)
BY = ("step", "tokens", "time")

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRun:
    """What is compared of a run; columns have one value for each of its steps."""

    name: str
    steps: NDArray[np.int64]
    #: Seconds.
    times: Numbers
    #: None where tokens were not recorded.
    tokens: Numbers | None
    #: Of all ranks; NaN where none was reported.
    losses: Numbers
    #: Exactly, by rank; and the digest of the batch.
    loss_bits: list[tuple[str, ...]]
    batches: list[str]
    #: What a start says that decides bits.
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference and how far it may be off."""

    value: float
    margin: float
    blocks: int
    steps: int

    @property
    def is_noise(self) -> bool:
        """Whether nothing may be different."""
        return abs(self.value) <= self.margin

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "value": self.value,
            "margin": self.margin,
            "blocks": self.blocks,
            "steps": self.steps,
            "same_within_noise": self.is_noise,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second run beside the first."""

    names: tuple[str, str]
    by: str
    #: The second's time for a step (or a token) over the first's, less one. None where there are too few steps.
    speed: Interval | None
    #: The second's loss less the first's.
    loss: Interval | None
    common_steps: int
    #: The first step whose losses are not the same bits; None if there is none.
    parted: int | None
    #: What is different up to that step, in words.
    differences: list[str]

    def lines(self) -> list[str]:
        """For people."""
        first, second = self.names
        lines = [_speed_line(self.speed, first, second), _loss_line(self.loss, first, second, self.by)]
        if self.parted is None:
            lines.append(f"bits: losses of all {self.common_steps} common steps are the same")
        else:
            lines.append(f"bits: losses part at step {self.parted}")
        return [*lines, *(f"  before it: {difference}" for difference in self.differences)]

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "form": 1,
            "runs": list(self.names),
            "by": self.by,
            "speed": None if self.speed is None else self.speed.to_json(),
            "loss": None if self.loss is None else self.loss.to_json(),
            "common_steps": self.common_steps,
            "first_differing_step": self.parted,
            "differences": self.differences,
            "lines": self.lines(),
        }


def comparison_of(first: ComparedRun, second: ComparedRun, by: str = "step") -> Comparison:
    """Compare; ``by`` says what is the same in both: the step, the tokens seen, or the time passed."""
    _, ours, theirs = np.intersect1d(first.steps, second.steps, return_indices=True)
    parted = next(
        (
            int(first.steps[one])
            for one, other in zip(ours.tolist(), theirs.tolist(), strict=True)
            if first.loss_bits[one] != second.loss_bits[other]
        ),
        None,
    )
    return Comparison(
        (first.name, second.name),
        by,
        _speed(first, second, ours, theirs, by),
        _loss(first, second, ours, theirs, by),
        len(ours),
        parted,
        [] if parted is None else _differences(first, second, parted),
    )


def _speed(
    first: ComparedRun, second: ComparedRun, ours: np.ndarray, theirs: np.ndarray, by: str
) -> Interval | None:
    """Blocks are left out one after the other: what the ratio does then says how sure it is."""
    # The first step fills queues and caches, and is no example.
    ours, theirs = ours[1:], theirs[1:]
    if by == "tokens" and (first.tokens is None or second.tokens is None):
        return None
    units = [
        run.tokens[place] if by == "tokens" and run.tokens is not None else np.ones(len(place))
        for run, place in ((first, ours), (second, theirs))
    ]
    times = [first.times[ours], second.times[theirs]]
    blocks = np.array_split(np.arange(len(ours)), min(BLOCKS, len(ours) // 2 or 1))
    if len(blocks) < BLOCKS_MIN:
        return None
    sums = np.array([[column[block].sum() for block in blocks] for column in (*times, *units)])

    def ratio(keep: np.ndarray) -> float:
        time_first, time_second, unit_first, unit_second = sums[:, keep].sum(axis=1)
        if min(time_first, unit_first, unit_second) <= 0:
            return math.nan
        return float((time_second / unit_second) / (time_first / unit_first) - 1)

    count = len(blocks)
    without = np.array([ratio(np.arange(count) != block) for block in range(count)])
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    return _interval(ratio(np.ones(count, bool)), error, count, len(ours))


def _loss(
    first: ComparedRun, second: ComparedRun, ours: np.ndarray, theirs: np.ndarray, by: str
) -> Interval | None:
    if by == "step":
        difference = second.losses[theirs] - first.losses[ours]
    else:
        axes = [_axis(run, by) for run in (first, second)]
        if axes[0] is None or axes[1] is None:
            return None
        known = [np.isfinite(run.losses) for run in (first, second)]
        if not known[0].any() or not known[1].any():
            return None
        at, other = axes[0][known[0]], axes[1][known[1]]
        is_common = (at >= other[0]) & (at <= other[-1])
        beside = np.interp(at[is_common], other, second.losses[known[1]])
        difference = beside - first.losses[known[0]][is_common]
    difference = difference[np.isfinite(difference)]
    blocks = np.array_split(difference, min(BLOCKS, len(difference) // 2 or 1))
    if len(blocks) < BLOCKS_MIN:
        return None
    means = np.array([block.mean() for block in blocks])
    error = float(means.std(ddof=1)) / math.sqrt(len(blocks))
    return _interval(float(difference.mean()), error, len(blocks), len(difference))


def _axis(run: ComparedRun, by: str) -> Numbers | None:
    amounts = run.tokens if by == "tokens" else run.times
    return None if amounts is None else np.cumsum(amounts)


def _interval(value: float, error: float, blocks: int, steps: int) -> Interval | None:
    if not (math.isfinite(value) and math.isfinite(error)):
        return None
    return Interval(value, _T[blocks - BLOCKS_MIN] * error, blocks, steps)


def _differences(first: ComparedRun, second: ComparedRun, parted: int) -> list[str]:
    """What was not the same before losses parted: settings, and the first batch that is another one."""
    names = sorted({*first.settings, *second.settings})
    words = [
        f"{name}: {_short(first.settings.get(name))} and {_short(second.settings.get(name))}"
        for name in names
        if first.settings.get(name) != second.settings.get(name)
    ]
    theirs = dict(zip(second.steps.tolist(), second.batches, strict=True))
    for step, batch in zip(first.steps.tolist(), first.batches, strict=True):
        if step <= parted and step in theirs and theirs[step] != batch:
            words.append(f"the batch of step {step}")
            break
    return words or [
        "nothing that was recorded; algorithms that are not deterministic, or the program's own numbers"
    ]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _speed_line(speed: Interval | None, first: str, second: str) -> str:
    if speed is None:
        return "speed: too few common steps to say, or what is compared was not recorded"
    percent, margin = 100 * speed.value, 100 * speed.margin
    if speed.is_noise:
        return f"speed: same within noise ({percent:+.1f} % ± {margin:.1f})"
    return f"speed: {second} is {abs(percent):.1f} % {'slower' if percent > 0 else 'faster'} than {first} ± {margin:.1f}"


def _loss_line(loss: Interval | None, first: str, second: str, by: str) -> str:
    if loss is None:
        return "loss: too few common steps to say, or no loss was reported"
    at = {"step": "at the same step", "tokens": "after the same tokens", "time": "after the same time"}[by]
    if loss.is_noise:
        return f"loss: same within noise {at} ({loss.value:+.3g} ± {loss.margin:.2g})"
    which = "higher" if loss.value > 0 else "lower"
    return f"loss: {second} is {abs(loss.value):.3g} {which} than {first} {at} ± {loss.margin:.2g}"
