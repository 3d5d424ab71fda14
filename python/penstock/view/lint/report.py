"""All checks over batches, one after another, and what they found: ranked by what it costs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.errors import UsageError
from penstock.view.lint.checked_batch import CheckedBatch, Known, checked_batch_of
from penstock.view.lint.checks import CHECKS
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Finding
from penstock.view.lint.kinds import KINDS
from penstock.view.lint.piece import pieces_of_row

#: Batches that are looked at, at most.
BATCHES_MAX = 100_000
AnyCheck = TypeVar("AnyCheck", bound=Check)


@dataclass
class LintReport:
    """What was found, and in how much."""

    #: Errors first; then what spoils most comes first.
    findings: list[Finding]
    batches: int = 0
    rows: int = 0
    tokens: int = 0
    #: What was not looked at, in words.
    notes: list[str] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "batches": self.batches,
            "rows": self.rows,
            "tokens": self.tokens,
            "notes": self.notes,
        }


def lint_batches(
    batches: Iterable[Mapping[str, Any]],
    expected: Expected | None = None,
    *,
    allow: Collection[str] = (),
    batches_max: int = BATCHES_MAX,
) -> LintReport:
    """Check batches that anybody made: mappings of arrays or tensors, as a model gets them. See ``checked_batch`` for the names.

    ``Expected().knowing(read_vocabulary(path))`` says which tokenizer they are of; without one only numbers are looked at.
    """
    wanted = expected or Expected()
    linting = Linting(wanted, allow)
    known = {"": Known(wanted.vocabulary, wanted.specials(wanted.vocabulary))}
    for number, batch in enumerate(batches):
        if number == batches_max:
            linting.report.notes.append(f"only the first {batches_max:,} batches were looked at")
            break
        checked = checked_batch_of(batch, number, wanted.pad)
        pieces = [
            piece
            for row in range(len(checked.tokens))
            for piece in pieces_of_row(
                row,
                checked.tokens[row],
                checked.real[row],
                None if checked.segments is None else checked.segments[row],
                known[""].specials,
            )
        ]
        if checked.sources is not None:
            pieces = [replace(piece, source=checked.sources[piece.row]) for piece in pieces]
        linting.look(replace(checked, pieces=pieces, known=known))
    return linting.end()


class Linting:
    """Checks at work."""

    def __init__(self, expected: Expected, allow: Collection[str]) -> None:
        unknown = sorted(set(allow) - set(KINDS))
        if unknown:
            raise UsageError(f"unknown check {unknown[0]!r}", hint=f"there are {', '.join(KINDS)}")
        self._allow = frozenset(allow)
        self._checks = [check(expected) for check in CHECKS if set(check.kinds) - self._allow]
        self.report = LintReport([])

    def check(self, kind: type[AnyCheck]) -> AnyCheck | None:
        """A check that is told more than batches; None where it is allowed."""
        return next((candidate for candidate in self._checks if isinstance(candidate, kind)), None)

    def look(self, batch: CheckedBatch) -> None:
        """Look at a batch."""
        for check in self._checks if batch.tokens.size else ():
            check.look(batch)
        self.report.batches += 1
        self.report.rows += len(batch.tokens)
        self.report.tokens += batch.tokens.size

    def end(self) -> LintReport:
        """What was found, the worst first."""
        self.report.findings = sorted(
            self._findings(),
            key=lambda finding: (finding.severity != "error", -finding.cost, list(KINDS).index(finding.kind)),
        )
        return self.report

    def _findings(self) -> Iterator[Finding]:
        seen: set[tuple[str, object]] = set()
        for check in self._checks:
            for finding in check.tell(self.report.tokens):
                # Two checks may find the same by different signs.
                key = (finding.kind, str(finding.values.get("source", finding.values.get("sources"))))
                if finding.kind not in self._allow and key not in seen:
                    seen.add(key)
                    yield finding
