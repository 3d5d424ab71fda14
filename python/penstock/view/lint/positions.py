"""Positions that go on where a document begins, or jump inside of one."""

import numpy as np
import numpy.typing as npt

from penstock.view.lint.finding import TokenCheck
from penstock.view.lint.given import Given


class PositionsNotReset(TokenCheck):
    """See the module's description."""

    kind = "positions-not-reset"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """First tokens of segments and documents whose position is not 0."""
        if given.positions is None:
            return None
        starts = given.starts(self.expected.bos)
        if given.segments is not None:
            starts = starts | _changes(given.segments)
        wrong: npt.NDArray[np.bool_] = starts & given.real & (given.positions != 0)
        return wrong

    def of_tokens(self, given: Given) -> int:
        """Out of the beginnings."""
        starts = given.starts(self.expected.bos)
        return int((starts if given.segments is None else starts | _changes(given.segments)).sum())

    def sentence(self) -> str:
        """How many."""
        return f"{self.share} documents do not begin at position 0, in {self.rows:,} rows"


class PositionsJump(TokenCheck):
    """Positions inside of a segment that do not go up one by one."""

    kind = "positions-jump"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """Tokens whose position is neither 0 nor one more than the token before has."""
        if given.positions is None:
            return None
        wrong = np.zeros(given.tokens.shape, dtype=np.bool_)
        steps = np.diff(given.positions, axis=1)
        wrong[:, 1:] = (steps != 1) & (given.positions[:, 1:] != 0) & given.real[:, 1:] & given.real[:, :-1]
        return wrong

    def sentence(self) -> str:
        """How many."""
        return f"the positions of {self.share} tokens do not follow the token before, in {self.rows:,} rows"


def _changes(segments: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where segments begin."""
    found = np.ones(segments.shape, dtype=np.bool_)
    found[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return found
