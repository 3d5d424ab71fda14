"""The same sample twice in the window that was looked at."""

from penstock._rust import digest
from penstock.view.lint.finding import Check, Finding
from penstock.view.lint.given import Expected, Given
from penstock.view.model.repeats import Stretch, repeats_of

#: Shorter stretches are alike by chance.
_TOKENS_MIN = 8
#: Stretches that are remembered; a window that has more is looked at up to there.
_KEPT_MAX = 2_000_000


class Repeated(Check):
    """See the module's description."""

    kind = "repeated-sample"

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._stretches: list[Stretch] = []
        self._left = 0

    def look(self, given: Given) -> None:
        """Remember what the batch is made of: samples where they are known, else what rows hold."""
        if given.documents is not None:
            found = [stretch for documents in given.documents for _, _, stretch in documents]
        else:
            found = [
                Stretch("row", digest(tokens.tobytes()), 0, len(tokens), given.place(row, None))
                for row in range(len(given.tokens))
                if len(tokens := given.tokens[row][given.real[row]]) >= _TOKENS_MIN
            ]
        room = max(0, _KEPT_MAX - len(self._stretches))
        self._stretches += found[:room]
        self._left += len(found[room:])

    def tell(self) -> list[Finding]:
        """One finding for all of them, with the first."""
        found = repeats_of(self._stretches)
        if not found:
            return []
        first = found[0]
        of = f"{len(self._stretches):,} documents"
        left = f"; {self._left:,} more were not looked at" if self._left else ""
        what = f"row {first.first.sample} of {first.first.source}" if first.first.source != "row" else "a row"
        sentence = (
            f"{len(found):,} of {of} were there before in the same window: first {what}, "
            f"at {first.first.place} and again at {first.again.place}{left}"
        )
        return [self.found(sentence, first.again.place, repeats=len(found), first=first.to_json())]
