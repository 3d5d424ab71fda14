"""Tokens that begin and end texts: doubled, missing, in the middle, or one way here and another there."""

from collections import Counter, defaultdict

import numpy as np
import numpy.typing as npt

from penstock.view.lint.checked_batch import CheckedBatch, trailing
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Cost, Finding, Tally, TokenCheck
from penstock.view.lint.piece import Piece

#: Documents that must have been seen before a rule is claimed.
_DOCUMENTS_MIN = 8
#: Less than this is an accident of single documents.
_DOUBLED_MIN = 0.02
_INSIDE_MIN, _INSIDE_ERROR = 0.001, 0.01
#: Tokens after an end that may follow it, such as a line feed of a template.
_AFTER_MAX = 2
#: Shares between these are neither one convention nor the other.
_NEVER, _ALWAYS = 0.1, 0.9


class DoubledSpecial(TokenCheck):
    """A token that begins (or ends) a document, twice in a row."""

    kinds = ("doubled-special",)

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """Tokens that are the same beginning or end as the token before, in the same document."""
        wrong = np.zeros(batch.tokens.shape, dtype=np.bool_)
        for special in {self.expected.bos, self.expected.eos} - {None}:
            mask = batch.tokens == special
            again = mask[:, 1:] & mask[:, :-1] & batch.real[:, 1:] & batch.real[:, :-1]
            # A run up to the end of the row fills it up.
            runs = trailing(mask)
            again &= ~(runs[:, 1:] & (runs.sum(axis=1) > 2)[:, None])
            wrong[:, 1:] |= again
        if batch.has_origins:
            # An end and a beginning that are the same token stand beside each other rightly.
            for piece in batch.pieces:
                if piece.made != "stored":
                    wrong[piece.row, piece.at] = False
        return wrong

    def of_tokens(self, batch: CheckedBatch) -> int:
        """Out of the documents."""
        return len(batch.pieces)

    def tell(self, tokens: int) -> list[Finding]:
        """Where it is more than an accident."""
        return super().tell(tokens) if self.tally.share >= _DOUBLED_MIN else []

    def cost(self, tokens: int) -> Cost:
        """Of documents."""
        return Cost(self.tally.share, "documents")

    def sentence(self) -> str:
        """How many."""
        return f"token {self.named} stands twice in a row {self.tally.count:,} times, in {self.rows:,} rows"


class MissingSpecial(Check):
    """A document that does not begin, or end, with the token that it should."""

    kinds = ("missing-special",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()

    def look(self, batch: CheckedBatch) -> None:
        """First (last) tokens of documents that are something else."""
        begins = self.expected.begins and self.expected.bos is not None
        ends = self.expected.ends and self.expected.eos is not None
        if not (begins or ends):
            return
        for piece in batch.pieces:
            if not piece.length:
                continue
            self._tally.of += 1
            ids = batch.ids(piece)
            if begins and piece.begins and ids[0] != self.expected.bos:
                self._tally.add(batch, piece.row, piece.at, tokens=piece.length)
            elif ends and piece.ends and not ended(batch, piece):
                self._tally.add(batch, piece.row, piece.stop - 1, tokens=piece.length)

    def tell(self, tokens: int) -> list[Finding]:
        """How many."""
        if not self._tally.count:
            return []
        sentence = f"{self._tally} documents lack the special token that begins or ends them"
        cost = Cost(self._tally.tokens / max(1, tokens))
        return [self.found(sentence, self._tally.places, cost, documents=self._tally.count)]


class EndOfText(Check):
    """No document of a source ends with a token that says so, although the tokenizer has one."""

    kinds = ("no-end-of-text",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tallies: dict[str, Tally] = defaultdict(Tally)
        #: Rows that join documents, by source.
        self._joined: Counter[str] = Counter()

    def look(self, batch: CheckedBatch) -> None:
        """Count documents whose end is here."""
        before: Piece | None = None
        for piece in batch.pieces:
            if piece.made == "chat" or not batch.of(piece).specials.end:
                continue
            tally = self._tallies[piece.source]
            if before is not None and before.row == piece.row:
                self._joined[piece.source] += 1
            before = piece
            if piece.ends and piece.length:
                tally.of += 1
                if not ended(batch, piece):
                    tally.add(batch, piece.row, piece.stop - 1)

    def tell(self, tokens: int) -> list[Finding]:
        """A finding for every source that never ends one."""
        findings = []
        for name, tally in self._tallies.items():
            if tally.of < _DOCUMENTS_MIN or tally.share < 1.0:
                continue
            joined = bool(self._joined[name])
            of = f" of {name}" if name else ""
            sentence = f"none of {tally.of:,} documents{of} ends with a token that ends texts" + (
                ", although rows join them" if joined else ""
            )
            severity = "error" if joined else "warning"
            cost = Cost(1.0, "documents")
            findings.append(
                self.found(sentence, tally.places, cost, severity=severity, source=name, documents=tally.of)  # type: ignore[arg-type]
            )
        return findings


class SpecialInside(Check):
    """Tokens that begin, end or fill up a text, in the middle of a document: its text spells them."""

    kinds = ("special-inside",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()
        self._examples: Counter[str] = Counter()

    def look(self, batch: CheckedBatch) -> None:
        """Documents that a tokenizer made of text."""
        for piece in batch.pieces:
            if piece.made != "text":
                continue
            self._tally.of += 1
            known = batch.of(piece)
            specials = known.specials
            control = (specials.begin | specials.end | specials.pad) - specials.header - specials.placeholder
            ids = batch.ids(piece)
            first = 1 if piece.start == 0 else 0
            here = np.flatnonzero(np.isin(ids[first:-1], list(control))) if control and len(ids) > 2 else ()
            places = [first + int(at) for at in here]
            # Ends at the end, and beginnings at the beginning, are not inside.
            edge = specials.begin | specials.end
            while places and places[0] <= 1 and all(int(token) in edge for token in ids[: places[0]]):
                places.pop(0)
            while places and all(int(token) in edge for token in ids[places[-1] :]):
                places.pop()
            if places:
                self._tally.add(batch, piece.row, piece.at + places[0], tokens=piece.length)
                if known.vocabulary is not None:
                    self._examples[known.vocabulary.added.get(int(ids[places[0]]), "")] += 1

    def tell(self, tokens: int) -> list[Finding]:
        """Where documents are cut in two by it."""
        tally = self._tally
        if tally.share < _INSIDE_MIN or not tally.count:
            return []
        names = ", ".join(repr(name) for name, _ in self._examples.most_common(3))
        sentence = f"{tally} documents have control tokens in their middle: {names}"
        severity = "error" if tally.share >= _INSIDE_ERROR and tally.count > 1 else "warning"
        cost = Cost(tally.tokens / max(1, tokens))
        return [self.found(sentence, tally.places, cost, severity=severity, documents=tally.count)]  # type: ignore[arg-type]


class MixedBoundaries(Check):
    """Documents of one source begin with a special token, those of another do not; or half of a source's do."""

    kinds = ("mixed-specials",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._begun: dict[str, Tally] = defaultdict(Tally)
        self._without: dict[str, str] = {}

    def look(self, batch: CheckedBatch) -> None:
        """Count beginnings by source."""
        for piece in batch.pieces:
            begin = batch.of(piece).specials.begin
            if not begin or not piece.begins or not piece.length:
                continue
            tally = self._begun[piece.source]
            tally.of += 1
            if int(batch.ids(piece)[0]) in begin:
                tally.add(batch, piece.row, piece.at)
            else:
                self._without.setdefault(piece.source, batch.place(piece.row, piece.at))

    def tell(self, tokens: int) -> list[Finding]:
        """Where conventions differ."""
        seen = {name: tally for name, tally in self._begun.items() if tally.of >= _DOCUMENTS_MIN}
        always = [name for name, tally in seen.items() if tally.share >= _ALWAYS]
        never = [name for name, tally in seen.items() if tally.share <= _NEVER]
        total = sum(tally.of for tally in seen.values())
        findings = []
        if always and never:
            sentence = (
                f"documents of {', '.join(f'{name} ({seen[name].of:,})' for name in always)} begin with a special token, "
                f"those of {', '.join(f'{name} ({seen[name].of:,})' for name in never)} do not"
            )
            less = min(sum(seen[name].of for name in names) for names in (always, never))
            cost = Cost(less / max(1, total), "documents")
            places = [self._without[never[0]], seen[always[0]].places[0]]
            findings.append(
                self.found(sentence, places, cost, severity="warning", always=always, never=never)
            )
        for name, tally in seen.items():
            if _NEVER < tally.share < _ALWAYS:
                sentence = f"{tally} documents{f' of {name}' if name else ''} begin with a special token, the others do not"
                cost = Cost(min(tally.share, 1 - tally.share) * tally.of / max(1, total), "documents")
                places = [self._without[name], *tally.places[:2]]
                findings.append(self.found(sentence, places, cost, severity="warning", source=name))
        return findings


def ended(batch: CheckedBatch, piece: Piece) -> bool:
    """Whether a document ends with a token that ends texts or turns, or a separator follows it."""
    ends = batch.of(piece).specials.ends
    row = batch.tokens[piece.row]
    last = row[max(piece.at, piece.stop - 1 - _AFTER_MAX) : piece.stop]
    follows = piece.stop < len(row) and batch.real[piece.row, piece.stop] and int(row[piece.stop]) in ends
    # What follows may be the next document's own beginning where both are the same token.
    return bool(set(last.tolist()) & ends) or bool(follows and batch.has_origins and _is_gap(batch, piece))


def _is_gap(batch: CheckedBatch, piece: Piece) -> bool:
    """Whether the token after a piece belongs to no document."""
    return not any(other.row == piece.row and other.at == piece.stop for other in batch.pieces)
