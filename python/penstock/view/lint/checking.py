"""All checks over batches: Penstock's own, rebuilt from a recipe, or what a training loop gets after its own collate."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.data.stages import Chat, Tokenize, Truncate
from penstock.errors import FeedClosed, UsageError
from penstock.registry.template import find_template
from penstock.view.address import at
from penstock.view.lint.dominating import Dominating
from penstock.view.lint.finding import Check, Finding
from penstock.view.lint.given import Expected, Given, given_of
from penstock.view.lint.leaking import AttentionLeak
from penstock.view.lint.lossless import RowWithoutLoss
from penstock.view.lint.outside import OutsideVocabulary
from penstock.view.lint.padding import LossOnPadding
from penstock.view.lint.placeholders import LossOnPlaceholder, LossOnPrompt
from penstock.view.lint.positions import PositionsJump, PositionsNotReset
from penstock.view.lint.repeating import Repeated
from penstock.view.lint.specials import DoubledSpecial, MissingSpecial
from penstock.view.lint.truncating import TruncatedShare
from penstock.view.model.batch import BatchView
from penstock.view.model.repeats import Stretch
from penstock.view.model.samples import TEMPLATE, Samples
from penstock.view.model.vocabulary import tokenizing
from penstock.view.opening import OpenedStream

CHECKS: tuple[type[Check], ...] = (
    LossOnPadding,
    LossOnPlaceholder,
    LossOnPrompt,
    AttentionLeak,
    PositionsNotReset,
    PositionsJump,
    TruncatedShare,
    Repeated,
    OutsideVocabulary,
    DoubledSpecial,
    MissingSpecial,
    RowWithoutLoss,
    Dominating,
)
KINDS = tuple(check.kind for check in CHECKS)
#: Batches that are looked at, at most.
BATCHES_MAX = 100_000
#: Documents whose roles, and samples whose lengths, are looked up; beyond that they are taken to be good, and that is said.
LOOKED_MAX = 2_000
_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass
class LintReport:
    """What was found, and in how much."""

    findings: list[Finding]
    batches: int = 0
    rows: int = 0
    tokens: int = 0
    #: What was not looked at, in words.
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "findings": [each.to_json() for each in self.findings],
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
    """Check batches that anybody made: mappings of arrays or tensors, as a model gets them. See ``given`` for the names."""
    wanted = expected or Expected()
    linting = _Linting(wanted, allow)
    for number, batch in enumerate(batches):
        if number == batches_max:
            linting.report.notes.append(f"only the first {batches_max:,} batches were looked at")
            break
        linting.look(given_of(batch, number, wanted.pad))
    return linting.end()


def lint_stream(
    stream: OpenedStream, steps: range, expected: Expected | None = None, *, allow: Collection[str] = ()
) -> LintReport:
    """Check the steps of a recipe or a run, on the lane that its address names."""
    wanted = expected or Expected()
    for vocabulary in stream.vocabularies:
        wanted = wanted.knowing(vocabulary)
    stages = [tokenizing(stream.plan.recipe.stages_of(each.source)) for each in stream.plan.prepared]
    if all(isinstance(stage, Tokenize) and stage.add_special for stage in stages):
        # The tokenizer was asked to put them there.
        wanted = replace(wanted, begins=wanted.begins or wanted.bos is not None)
    linting, looking = _Linting(wanted, allow), _Looking(stream)
    for step in steps:
        try:
            view = stream.batch(step)
        except FeedClosed as reason:
            linting.report.notes.append(f"step {step}: {reason}")
            if "left out" in str(reason):
                continue
            break
        if not isinstance(view, BatchView):
            raise UsageError("records have no tokens, so there is nothing that lint would look at")
        linting.look(looking.given(view, step))
    linting.report.notes += looking.notes()
    return linting.end()


class _Linting:
    def __init__(self, expected: Expected, allow: Collection[str]) -> None:
        unknown = sorted(set(allow) - set(KINDS))
        if unknown:
            raise UsageError(f"there is no check {unknown[0]!r}", hint=f"there are {', '.join(KINDS)}")
        self._checks = [check(expected) for check in CHECKS if check.kind not in allow]
        self.report = LintReport([])

    def look(self, given: Given) -> None:
        for check in self._checks:
            check.look(given)
        self.report.batches += 1
        self.report.rows += len(given.tokens)
        self.report.tokens += given.tokens.size

    def end(self) -> LintReport:
        self.report.findings = [finding for check in self._checks for finding in check.tell()]
        return self.report


class _Looking:
    """Makes what checks look at from the batches of a stream."""

    def __init__(self, stream: OpenedStream) -> None:
        self._stream = stream
        self._samples = Samples(stream.plan, stream.vocabularies)
        recipe = stream.plan.recipe
        stages = [recipe.stages_of(each.source) for each in stream.plan.prepared]
        self._limits = [next((s.length for s in each if isinstance(s, Truncate)), None) for each in stages]
        self._stored = [tokenizing(each) is None for each in stages]
        self._roles = [_trained(tokenizing(each)) for each in stages]
        self._looked: dict[str, int] = {"roles": 0, "lengths": 0}
        self._left: dict[str, int] = {"roles": 0, "lengths": 0}

    def notes(self) -> list[str]:
        """What was not looked at."""
        return [
            f"the {what} of {count:,} documents were not looked at, only those of the first {LOOKED_MAX:,}"
            for what, count in self._left.items()
            if count
        ]

    def given(self, view: BatchView, step: int) -> Given:
        """A batch with its documents."""
        arrays = view.arrays
        documents = [view.documents.of_row(row) for row in range(view.rows)]

        def place(row: int, token: int | None) -> str:
            # The stream's own address has the step already.
            return str(at(view.address, row=row, token=token))  # type: ignore[arg-type]

        sources = [view.sources[each[0].source].alias if each else "" for each in documents]
        sizes = [
            0 if not each or (known := view.sources[each[0].source].vocabulary) is None else known.size
            for each in documents
        ]
        stretches = [
            [
                (
                    each.at,
                    each.stop,
                    Stretch(
                        view.sources[each.source].version,
                        each.sample,
                        each.start,
                        each.start + each.stop - each.at,
                        place(row, each.at),
                    ),
                )
                for each in of_row
            ]
            for row, of_row in enumerate(documents)
        ]
        return Given(
            tokens=np.asarray(arrays["tokens"]).astype(np.int64),
            real=np.asarray(arrays["segments"]) != 0,
            place=place,
            loss=np.asarray(arrays["loss_mask"]) != 0,
            segments=np.asarray(arrays["segments"]).astype(np.int64),
            positions=np.asarray(arrays["positions"]).astype(np.int64),
            prompt=self._prompt(view, documents),
            documents=stretches,
            stored=np.array([bool(each) and self._stored[each[0].source] for each in documents]),
            sources=sources,
            weights=self._stream.plan.recipe.weights_at(step),
            truncated=self._truncated(documents),
            sizes=np.array(sizes, dtype=np.int64),
        )

    def _prompt(self, view: BatchView, documents: list[list[Any]]) -> Any:
        """Tokens of conversations that a role says on which nothing is to be learned."""
        if not any(self._roles):
            return None
        found = np.zeros((view.rows, view.length), dtype=np.bool_)
        for row, of_row in enumerate(documents):
            for each in of_row:
                trained = self._roles[each.source]
                if trained is None or not self._may("roles"):
                    continue
                roles = self._samples.roles(each)[each.start : each.start + each.stop - each.at]
                said = [role != TEMPLATE and role not in trained for role in roles]
                found[row, each.at : each.at + len(said)] = said
        return found

    def _truncated(self, documents: list[list[Any]]) -> tuple[int, int] | None:
        if not any(self._limits):
            return None
        cut = count = 0
        for each in (each for of_row in documents for each in of_row):
            limit = self._limits[each.source]
            prepared = self._stream.plan.prepared[each.source]
            if limit is None or prepared.growing is not None or not self._may("lengths"):
                continue
            count += 1
            cut += len(next(iter(prepared.tokens[each.sample].values()))) > limit
        return cut, count

    def _may(self, what: str) -> bool:
        kept = self._looked if self._looked[what] < LOOKED_MAX else self._left
        kept[what] += 1
        return kept is self._looked


def _trained(stage: Tokenize | Chat | None) -> set[str] | None:
    """The roles on which something is learned; None where the template itself says what counts, or where there are no roles."""
    if not isinstance(stage, Chat):
        return None
    template = find_template(Path(stage.tokenizer), stage.template)
    return None if _MARKED.search(template.text) else set(stage.train_on)
