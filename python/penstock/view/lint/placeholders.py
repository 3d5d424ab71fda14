"""Loss on what the model is not to say: placeholders of images, audio and video, and prompts."""

import numpy as np
import numpy.typing as npt

from penstock.view.lint.finding import TokenCheck
from penstock.view.lint.given import Given


class _LossOn(TokenCheck):
    def of_tokens(self, given: Given) -> int:
        """Out of the tokens that count."""
        return 0 if given.loss is None else int(given.loss.sum())


class LossOnPlaceholder(_LossOn):
    """Loss on tokens that stand for something else: an image, a sound, a film."""

    kind = "loss-on-placeholder"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """Placeholders that count."""
        if given.loss is None or not self.expected.placeholders:
            return None
        return np.isin(given.tokens, sorted(self.expected.placeholders)) & given.loss

    def sentence(self) -> str:
        """How much of the loss."""
        return f"{self.share} tokens that count in the loss are placeholders, such as token {self.example}"


class LossOnPrompt(_LossOn):
    """Loss on what somebody else than the model says."""

    kind = "loss-on-prompt"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """Prompts that count."""
        return None if given.loss is None or given.prompt is None else given.prompt & given.loss

    def sentence(self) -> str:
        """How much of the loss."""
        return f"{self.share} tokens that count in the loss belong to the prompt"
