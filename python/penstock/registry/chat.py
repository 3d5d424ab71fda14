"""Conversations as tokens, and for each token whether it counts in the loss; both are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock._rust import digest
from penstock.formats.contract import Row
from penstock.registry.library import installed
from penstock.registry.measuring import Computed, NothingToMeasure
from penstock.registry.rendering import Conversation, Renderer
from penstock.registry.template import Template
from penstock.registry.tokens import BYTES_PER_TOKEN, TokenLength

if TYPE_CHECKING:
    from penstock.registry.version import Version


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
        self._tokens = TokenLength(tokenizer)

    def identity(self) -> dict[str, str]:
        """By the content of tokenizer and template, not their names."""
        libraries = f"tokenizers {installed('tokenizers')}, jinja2 {installed('jinja2')}"
        found = {"kind": "chat", "tokenizer": self._tokens.identity()["tokenizer"], "library": libraries}
        return found | self.telling.identity()

    @property
    def payloads(self) -> dict[str, str]:
        """Tokens, and which of them count in the loss."""
        return self._tokens.payloads | {"loss": "|u1"}

    def read(self, row: Row) -> Conversation:
        """The conversation of a row as text."""
        messages = _messages(row, self.telling.field)
        tools = _decoded(row.get(self.telling.tools)) if self.telling.tools else None
        return self._renderer.conversation(messages, tools, self.telling.train_on)

    def compute(self, samples: list[Conversation]) -> Computed:
        """Encode some conversations. Templates write special tokens themselves, so the tokenizer adds none."""
        encodings = self._tokens.tokenizer.encode_batch(
            [each.text for each in samples], add_special_tokens=False
        )
        dtype = self.payloads["tokens"]
        tokens = [np.array(encoding.ids, dtype=dtype) for encoding in encodings]
        loss = [_loss(each, encoding.offsets) for each, encoding in zip(samples, encodings, strict=True)]
        return [len(each) for each in tokens], {"tokens": tokens, "loss": loss}

    def payload_bytes(self, version: "Version") -> int:
        """From the size of the shards."""
        return version.bytes // BYTES_PER_TOKEN * (int(self.payloads["tokens"][-1]) + 1)

    @cached_property
    def _renderer(self) -> Renderer:
        telling = self.telling
        return Renderer(telling.template, date=telling.date, variables=telling.variables)

    def __getstate__(self) -> dict[str, Any]:
        # Workers compile the template themselves.
        return {key: value for key, value in self.__dict__.items() if key != "_renderer"}


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
    found = _decoded(row[field])
    if not isinstance(found, list) or not found:
        kind = "empty" if found == [] else type(found).__name__
        raise NothingToMeasure(f"field {field!r} is {kind}, not a list of messages")
    for message in found:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise NothingToMeasure(f"a message of field {field!r} has no role: {message!r:.100}")
    return found


def _decoded(value: Any) -> Any:
    """A value, or what the JSON text in it says."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if not isinstance(value, str | bytes):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise NothingToMeasure(f"{value!r:.60} is no JSON: {reason}") from reason
