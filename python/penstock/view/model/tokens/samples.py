"""One sample in its four stages: as it was registered, as text, as tokens, and where it stands in the model's input.

The stages are linked: every token knows the characters that it was made of, and every stretch of the input the tokens that
it holds. Text and tokens are made again by the very stages of the recipe; what was stored when they were measured is
compared, and a difference is said.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.data.feed.batch import Origin
from penstock.data.plan.plan import Plan
from penstock.data.plan.samples import token_measure
from penstock.data.stages import Chat, Map, Tokenize
from penstock.errors import UsageError
from penstock.registry.columns.measure import NothingToMeasure
from penstock.registry.tokenize.rendering import Conversation
from penstock.view.model.origins import origin_facts
from penstock.view.model.rows import VersionView
from penstock.view.model.tokens.batch import BatchView
from penstock.view.model.tokens.characters import joined_tokens
from penstock.view.model.tokens.documents import Document
from penstock.view.model.tokens.glyphs import shown_text
from penstock.view.model.tokens.vocabulary import KIND_NAMES, Vocabulary, tokenizing
from penstock.view.wire.batch_answers import (
    InputStretch,
    SampleStagesAnswer,
    SampleTokens,
    TemplatedPiece,
    TemplatedText,
)

#: Tokens of a sample that are shown, at most.
TOKENS_MAX = 20_000
#: The role of what the template itself writes.
TEMPLATE = "template"
_KEPT_MAX = 512


class Samples:
    """The samples of a plan, made again one by one."""

    def __init__(self, plan: Plan, vocabularies: Sequence[Vocabulary | None]) -> None:
        self._plan = plan
        self._vocabularies = vocabularies
        #: What makes tokens, by source: a template is compiled once.
        self._measures: dict[int, Any] = {}
        self._roles: dict[tuple[int, int], list[str]] = {}

    def has_roles(self, source: int) -> bool:
        """Whether the samples of a source are conversations."""
        return isinstance(self._stage(source), Chat)

    def roles(self, document: Document) -> list[str]:
        """The role that says each token of a sample."""
        key = (document.source, document.sample)
        if key not in self._roles:
            text, spans = self._text(*key), self._spans(*key)
            if text is None or spans is None:
                return []
            if len(self._roles) >= _KEPT_MAX:
                self._roles.clear()
            self._roles[key] = _roles_of(spans, _turns(text["text"], text["messages"]))
        return self._roles[key]

    def text_of(self, source: int, sample: int) -> str | None:
        """The text that a sample's tokens are made of; None where there is none."""
        content = self._text(source, sample)
        return None if content is None else str(content["text"])

    def messages(self, source: int, sample: int) -> list[Mapping[str, Any]]:
        """The messages of a conversation, as the template gets them; none where a sample is something else."""
        stage = self._stage(source)
        messages = self._row(source, sample).get(stage.field) if isinstance(stage, Chat) else None
        if isinstance(messages, str):
            messages = json.loads(messages)
        return [message for message in messages or () if isinstance(message, Mapping)]

    def stages(self, view: BatchView, row: int, token: int) -> SampleStagesAnswer:
        """The sample of a token in its four stages."""
        documents = [
            candidate for candidate in view.documents.of_row(row) if candidate.at <= token < candidate.stop
        ]
        if not documents:
            raise UsageError(f"token {token} of row {row} is padding, so it comes from no sample")
        document = documents[0]
        prepared = self._plan.prepared[document.source]
        origin = view.documents.origin(document)
        assert isinstance(origin, Origin)
        return {
            "source": prepared.source.alias,
            "origin": origin_facts(origin),
            "raw": VersionView(prepared.version).row(document.sample).to_json(),
            "templated": self._templated(document.source, document.sample),
            "tokens": self._tokens(document.source, document.sample),
            "input": self._inputs(view, document),
        }

    def _stage(self, source: int) -> Tokenize | Chat | None:
        return tokenizing(self._plan.recipe.stages_of(self._plan.prepared[source].source))

    def _text(self, source: int, sample: int) -> dict[str, Any] | None:
        """The text that tokens are made of, with what is trained on; None where there is none."""
        stage = self._stage(source)
        if stage is None:
            return None
        row = self._row(source, sample)
        if isinstance(stage, Tokenize):
            value = row.get(stage.field)
            text = value if isinstance(value, str) else ""
            return {"text": text, "sample": text, "trained": None, "messages": None}
        try:
            conversation = self._measure(source).read(row)
        except NothingToMeasure as reason:
            return {"text": "", "trained": (), "messages": [], "problem": str(reason)}
        assert isinstance(conversation, Conversation)
        messages = row.get(stage.field)
        return {
            "text": conversation.text,
            "sample": conversation,
            "trained": conversation.trained,
            "messages": messages if isinstance(messages, list) else [],
        }

    def _row(self, source: int, sample: int) -> Any:
        """The row that the stage which makes tokens gets: after the maps before it."""
        stage, prepared = self._stage(source), self._plan.prepared[source]
        row: Any = prepared.version[sample]
        for other in self._plan.recipe.stages_of(prepared.source):
            if other is stage:
                break
            if isinstance(other, Map) and not other.random:
                row = other.called(row)
        return row

    def _templated(self, source: int, sample: int) -> TemplatedText | None:
        content = self._text(source, sample)
        if content is None:
            return None
        text, trained = content["text"], content["trained"]
        turns = _turns(text, content["messages"]) if content["messages"] is not None else []
        edges = {0, len(text), *(edge for span in trained or () for edge in span)}
        edges |= {edge for start, stop, _ in turns for edge in (start, stop)}
        ordered = sorted(edges)
        pieces: list[TemplatedPiece] = [
            {
                "start": start,
                "stop": stop,
                "text": "\n".join(shown_text(line)[0] for line in text[start:stop].split("\n")),
                "role": next((role for a, b, role in turns if a <= start < b), TEMPLATE) if turns else "",
                "trained": trained is None or any(a <= start < b for a, b in trained),
            }
            for start, stop in pairwise(ordered)
        ]
        return {"characters": len(text), "pieces": pieces, "problem": content.get("problem", "")}

    def _tokens(self, source: int, sample: int) -> SampleTokens:
        stored = self._stored(source, sample)
        spans = self._spans(source, sample)
        separator = self._plan.prepared[source].packing.separator
        if separator is not None and len(stored):
            # Stored nowhere, and read after every sample all the same.
            stored = np.append(stored, separator)
            spans = None if spans is None else [*spans, (spans[-1][1], spans[-1][1])]
        vocabulary = self._vocabularies[source]
        ids = stored[:TOKENS_MAX].tolist()
        shown = [(str(n).encode(), 6) if vocabulary is None else vocabulary.display(n) for n in ids]
        left = len(stored) - len(ids)
        texts, kinds = [text.decode() for text, _ in shown], [int(kind) for _, kind in shown]
        return {
            "ids": ids,
            "texts": texts,
            # The same, with characters that several tokens share shown whole.
            "joined": joined_tokens(ids, texts, kinds, vocabulary),
            "kinds": [KIND_NAMES[kind] for kind in kinds],
            # Without them nothing is claimed about which characters a token was made of.
            "spans": spans[:TOKENS_MAX] if spans is not None and len(spans) == len(stored) else None,
            "cut": f"{left:,} tokens of {len(stored):,}" if left else "",
        }

    def _stored(self, source: int, sample: int) -> "np.ndarray[Any, Any]":
        prepared = self._plan.prepared[source]
        if prepared.growing is None:
            return np.asarray(next(iter(prepared.tokens[sample].values())))
        stage = self._stage(source)
        text = self._text(source, sample)
        if not isinstance(stage, Tokenize | Chat) or text is None:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(self._encoded(source, text)[0], dtype=np.int64)

    def _spans(self, source: int, sample: int) -> list[tuple[int, int]] | None:
        """The characters of every token of a sample."""
        stage, text = self._stage(source), self._text(source, sample)
        if stage is None or text is None:
            return None
        return self._encoded(source, text)[1]

    def _encoded(
        self, source: int, text: Mapping[str, Any]
    ) -> tuple[list[int], list[tuple[int, int]] | None]:
        """The tokens of a sample, made as they were when it was measured."""
        if "problem" in text:
            return [], []
        encoded: tuple[list[int], list[tuple[int, int]] | None] = self._measure(source).encoded(
            text["sample"]
        )
        return encoded

    def _measure(self, source: int) -> Any:
        """What makes the tokens of a source."""
        stage = self._stage(source)
        assert stage is not None
        if source not in self._measures:
            self._measures[source] = token_measure(stage)
        return self._measures[source]

    def _inputs(self, view: BatchView, document: Document) -> list[InputStretch]:
        """Where the batch has stretches of the sample."""
        mask = np.asarray(view.arrays["loss_mask"])
        return [
            {
                "row": stretch.row,
                "row_span": [stretch.at, stretch.stop],
                "token_span": [stretch.start, stretch.start + stretch.stop - stretch.at],
                "loss": int(mask[stretch.row, stretch.at : stretch.stop].sum()),
            }
            for row in range(view.rows)
            for stretch in view.documents.of_row(row)
            if (stretch.source, stretch.sample, stretch.epoch)
            == (document.source, document.sample, document.epoch)
        ]


def _turns(text: str, messages: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, str]]:
    """Where in the text each message stands: its content, looked for in order. What is not found is the template's."""
    turns, at = [], 0
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str) or not content:
            continue
        for words in (content, content.strip()):
            start = text.find(words, at) if words else -1
            if start >= 0:
                at = start + len(words)
                turns.append((start, at, str(message.get("role", ""))))
                break
    return turns


def _roles_of(spans: Sequence[tuple[int, int]], turns: Sequence[tuple[int, int, str]]) -> list[str]:
    roles = []
    for start, stop in spans:
        # A token that begins in the template and ends in a turn is the turn's.
        roles.append(next((role for a, b, role in turns if a < max(stop, start + 1) and start < b), TEMPLATE))
    return roles
