"""From a conversation to text, with a chat template, and which stretches of the text the model is trained to say.

Templates are rendered as Hugging Face renders them, in Jinja's sandbox. A template that marks what is generated
(``{% generation %}``) says itself which stretches those are. For others the conversation is rendered up to each turn: what a
turn adds is its stretch, without the header that a generation prompt would give. That needs a template that does not change
what came before when more is said; one that does is an error. Nothing here depends on the time of day: a template that asks
what day it is gets the day that was declared.
"""

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from penstock.errors import UsageError
from penstock.registry.measuring import NothingToMeasure
from penstock.registry.template import Template

#: Characters that Unicode keeps out of text; they enclose what is generated while a template is rendered.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARKS = re.compile(f"([{_OPEN}{_CLOSE}])")
_MARKING = "penstock_marking"
#: Without marks every trained turn is rendered twice more, with all that comes before it.
_TURNS_MAX = 1000
_SHOWN = 60
_HINT = "put {% generation %} … {% endgeneration %} around what the model says in the template"
Message = Mapping[str, Any]
Messages = Sequence[Message]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as text."""

    text: str
    #: First and end character of each stretch that counts in the loss, in order.
    trained: tuple[tuple[int, int], ...]


class Renderer:
    """A template, ready to render conversations in any thread."""

    def __init__(
        self, template: Template, *, date: str = "", variables: Mapping[str, Any] | None = None
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        if date:
            environment.globals["strftime_now"] = datetime.date.fromisoformat(date).strftime
        try:
            self._template = environment.from_string(template.text)
        except jinja2.TemplateSyntaxError as reason:
            raise UsageError(
                f"the chat template makes no sense at line {reason.lineno}: {reason}"
            ) from reason
        self._variables = {**template.words, **(variables or {})}
        #: Whether the template says itself what is generated.
        self.marks = _Generation.name_of(environment).found

    def render(self, messages: Messages, tools: Any = None, **more: Any) -> str:
        """A conversation as text; one that the template cannot render is a row that nothing can be made of."""
        values = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": False}
        try:
            return self._template.render(values | self._variables | more)
        except jinja2.UndefinedError as reason:
            if "strftime_now" in str(reason):
                raise UsageError(
                    "the chat template asks what day it is, which would differ from run to run",
                    hint='declare it: Chat(…, date="2024-07-26")',
                ) from reason
            raise NothingToMeasure(f"the chat template fails: {reason}") from reason
        # Templates apply filters and methods to whatever a row holds.
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
        ) as reason:
            raise NothingToMeasure(f"the chat template fails: {reason}") from reason

    def conversation(self, messages: Messages, tools: Any, roles: Sequence[str]) -> Conversation:
        """A conversation with what is trained: what the template marks, or the turns of some roles."""
        if self.marks:
            return self._by_marks(messages, tools)
        return self._by_turns(messages, tools, roles)

    def _by_marks(self, messages: Messages, tools: Any) -> Conversation:
        text = self.render(messages, tools)
        if _OPEN in text or _CLOSE in text:
            raise NothingToMeasure("it has characters that are kept out of text (U+FDD0, U+FDD1)")
        found, pieces = [], []
        at = depth = start = 0
        for piece in _MARKS.split(self.render(messages, tools, **{_MARKING: True})):
            if piece == _OPEN:
                start = at if depth == 0 else start
                depth += 1
            elif piece == _CLOSE:
                depth -= 1
                if depth == 0 and at > start:
                    found.append((start, at))
            else:
                at += len(piece)
                pieces.append(piece)
        if "".join(pieces) != text:
            raise UsageError(
                "the chat template changes what its {% generation %} blocks say after they are closed",
                hint="apply filters inside the block",
            )
        return Conversation(text, tuple(found))

    def _by_turns(self, messages: Messages, tools: Any, roles: Sequence[str]) -> Conversation:
        text = self.render(messages, tools)
        turns = [number for number, message in enumerate(messages) if message.get("role") in roles]
        if len(turns) > _TURNS_MAX:
            raise NothingToMeasure(
                f"it has {len(turns):,} turns to train on, at most {_TURNS_MAX:,} are told apart"
            )
        found = []
        for number in turns:
            start = self._start(text, messages[:number], tools)
            stop = len(self._prefix(text, messages[: number + 1], tools))
            if stop > start:
                found.append((start, stop))
        return Conversation(text, tuple(found))

    def _start(self, text: str, before: Messages, tools: Any) -> int:
        """Where a turn begins: after the generation prompt if its header is one, else after the turn before."""
        closed = self._prefix(text, before, tools) if before else ""
        try:
            opened = self.render(before, tools, add_generation_prompt=True)
        except NothingToMeasure:
            return len(closed)
        return len(opened) if text.startswith(opened) and len(opened) >= len(closed) else len(closed)

    def _prefix(self, text: str, messages: Messages, tools: Any) -> str:
        """A part of a conversation as text, which must be how the whole begins."""
        try:
            found = self.render(messages, tools)
        except NothingToMeasure as reason:
            raise UsageError(
                f"the chat template cannot render the first {len(messages)} turns of a conversation alone, "
                f"which shows where turns end: {reason}",
                hint=_HINT,
            ) from reason
        if text.startswith(found):
            return found
        differing = (n for n, (a, b) in enumerate(zip(found, text, strict=False)) if a != b)
        at = next(differing, len(text))
        raise UsageError(
            f"the chat template renders the first {len(messages)} turns of a conversation differently when more follows: "
            f"alone …{found[max(0, at - 20) : at + _SHOWN]!r}, then …{text[max(0, at - 20) : at + _SHOWN]!r}",
            hint=_HINT,
        )


class _Generation(Extension):
    """``{% generation %}``: gives its body as it is, between marks when they are asked for."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it
    #: Whether a template has such a block.
    found = False

    @staticmethod
    def name_of(environment: jinja2.Environment) -> "_Generation":
        """The extension of an environment."""
        return next(each for each in environment.extensions.values() if isinstance(each, _Generation))

    def parse(self, parser: Parser) -> nodes.Node:
        """Turn the block into a call with the body as its caller."""
        self.found = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_marked", [nodes.ContextReference()])
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _marked(self, context: Context, caller: Macro) -> str:
        body: str = caller()
        return f"{_OPEN}{body}{_CLOSE}" if context.get(_MARKING) else body


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face writes JSON in templates: Jinja's own filter would escape what HTML forbids."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
