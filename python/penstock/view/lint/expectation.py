"""What data should be like, as far as anybody said it; what is not known is not checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.view.lint.specials import Specials, specials_of
from penstock.view.model.tokens.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the caller said about the data, and limits where nothing was said."""

    #: Numbers from here on stand for nothing.
    vocabulary_size: int | None = None
    #: Numbers of special tokens.
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    #: Tokens that must never count in the loss: places of images, of audio, headers of prompts.
    placeholders: frozenset[int] = frozenset()
    #: Whether every document begins (ends) with its special token.
    begins: bool = False
    ends: bool = False
    #: Shares of sources, by name.
    weights: Mapping[str, float] = field(default_factory=dict)
    #: Limits: share of documents cut short, and how far a source's share of the loss may pass its weight.
    truncated_max: float = 0.05
    dominance_max: float = 0.25
    #: Rows after which the data begins again; without it that is guessed from what comes again.
    epoch_rows: int | None = None
    #: Texts that must not be learned (a test set), each with what it is called.
    against: Sequence[tuple[str, str]] = ()
    #: The tokenizer of what nothing else explains.
    vocabulary: Vocabulary | None = None

    def knowing(self, vocabulary: Vocabulary | None) -> "Expected":
        """The same, with what a tokenizer says of its special tokens where nothing else was said."""
        if vocabulary is None:
            return self
        specials = specials_of(vocabulary)
        return replace(
            self,
            vocabulary_size=self.vocabulary_size or vocabulary.size,
            bos=_first(self.bos, specials.begin),
            eos=_first(self.eos, specials.end),
            pad=_first(self.pad, specials.pad),
            placeholders=self.placeholders | specials.placeholder,
            vocabulary=self.vocabulary or vocabulary,
        )

    def specials(self, vocabulary: Vocabulary | None) -> Specials:
        """The special tokens of a tokenizer, and those that were said."""
        known = Specials() if vocabulary is None else specials_of(vocabulary)
        by_use = {
            "begin": known.begin | _one(self.bos),
            "end": known.end | _one(self.eos),
            "pad": known.pad | _one(self.pad),
        }
        # A token that is both fills up rows only where nothing else says so.
        by_use["pad"] -= by_use["end"]
        by_use["begin"] -= by_use["end"]
        every = known.every | by_use["begin"] | by_use["end"] | by_use["pad"] | self.placeholders
        return replace(known, **by_use, placeholder=known.placeholder | self.placeholders, every=every)


def _one(number: int | None) -> frozenset[int]:
    return frozenset() if number is None else frozenset({number})


def _first(known: int | None, candidates: frozenset[int]) -> int | None:
    return min(candidates, default=None) if known is None else known
