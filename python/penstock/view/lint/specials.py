"""Special tokens that begin and end documents: doubled, or missing."""

import numpy as np
import numpy.typing as npt

from penstock.view.lint.finding import TokenCheck
from penstock.view.lint.given import Given


class DoubledSpecial(TokenCheck):
    """A token that begins (or ends) a document, twice in a row."""

    kind = "doubled-special"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """Tokens that are the same beginning or end as the token before, in the same document."""
        wrong = np.zeros(given.tokens.shape, dtype=np.bool_)
        for special in {self.expected.bos, self.expected.eos} - {None}:
            again = (given.tokens[:, 1:] == special) & (given.tokens[:, :-1] == special)
            wrong[:, 1:] |= again & given.real[:, 1:] & given.real[:, :-1]
        if given.documents is not None:
            # An end and a beginning that are the same token stand beside each other rightly.
            wrong &= ~given.starts(None)
        return wrong

    def sentence(self) -> str:
        """How many."""
        return f"token {self.example} stands twice in a row {self.count:,} times, in {self.rows:,} rows"


class MissingSpecial(TokenCheck):
    """A document that does not begin, or end, with the token that it should."""

    kind = "missing-special"

    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """First (last) tokens of documents that are something else."""
        wrong = np.zeros(given.tokens.shape, dtype=np.bool_)
        begins = self.expected.begins and self.expected.bos is not None
        ends = self.expected.ends and self.expected.eos is not None
        if not (begins or ends):
            return None
        for row, first, last, whole in _documents(given):
            if begins and whole[0] and given.tokens[row, first] != self.expected.bos:
                wrong[row, first] = True
            if ends and whole[1] and given.tokens[row, last] != self.expected.eos:
                wrong[row, last] = True
        return wrong

    def of_tokens(self, given: Given) -> int:
        """Out of the documents."""
        return len(_documents(given))

    def sentence(self) -> str:
        """How many."""
        return (
            f"{self.share} documents lack the special token that begins or ends them, in {self.rows:,} rows"
        )


def _documents(given: Given) -> list[tuple[int, int, int, tuple[bool, bool]]]:
    """Row, first and last token of every document, and whether its beginning and its end are here."""
    found = []
    for row in range(len(given.tokens)):
        filled = int(given.real[row].sum())
        if given.documents is not None:
            # What stops before the end of the row stops because the document does.
            found += [
                (row, first, stop - 1, (stretch.start == 0, stop < filled))
                for first, stop, stretch in given.documents[row]
                if stop > first
            ]
        elif filled and given.segments is None:
            found.append((row, 0, filled - 1, (True, filled < given.tokens.shape[1])))
        elif filled and given.segments is not None:
            edges = np.flatnonzero(np.diff(given.segments[row, :filled])) + 1
            starts, stops = [0, *edges.tolist()], [*edges.tolist(), filled]
            found += [
                (row, start, stop - 1, (start > 0, stop < filled))
                for start, stop in zip(starts, stops, strict=True)
            ]
    return found
