"""Loss on padding: tokens that are no data, and yet count."""

import numpy as np
import numpy.typing as npt

from penstock.view.lint.finding import TokenCheck
from penstock.view.lint.given import Given


class LossOnPadding(TokenCheck):
    """See the module's description."""

    kind = "loss-on-padding"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """Padding that counts; padding is what the batch says, and every token that is the padding token."""
        if given.loss is None:
            return None
        padding = ~given.real
        if self.expected.pad is not None and self.expected.pad != self.expected.eos:
            padding = padding | (given.tokens == self.expected.pad)
        return padding & given.loss

    def sentence(self) -> str:
        """How many."""
        return f"{self.share} tokens are padding that counts in the loss, in {self.rows:,} rows"
