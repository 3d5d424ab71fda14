"""Attention across documents: a segment that holds the end of one document and the beginning of another."""

import numpy as np
import numpy.typing as npt

from penstock.view.lint.finding import TokenCheck
from penstock.view.lint.given import Given


class AttentionLeak(TokenCheck):
    """See the module's description."""

    kind = "attention-leak"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """First tokens of documents that stand in the segment of the token before."""
        starts = given.starts(self.expected.bos)
        if not starts.any():
            return None
        # Without segments a row is one segment.
        segments = np.zeros(given.tokens.shape) if given.segments is None else given.segments
        joined = np.zeros(given.tokens.shape, dtype=np.bool_)
        joined[:, 1:] = (segments[:, 1:] == segments[:, :-1]) & given.real[:, :-1]
        return starts & joined

    def of_tokens(self, given: Given) -> int:
        """Out of the documents."""
        return int(given.starts(self.expected.bos).sum())

    def sentence(self) -> str:
        """How many."""
        return (
            f"{self.share} documents begin inside the segment of another one, in {self.rows:,} rows: "
            "attention reaches across them"
        )
