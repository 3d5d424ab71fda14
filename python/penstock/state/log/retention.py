"""Which checkpoints to keep. Pure: from a history and a wish to the numbers of the commits that may go."""

from dataclasses import dataclass
from math import isfinite

from penstock.errors import UsageError
from penstock.state.log.history import Committed, History


@dataclass(frozen=True, slots=True)
class Best:
    """Those with the lowest (or highest) value of a metric that was committed with them."""

    metric: str
    count: int = 1
    highest: bool = False

    def __post_init__(self) -> None:
        if not self.metric:
            raise UsageError("Best needs the name of a metric, got an empty one")
        if self.count < 1:
            raise UsageError(f"count must be at least 1, got {self.count}")


@dataclass(frozen=True, slots=True)
class Keep:
    """What to keep. A checkpoint stays if any of the wishes names it."""

    #: The last ones in the log.
    last: int = 3
    #: The first of every so many steps, for good.
    every: int | None = None
    #: These steps, for good.
    at: tuple[int, ...] = ()
    best: Best | None = None
    #: How often pieces are written that several checkpoints share: with 2, once more in a file of its own, which loads fall back to.
    copies: int = 1

    def __post_init__(self) -> None:
        if self.copies not in (1, 2):
            raise UsageError(f"copies must be 1 or 2, got {self.copies}")
        if self.last < 1:
            raise UsageError(f"last must be at least 1, got {self.last}")
        if self.every is not None and self.every < 1:
            raise UsageError(f"every must be positive, got {self.every}", hint="use a number from 1, or None")
        if any(step < 0 for step in self.at):
            raise UsageError(f"at must be steps from 0 on, got {self.at}")
        object.__setattr__(self, "at", tuple(self.at))


def to_retire(history: History, keep: Keep) -> tuple[int, ...]:
    """Numbers of the commits that nobody wishes to keep.

    Never the newest good one (S7), never a pinned one, and nothing at all while no checkpoint is good. Damaged ones stay
    for looking at until as many good ones as are kept anyway have followed them. What stands before a record that is lost stays
    until that is repaired: it may have been a pin.
    """
    good = history.good()
    if not good:
        return ()
    last = good[-keep.last :]
    kept = {committed.number for committed in last}
    kept |= {committed.number for committed in _periodic(good, keep.every)}
    kept |= {chosen.number for step in keep.at if (chosen := history.at_step(step)) is not None}
    kept |= {committed.number for committed in _best(good, keep.best)}
    oldest = last[0].number if len(last) == keep.last else -1
    kept |= {committed.number for committed in history.quarantined() if committed.number > oldest}
    after = max(history.lost, default=-1)
    return tuple(
        committed.number
        for committed in history.checkpoints()
        if committed.number not in kept and not committed.pins and committed.number > after
    )


def _periodic(good: list[Committed], every: int | None) -> list[Committed]:
    """The lowest step of each period; of two saves of a step the later one, as the run went back and did it again."""
    if every is None:
        return []
    first: dict[int, Committed] = {}
    for committed in good:
        known = first.get(committed.step // every)
        if known is None or committed.step <= known.step:
            first[committed.step // every] = committed
    return list(first.values())


def _best(good: list[Committed], best: Best | None) -> list[Committed]:
    if best is None:
        return []
    sign = -1 if best.highest else 1
    measured = [
        (sign * value, -committed.number, committed)
        for committed in good
        if (value := committed.commit.metrics.get(best.metric)) is not None and isfinite(value)
    ]
    return [committed for _, _, committed in sorted(measured, key=lambda item: item[:2])[: best.count]]
