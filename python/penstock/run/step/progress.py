"""How far the program has come with a step, as far as its optimizers tell: what a loop that is left by ``break`` may save, and whether it trains
the batch of a step inside of that step.
"""

import logging
from collections.abc import Sequence
from typing import Any, Literal

from penstock.run.contract import Trainable

_log = logging.getLogger("penstock.run")


class StepProgress:
    """Of the step that is being executed. States that say nothing about their optimizers (``optimizer_progress``) leave it unknown."""

    def __init__(self, state: Trainable) -> None:
        self._now = getattr(state, "optimizer_progress", None)
        #: Steps of the optimizers, and a sign for each gradient or None, when the step began.
        self._before: tuple[int, Sequence[Any]] | None = None
        #: Steps of this life that have ended, as far as they are looked at: two.
        self._ended = 0

    def begin(self) -> None:
        """A step begins."""
        self._before = None if self._now is None else self._now()

    def standing(self, *, reported: bool) -> Literal["whole", "not begun", "unknown"]:
        """``whole``: reported, and the optimizer has stepped. ``not begun``: neither, and no gradient was computed."""
        now = None if self._now is None else self._now()
        if now is None or self._before is None:
            return "unknown"
        steps, signs = now
        has_stepped = steps > self._before[0]
        has_gradient = len(signs) != len(self._before[1]) or any(
            after is not None and after != before
            for after, before in zip(signs, self._before[1], strict=True)
        )
        if reported and has_stepped:
            return "whole"
        return "unknown" if reported or has_stepped or has_gradient else "not begun"

    def end(self, step: int, *, reported: bool) -> None:
        """A step ends. A loop that trains a batch after it has asked for the next one does nothing in its first step, in every life: what it holds back
        is in no checkpoint, and each resume costs a batch. That shows only here.
        """
        if self._ended == 0:
            self._ended = 1 if self.standing(reported=reported) == "not begun" else 2
        elif self._ended == 1:
            self._ended = 2
            if self.standing(reported=reported) != "not begun":
                _log.warning(
                    "nothing was trained in step %d, the first of this life, and step %d trains: a loop that trains the batch before the one that it "
                    "was given loses a batch at every resume; train each batch inside of its own step (a run reads ahead by itself)",
                    step - 1,
                    step,
                )
