"""Numbers and their vocabulary: tokens that it does not have, tokens that it does not know, and tokens of another one."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Cost, Finding, Tally, TokenCheck
from penstock.view.model.tokens.vocabulary import Vocabulary

#: Shares of tokens that the tokenizer had no word for.
_UNKNOWN_MIN, _UNKNOWN_ERROR = 0.02, 0.2
#: Shares of tokens that are single bytes because the tokenizer had no word for them.
_FALLBACK_MIN = 0.6
#: Documents that are made into tokens again, of how many tokens each, and how many must come out alike.
_AGAIN_MAX, _AGAIN_TOKENS, _AGAIN_MIN = 64, (32, 512), 0.9
_BYTE = ("<0x", ">")


class OutsideVocabulary(TokenCheck):
    """Numbers that the vocabulary does not have."""

    kinds = ("outside-vocabulary",)

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """Tokens that are negative, or as large as the vocabulary or larger."""
        wrong = (batch.tokens < 0) & batch.real
        general = self.expected.vocabulary_size or (1 << 62)
        if not batch.has_origins:
            return wrong | ((batch.tokens >= general) & batch.real)
        for piece in batch.pieces:
            vocabulary = batch.of(piece).vocabulary
            size = general if vocabulary is None else vocabulary.size
            wrong[piece.row, piece.at : piece.stop] |= batch.ids(piece) >= size
        return wrong

    def sentence(self) -> str:
        """How many, and one of them."""
        size = self.expected.vocabulary_size
        of = f" of {size:,}" if size else ""
        return f"{self.tally} tokens are outside of the vocabulary{of}: first {self.example}"


class UnknownTokens(Check):
    """Text that the tokenizer has no words for: unknown tokens, or one token for every byte."""

    kinds = ("unknown-tokens", "byte-fallback")

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._unknown, self._fallback = Tally(), Tally()
        self._bytes: dict[int, frozenset[int]] = {}

    def look(self, batch: CheckedBatch) -> None:
        """Count both."""
        for piece in batch.pieces:
            known = batch.of(piece)
            if known.vocabulary is None:
                continue
            ids = batch.ids(piece)
            for tally, numbers in (
                (self._unknown, known.specials.unknown),
                (self._fallback, self._of(known.vocabulary)),
            ):
                if not numbers:
                    continue
                tally.of += len(ids)
                here = np.isin(ids, list(numbers))
                if count := int(here.sum()):
                    tally.add(batch, piece.row, piece.at + int(here.argmax()), count=count)

    def tell(self, tokens: int) -> list[Finding]:
        """Where it is too much."""
        findings = []
        for tally, kind, what, least in (
            (self._unknown, "unknown-tokens", "are unknown to the tokenizer", _UNKNOWN_MIN),
            (self._fallback, "byte-fallback", "are single bytes", _FALLBACK_MIN),
        ):
            if tally.count and tally.share >= least:
                severity = (
                    "error" if kind == "unknown-tokens" and tally.share >= _UNKNOWN_ERROR else "warning"
                )
                sentence = f"{tally} tokens {what}"
                cost = Cost(tally.share)
                findings.append(self.found(sentence, tally.places, cost, kind=kind, severity=severity))  # type: ignore[arg-type]
        return findings

    def _of(self, vocabulary: Vocabulary) -> frozenset[int]:
        """Tokens that are single bytes in a vocabulary that has other words too."""
        if id(vocabulary) not in self._bytes:
            single_bytes = [
                n for n, text in vocabulary.texts.items() if len(text) == 6 and text.startswith(_BYTE[0])
            ]
            # A vocabulary of bytes alone cannot have anything else.
            words = len(vocabulary.texts) - len(single_bytes)
            self._bytes[id(vocabulary)] = frozenset(single_bytes if words > 1024 else ())
        return self._bytes[id(vocabulary)]


class WrongTokenizer(Check):
    """Stored tokens that are not what their tokenizer makes of what they say: they are another tokenizer's."""

    kinds = ("wrong-tokenizer",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()
        self._alike: defaultdict[str, list[float]] = defaultdict(list)
        self._tokenizers: dict[str, Any] = {}

    def look(self, batch: CheckedBatch) -> None:
        """Make the text of some documents into tokens again."""
        for piece in batch.pieces:
            vocabulary = batch.of(piece).vocabulary
            if piece.made != "stored" or vocabulary is None or len(self._alike[piece.source]) >= _AGAIN_MAX:
                continue
            if piece.length < _AGAIN_TOKENS[0] or vocabulary.style not in ("byte level", "metaspace"):
                continue
            alike = self._again(
                batch.ids(piece)[: _AGAIN_TOKENS[1]], vocabulary, batch.of(piece).specials.every
            )
            if alike is None:
                continue
            self._alike[piece.source].append(alike)
            self._tally.of += 1
            if alike < _AGAIN_MIN:
                self._tally.add(batch, piece.row, piece.at, tokens=piece.length)

    def _again(
        self, ids: npt.NDArray[np.int64], vocabulary: Vocabulary, specials: frozenset[int]
    ) -> float | None:
        """How many of the tokens come out again, in whatever order."""
        kept = [token for token in ids.tolist() if token not in specials]
        text = b"".join(vocabulary.bytes_of(token) or b"" for token in kept).decode("utf-8", "replace")
        path = vocabulary.path
        if len(kept) < _AGAIN_TOKENS[0] or not Path(path).is_file() or Path(path).suffix != ".json":
            return None
        if path not in self._tokenizers:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(path)
            tokenizer.no_truncation()
            tokenizer.no_padding()
            self._tokenizers[path] = tokenizer
        again = self._tokenizers[path].encode(text, add_special_tokens=False).ids
        common = Counter(kept) & Counter(again)
        # Both ends may be in the middle of a word.
        return (sum(common.values()) + 2) / max(len(kept), len(again), 1)

    def tell(self, tokens: int) -> list[Finding]:
        """A source most of whose documents come out differently."""
        findings = []
        for name, shares in self._alike.items():
            alike = float(np.median(shares)) if shares else 1.0
            if len(shares) < 4 or alike >= _AGAIN_MIN:
                continue
            sentence = (
                f"tokens{f' of {name}' if name else ''} are not what the tokenizer makes of their text: "
                f"{alike:.0%} of them come out again"
            )
            findings.append(self.found(sentence, self._tally.places, Cost(1.0), source=name, alike=alike))
        return findings
