"""Lint of what a recipe or a run gives: batches rebuilt at any steps, with documents, roles, tokenizers and epochs as the plan knows them."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from penstock.data.plan.plan import Prepared
from penstock.data.stages import Chat, Filter, Pack, Stage, Tokenize, Truncate
from penstock.errors import FeedClosed, UsageError
from penstock.registry.tokenize.template import find_template
from penstock.view.address import VersionAddress, at
from penstock.view.lint.checked_batch import CheckedBatch, Known
from penstock.view.lint.checks.conversation import Roles
from penstock.view.lint.checks.mixture import SameSource
from penstock.view.lint.checks.size import EmptyDocuments
from penstock.view.lint.expectation import Expected
from penstock.view.lint.piece import Making, Piece, split
from penstock.view.lint.report import Linting, LintReport
from penstock.view.lint.specials import Specials
from penstock.view.model.tokens.batch import BatchView
from penstock.view.model.tokens.documents import Document
from penstock.view.model.tokens.samples import TEMPLATE, Samples
from penstock.view.model.tokens.vocabulary import Vocabulary, tokenizing
from penstock.view.opener import OpenedStream

#: Documents whose roles, and samples whose lengths, are looked up; beyond that they are taken to be good, and that is said.
LOOKED_MAX = 2_000
#: Samples of a version that are looked at to see how many are empty.
_SAMPLED_MAX = 1_000
_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")


def lint_stream(
    stream: OpenedStream, steps: range, expected: Expected | None = None, *, allow: Collection[str] = ()
) -> LintReport:
    """Check the steps of a recipe or a run, on the lane that its address names."""
    wanted = expected or Expected()
    for vocabulary in stream.vocabularies:
        wanted = wanted.knowing(vocabulary)
    linting = Linting(wanted, allow)
    looking = _Looking(stream, wanted, linting)
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
        linting.look(looking.checked_batch(view, step))
    looking.look_at_sources()
    linting.report.notes += looking.notes()
    return linting.end()


class _Looking:
    """Makes what checks look at from the batches of a stream."""

    def __init__(self, stream: OpenedStream, expected: Expected, linting: Linting) -> None:
        self._stream = stream
        self._linting = linting
        self._samples = Samples(stream.plan, stream.vocabularies)
        recipe = stream.plan.recipe
        stages = [recipe.stages_of(prepared.source) for prepared in stream.plan.prepared]
        self._limits = [
            next((s for s in source_stages if isinstance(s, Truncate)), None) for source_stages in stages
        ]
        self._tokenizing = [tokenizing(source_stages) for source_stages in stages]
        self._roles = [_trained(stage) for stage in self._tokenizing]
        self._known = {
            prepared.source.alias: Known(vocabulary, _specials(expected, of_source, vocabulary))
            for prepared, of_source, vocabulary in zip(
                stream.plan.prepared, stages, stream.vocabularies, strict=True
            )
        }
        self._conversations: set[tuple[int, int]] = set()
        self._epochs: set[tuple[str, int]] = set()
        self._looked: dict[str, int] = {"roles": 0, "lengths": 0, "messages": 0}
        self._left: dict[str, int] = {"roles": 0, "lengths": 0, "messages": 0}

    def notes(self) -> list[str]:
        """What was not looked at, and what the window holds."""
        left = [
            f"the {what} of {count:,} documents were not looked at, only those of the first {LOOKED_MAX:,}"
            for what, count in self._left.items()
            if count
        ]
        names = sorted({name for name, _ in self._epochs})
        epochs = {name: sum(alias == name for alias, _ in self._epochs) for name in names}
        return left + [
            f"the steps hold {count} epochs of {name}, or parts of them"
            for name, count in epochs.items()
            if count > 1
        ]

    def checked_batch(self, view: BatchView, step: int) -> CheckedBatch:
        """A batch with its documents."""
        arrays = view.arrays
        documents = [view.documents.of_row(row) for row in range(view.rows)]

        def place(row: int, token: int | None) -> str:
            # The stream's own address has the step already.
            return str(at(view.address, row=row, token=token))  # type: ignore[arg-type]

        tokens = np.asarray(arrays["tokens"]).astype(np.int64)
        segments = np.asarray(arrays["segments"]).astype(np.int64)
        self._note_messages(documents, place)
        return CheckedBatch(
            tokens=tokens,
            real=segments != 0,
            place=place,
            loss=np.asarray(arrays["loss_mask"]) != 0,
            segments=segments,
            positions=np.asarray(arrays["positions"]).astype(np.int64),
            prompt=self._prompt(view, documents),
            pieces=[
                piece
                for row, of_row in enumerate(documents)
                for piece in self._pieces(of_row, tokens[row], segments[row])
            ],
            has_origins=True,
            cropped=frozenset(
                prepared.source.alias
                for prepared in self._stream.plan.prepared
                if prepared.packing.policy == "crop"
            ),
            known=self._known,
            sources=[view.sources[of_row[0].source].alias if of_row else "" for of_row in documents],
            weights=self._stream.plan.recipe.weights_at(step),
            truncated=self._truncated(documents),
            says_padding=all(stage is not None for stage in self._tokenizing),
        )

    def _pieces(self, documents: list[Document], tokens: Any, segments: Any) -> Iterator[Piece]:
        """The documents of a row; stored tokens may hold several in one sample."""
        filled = int((segments != 0).sum())
        for document in documents:
            stage, alias = (
                self._tokenizing[document.source],
                self._stream.plan.prepared[document.source].source.alias,
            )
            making: Making = "stored" if stage is None else "chat" if isinstance(stage, Chat) else "text"
            self._epochs.add((alias, document.epoch))
            limit = self._limits[document.source]
            cut = limit is not None and document.start + document.stop - document.at >= limit.length
            # What stops before the end of the row stops because the document does.
            piece = Piece(
                document.row,
                document.at,
                document.stop,
                alias,
                document.sample,
                document.start,
                document.epoch,
                begins=None if cut and limit is not None and limit.keep == "end" else document.start == 0,
                ends=None
                if (cut and limit is not None and limit.keep == "start")
                or document.stop >= filled == len(tokens)
                else True,
                made=making,
            )
            if making == "stored":
                yield from split(piece, tokens, self._known[alias].specials)
            else:
                yield piece

    def _prompt(self, view: BatchView, documents: list[list[Document]]) -> Any:
        """Tokens of conversations that a role says on which nothing is to be learned."""
        if not any(self._roles):
            return None
        prompt = np.zeros((view.rows, view.length), dtype=np.bool_)
        for row, of_row in enumerate(documents):
            for document in of_row:
                trained = self._roles[document.source]
                if trained is None or not self._may("roles"):
                    continue
                roles = self._samples.roles(document)[
                    document.start : document.start + document.stop - document.at
                ]
                said = [role != TEMPLATE and role not in trained for role in roles]
                prompt[row, document.at : document.at + len(said)] = said
        return prompt

    def _note_messages(self, documents: list[list[Document]], place: Any) -> None:
        """Conversations as they were registered, each once."""
        roles = self._linting.check(Roles)
        for row, of_row in enumerate(documents):
            for document in of_row:
                key = (document.source, document.sample)
                if (
                    roles is None
                    or not self._samples.has_roles(document.source)
                    or key in self._conversations
                ):
                    continue
                if not self._may("messages"):
                    continue
                self._conversations.add(key)
                vocabulary = self._stream.vocabularies[document.source]
                words = () if vocabulary is None else tuple(vocabulary.specials.values())
                roles.conversation(self._samples.messages(*key), place(row, document.at), words)

    def _truncated(self, documents: list[list[Document]]) -> tuple[int, int] | None:
        if not any(self._limits):
            return None
        cut = count = 0
        for document in (part for of_row in documents for part in of_row):
            limit = self._limits[document.source]
            prepared = self._stream.plan.prepared[document.source]
            if limit is None or prepared.growing is not None or not self._may("lengths"):
                continue
            count += 1
            cut += len(next(iter(prepared.tokens[document.sample].values()))) > limit.length
        return cut, count

    def look_at_sources(self) -> None:
        """What no batch shows: samples that are empty, and two sources that are one."""
        plan = self._stream.plan
        empty, same = self._linting.check(EmptyDocuments), self._linting.check(SameSource)
        for prepared in plan.prepared:
            stages = plan.recipe.stages_of(prepared.source)
            filtered = prepared.source.split != "all" or any(isinstance(stage, Filter) for stage in stages)
            if (
                empty is not None
                and prepared.growing is None
                and not filtered
                and tokenizing(stages) is not None
            ):
                empty.count(*_empty(prepared, _spelled(self._known[prepared.source.alias].specials)))
        for one, other in combinations(plan.prepared, 2):
            alike = plan.recipe.stages_of(one.source) == plan.recipe.stages_of(other.source)
            if same is None or not alike or one.source.split != other.source.split:
                continue
            digests = {shard.digest for shard in one.version.manifest.shards}
            shards = other.version.manifest.shards
            common = sum(shard.digest in digests for shard in shards) / max(1, len(shards))
            if common:
                same.same(one.source.alias, other.source.alias, common)

    def _may(self, what: str) -> bool:
        kept = self._looked if self._looked[what] < LOOKED_MAX else self._left
        kept[what] += 1
        return kept is self._looked


def _empty(prepared: Prepared, specials: frozenset[int]) -> tuple[int, int, list[str]]:
    """How many samples are empty, among some of all, and where the first are."""
    version = prepared.version
    chosen = np.unique(np.linspace(0, version.rows - 1, min(version.rows, _SAMPLED_MAX)).astype(np.int64))
    failed = {failure.row for failure in prepared.undecodable}
    lengths = [_length(next(iter(row.values())), specials) for row in prepared.tokens.take(chosen)]
    empty = [
        int(row)
        for row, length in zip(chosen.tolist(), lengths, strict=True)
        if not length and row not in failed
    ]
    return len(empty), len(chosen), [str(VersionAddress(version.address, row)) for row in empty[:5]]


def _spelled(specials: Specials) -> frozenset[int]:
    """Tokens that are no text; one that is unknown was."""
    return specials.every - specials.unknown


def _length(tokens: Any, specials: frozenset[int]) -> int:
    """Tokens that are not special, of few; more are enough in any case."""
    few = np.asarray(tokens)[:8].tolist()
    return sum(token not in specials for token in few)


def _specials(expected: Expected, stages: Sequence[Stage], vocabulary: Vocabulary | None) -> Specials:
    """The special tokens of a source: those of its tokenizer, and what its stage puts at ends."""
    specials, stage = expected.specials(vocabulary), tokenizing(stages)
    put = [stage.specials.eos] if isinstance(stage, Tokenize) else []
    # What stands between documents ends them.
    put += [packing.separator for packing in stages if isinstance(packing, Pack)]
    return specials.with_end(number for number in put if number is not None)


def _trained(stage: Tokenize | Chat | None) -> set[str] | None:
    """The roles on which something is learned; None where there are no roles."""
    if not isinstance(stage, Chat):
        return None
    template = find_template(Path(stage.tokenizer), stage.template)
    marked = _MARKED.search(template.text) is not None
    # A template that marks what is generated says it for everybody who is no prompt.
    return {"assistant", *stage.train_on} if marked else set(stage.train_on)
