"""Numbers that the vocabulary does not have."""

import numpy as np
import numpy.typing as npt

from penstock.view.lint.finding import TokenCheck
from penstock.view.lint.given import Given


class OutsideVocabulary(TokenCheck):
    """See the module's description."""

    kind = "outside-vocabulary"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """Tokens that are negative, or as large as the vocabulary or larger."""
        negative = (given.tokens < 0) & given.real
        if given.sizes is not None:
            sizes = np.where(given.sizes == 0, self.expected.vocabulary_size or (1 << 62), given.sizes)
            return negative | ((given.tokens >= sizes[:, None]) & given.real)
        if self.expected.vocabulary_size is None:
            return negative
        return negative | ((given.tokens >= self.expected.vocabulary_size) & given.real)

    def sentence(self) -> str:
        """How many, and one of them."""
        size = self.expected.vocabulary_size
        return f"{self.share} tokens are outside of the vocabulary{f' of {size:,}' if size else ''}: first {self.example}"
