"""Conversations as tokens, and for each token whether it counts in the loss; both are kept."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock._rust import digest
from penstock.formats.contract import Row
from penstock.registry.columns.library import installed
from penstock.registry.columns.measure import Computed, NothingToMeasure
from penstock.registry.tokenize.rendering import OWN_ROLES, Conversation, Renderer
from penstock.registry.tokenize.special_tokens import InText, SpecialUse, Spelling
from penstock.registry.tokenize.template import Template
from penstock.registry.tokenize.tokens import BYTES_PER_TOKEN, TokenLength
from penstock.registry.tokenize.turn_marks import Stretch, texts_in

if TYPE_CHECKING:
    from penstock.registry.version import Version

#: How tokenizers write a space.
_SPACES = ("▁", "Ġ")


@dataclass(frozen=True, kw_only=True)
class Telling:
    """How conversations are found in rows and told as text."""

    template: Template
    field: str = "messages"
    #: Roles whose turns count in the loss, unless the template says it.
    train_on: tuple[str, ...] = ("assistant",)
    #: The field with the tools of a conversation, if there is one.
    tools: str = ""
    #: What day it is for a template that asks.
    date: str = ""
    variables: Mapping[str, Any] = dataclass_field(default_factory=dict)
    #: What special tokens become that others than the model spell.
    in_text: InText = "plain"

    def identity(self) -> dict[str, str]:
        """Everything that determines the text and what of it is trained on."""
        parts = {
            "words": self.template.words,
            "variables": self.variables,
            "train_on": sorted(self.train_on),
            "tools": self.tools,
            "date": self.date,
        }
        return {
            "template": digest(self.template.text.encode()),
            "field": self.field,
            "telling": msgspec.json.encode(parts, order="deterministic").decode(),
        }


class ChatTokens:
    """How many tokens a conversation has; with the tokens, and one byte for each: whether it counts in the loss."""

    name = "tokens"
    dtype = "<u4"

    def __init__(self, tokenizer: str | Path, telling: Telling) -> None:
        self.telling = telling
        # Templates write special tokens themselves, so in their text they are tokens.
        self._tokens = TokenLength(tokenizer, specials=SpecialUse(in_text="token"))

    def identity(self) -> dict[str, str]:
        """By the content of tokenizer and template, not their names."""
        libraries = f"tokenizers {installed('tokenizers')}, jinja2 {installed('jinja2')}"
        identity = {"kind": "chat", "tokenizer": self._tokens.file.digest, "library": libraries}
        return identity | self.telling.identity() | self._choices()

    def _choices(self) -> dict[str, str]:
        """What of the identity came later: only where it changes tokens or masks."""
        spellable = bool(self._tokens.file.special_tokens)
        choices = self._tokens.choices() | SpecialUse(in_text=self.telling.in_text).identity(
            spellable=spellable
        )
        if self.telling.in_text == "error" and self._tokens.file.is_forgeable:
            choices["forged"] = "error"
        changed = self._renderer.changed_since_prefixes(self.telling.train_on)
        choices |= {"leads": "given"} if self._renderer.has_leads(self.telling.train_on) else {}
        choices |= {"thoughts": "any name"} if self._renderer.reads_thoughts else {}
        return choices | ({"turns": "marked"} if changed else {})

    @property
    def notes(self) -> list[str]:
        """What users should know of the tokenizer."""
        return self._tokens.notes

    @property
    def payloads(self) -> dict[str, str]:
        """Tokens, and which of them count in the loss."""
        return self._tokens.payloads | {"loss": "|u1"}

    def read(self, row: Row) -> Conversation:
        """The conversation of a row as text."""
        messages = _messages(row, self.telling.field)
        tools = _decoded(row.get(self.telling.tools)) if self.telling.tools else None
        spelling = self._tokens.file.spelling
        spells = spelling.pattern is not None and _spells(messages, tools, spelling)
        if self.telling.in_text == "error":
            self._refuse_forged(messages, tools)
        if not spells or self.telling.in_text == "token":
            conversation = self._renderer.conversation(messages, tools, self.telling.train_on)
            return replace(conversation, spells=True) if spells else conversation
        if self.telling.in_text == "error":
            raise NothingToMeasure("what is said spells a special token, which special_in_text forbids")
        conversation = self._renderer.conversation(
            messages, tools, self.telling.train_on, spelling=spelling.pattern
        )
        return replace(conversation, spells=True)

    def _refuse_forged(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> None:
        for text in _said_by_others(messages, tools):
            if (token := self._tokens.file.forged_token(text, self._tokens.tokenizer)) is not None:
                what = f"what is said becomes the special token {token!r} when the tokenizer normalizes it"
                raise NothingToMeasure(f"{what}, which special_in_text forbids")

    def spelled(self, samples: list[Conversation]) -> int:
        """How many conversations spell a special token where others than the model speak."""
        return sum(conversation.spells for conversation in samples)

    def compute(self, samples: list[Conversation]) -> Computed:
        """Encode some conversations. Templates write special tokens themselves, so the tokenizer adds none."""
        encodings = self._tokens.tokenizer.encode_batch(
            [conversation.text for conversation in samples], add_special_tokens=False
        )
        dtype = self.payloads["tokens"]
        encoded = [
            self._tokens_of(conversation, encoding)
            for conversation, encoding in zip(samples, encodings, strict=True)
        ]
        tokens = [np.array(ids, dtype=dtype) for ids, _ in encoded]
        loss = [
            _loss(conversation, offsets) for conversation, (_, offsets) in zip(samples, encoded, strict=True)
        ]
        return [len(ids) for ids in tokens], {"tokens": tokens, "loss": loss}

    def encoded(self, conversation: Conversation) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of one conversation, and of which characters each was made."""
        encoding = self._tokens.tokenizer.encode(conversation.text, add_special_tokens=False)
        return self._tokens_of(conversation, encoding)

    def _tokens_of(self, conversation: Conversation, encoding: Any) -> tuple[list[int], list[Stretch]]:
        """What was encoded, with characters in place of special tokens that are meant to be text."""
        ids, offsets = encoding.ids, encoding.offsets
        special = set(self._tokens.file.special_tokens.values())
        if self.telling.in_text == "token" or special.isdisjoint(ids):
            return ids, offsets
        is_forged = self._tokens.file.is_forged
        stops = [stop for _, stop in conversation.plain]
        new_ids: list[int] = []
        new_offsets: list[Stretch] = []
        for number, (start, stop) in zip(ids, offsets, strict=True):
            place = bisect_right(stops, start)
            said = place < len(stops) and conversation.plain[place][0] < stop
            if number in special and (said or is_forged(number, conversation.text[start:stop])):
                more, spans = self._as_text(conversation.text[start:stop])
                new_ids += more
                new_offsets += [(start + first, start + last) for first, last in spans]
            else:
                new_ids.append(number)
                new_offsets.append((start, stop))
        return new_ids, new_offsets

    def _as_text(self, text: str) -> tuple[list[int], list[Stretch]]:
        """The tokens of a stretch that spells a special token, without the space that some tokenizers put before text."""
        alone = self._plain.encode(text, add_special_tokens=False)
        if not alone.ids or text[:1].isspace() or not alone.tokens[0].startswith(_SPACES):
            return alone.ids, alone.offsets
        after = self._plain.encode(f"\n{text}", add_special_tokens=False)
        kept = [(n, (a - 1, b - 1)) for n, (a, b) in zip(after.ids, after.offsets, strict=True) if b > 1]
        if not kept or kept[0][1][0] < 0:
            return alone.ids, alone.offsets
        return [number for number, _ in kept], [span for _, span in kept]

    @cached_property
    def _plain(self) -> Any:
        return self._tokens.file.load_plain()

    def payload_bytes(self, version: "Version") -> int:
        """From the size of the shards."""
        return version.bytes // BYTES_PER_TOKEN * (int(self.payloads["tokens"][-1]) + 1)

    @cached_property
    def _renderer(self) -> Renderer:
        telling = self.telling
        return Renderer(telling.template, date=telling.date, variables=telling.variables)

    def __getstate__(self) -> dict[str, Any]:
        # Workers compile the template themselves.
        return {key: value for key, value in self.__dict__.items() if key not in ("_renderer", "_plain")}


def _spells(messages: Sequence[Mapping[str, Any]], tools: Any, spelling: Spelling) -> bool:
    """Whether anybody but the model spells a special token. A role that does could be any role, so it is none."""
    for message in messages:
        if message["role"] in spelling:
            raise NothingToMeasure(f"the role {message['role']!r:.60} spells a special token")
    return any(text in spelling for text in _said_by_others(messages, tools))


def _said_by_others(messages: Sequence[Mapping[str, Any]], tools: Any) -> Iterator[str]:
    """All texts but the model's own."""
    return texts_in([[message for message in messages if message["role"] not in OWN_ROLES], tools])


def _loss(conversation: Conversation, offsets: Sequence[tuple[int, int]]) -> "np.ndarray[Any, Any]":
    """1 for every token that has a character in a trained stretch."""
    trained = np.zeros(len(conversation.text) + 1, dtype=np.int64)
    for start, stop in conversation.trained:
        trained[start + 1 : stop + 1] = 1
    before = np.cumsum(trained)
    spans = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    return (before[spans[:, 1]] > before[spans[:, 0]]).astype(np.uint8)


def _messages(row: Row, field: str) -> list[Mapping[str, Any]]:
    if field not in row:
        raise NothingToMeasure(f"field {field!r} is missing, but conversations are made of it")
    messages = _decoded(row[field])
    if not isinstance(messages, list) or not messages:
        kind = "empty" if messages == [] else type(messages).__name__
        raise NothingToMeasure(f"field {field!r} is {kind}, not a list of messages")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise NothingToMeasure(f"a message of field {field!r} has no role: {message!r:.100}")
    return messages


def _decoded(value: Any) -> Any:
    """A value, or what the JSON text in it says."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if not isinstance(value, str | bytes):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise NothingToMeasure(f"expected JSON, got {value!r:.60}: {reason}") from reason
