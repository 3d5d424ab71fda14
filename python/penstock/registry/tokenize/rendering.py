"""From a conversation to text, with a chat template, and which stretches of the text the model is trained to say.

Templates are rendered as Hugging Face renders them, in Jinja's sandbox. A template that marks what is generated
(``{% generation %}``) says itself which stretches those are. For others the whole conversation is rendered once more with marks
(see ``turn_marks``): a turn is trained from after the header that a generation prompt gives to its end. The rendering with
marks must be the plain one without them; a conversation for which it is not counts as one that nothing can be made of.
Nothing here depends on the time of day: a template that asks what day it is gets the day that was declared.
"""

import datetime
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from penstock.errors import UsageError
from penstock.registry.columns.measure import NothingToMeasure
from penstock.registry.tokenize.template import Template
from penstock.registry.tokenize.turn_marks import (
    GENERATION_CLOSE,
    GENERATION_OPEN,
    MARK,
    Marked,
    Stretch,
    TurnRecorder,
    instrument,
    mark_plain,
    mark_said,
    read_marks,
    said_texts,
)

_MARKING = "penstock_marking"
_WAY_OUT = "put {% generation %} … {% endgeneration %} around what the model says in the template"
#: The tag that opens a thought: the model says it, even where a generation prompt says it first.
_THOUGHT = re.compile(
    r"[<\[◁][^<>\[\]\s]*(?:think|thought|reason)[^<>\[\]\s]*[>\]▷]|<[^<>\s]*>(?=(?:think|thought|reason))",
    re.IGNORECASE,
)
#: A tag that has begun and not ended.
_OPEN_TAG = re.compile(r"[<\[][^<>\[\]\s]*$")
_WORD = re.compile(r"\w+")
#: Names that thoughts go by in messages, the first that is there counts.
THOUGHTS = ("reasoning_content", "thinking", "reasoning")
_READS_THOUGHTS = re.compile(r"\b(?:reasoning_content|thinking)\b")
#: Whose words the model's own are: what they spell is meant.
OWN_ROLES = ("assistant", "model")
Message = Mapping[str, Any]
Messages = Sequence[Message]
#: What is rendered to learn a template's header.
_USER: Message = {"role": "user", "content": "question"}
_SYSTEM: Message = {"role": "system", "content": "rules"}
_ANSWER: Message = {"role": "assistant", "content": "answer"}
_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "tool", "arguments": {}}}],
}
_RESULT: Message = {"role": "tool", "name": "tool", "tool_call_id": "call00001", "content": "result"}
_TOOL = {"type": "function", "function": {"name": "tool", "description": "a tool", "parameters": {}}}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as text."""

    text: str
    #: First and end character of each stretch that counts in the loss, in order.
    trained: tuple[Stretch, ...]
    #: Stretches where what is said spells a special token that is text all the same.
    plain: tuple[Stretch, ...] = ()
    #: Whether any contents spell a special token.
    spells: bool = False


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a template ends a conversation."""

    #: The generation prompt, and what of it is the header of a turn.
    prompt: str
    header: str
    #: Whether every conversation ends with the prompt, asked for or not.
    stands: bool
    #: Whether what follows the last turn closes it: the prompt would take its place.
    closes: bool
    #: What closes a turn when another one follows, where the template writes it at the beginning of that one.
    between: str = ""


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
            #: Whether the template says itself what is generated.
            self.marks = _Generation.name_of(environment).is_used
            parsed = instrument(environment.parse(template.text))
            self._marked = self._template if self.marks else environment.from_string(parsed)
        except jinja2.TemplateSyntaxError as reason:
            raise UsageError(
                f"the chat template must be Jinja, but line {reason.lineno} cannot be parsed: {reason}"
            ) from reason
        self._variables = {**template.words, **(variables or {})}
        #: Whether it writes thoughts, which are found under any of their names.
        self.reads_thoughts = _READS_THOUGHTS.search(template.text) is not None

    def render(self, messages: Messages, tools: Any = None, *, add_generation_prompt: bool = False) -> str:
        """A conversation as text; one that the template cannot render is a row that nothing can be made of."""
        # Only said where it is wanted: variables of the recipe may say it, too.
        more = {"add_generation_prompt": True} if add_generation_prompt else {}
        return self._render(self._template, messages, tools, more)

    def _render(
        self, template: jinja2.Template, messages: Messages, tools: Any, more: Mapping[str, Any]
    ) -> str:
        values = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": False}
        try:
            return template.render({**values, **self._variables, **more})
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

    def conversation(
        self,
        messages: Messages,
        tools: Any,
        roles: Sequence[str],
        *,
        spelling: "re.Pattern[str] | None" = None,
    ) -> Conversation:
        """A conversation with what is trained: what the template marks, or the turns of some roles.

        What others than the model say and ``spelling`` matches is among its plain stretches.
        """
        copied = [_with_thoughts(message) for message in messages]
        text = self.render(copied, tools)
        if MARK.search(text):
            raise NothingToMeasure("it has characters that are kept out of text (U+FDD0 to U+FDEF)")
        _check_said(text, copied)
        if spelling is not None:
            tools = mark_plain(tools, spelling)
            copied = [
                message
                if message["role"] in OWN_ROLES
                else mark_plain(message, spelling) | {"role": message["role"]}
                for message in copied
            ]
        marked = self._with_marks(copied, tools)
        if marked.text != text:
            raise NothingToMeasure(
                f"the chat template looks into what is said, so marks in it change the text; {_WAY_OUT}"
                if not self.marks
                else "the chat template changes what its {% generation %} blocks say after they are closed; "
                "apply filters inside the block"
            )
        trained = marked.generated if self.marks else self._trained(marked, copied, roles, leads=True)
        return Conversation(text, tuple(trained), tuple(marked.plain))

    def _with_marks(self, messages: list[dict[str, Any]], tools: Any) -> Marked:
        if self.marks:
            return read_marks(self._render(self._template, messages, tools, {_MARKING: True}))
        said = [mark_said(message, number) for number, message in enumerate(messages)]
        return read_marks(self._render(self._marked, said, tools, TurnRecorder(said).values()))

    def _trained(
        self, marked: Marked, messages: Messages, roles: Sequence[str], *, leads: bool
    ) -> list[Stretch]:
        """The turns of the roles without their headers, and without other ``leads`` that the template writes into them."""
        wanted = {number for number, message in enumerate(messages) if message["role"] in roles}
        stretches = _leading(marked, wanted)
        begun: set[int] = set()
        for start, stop, by in marked.turns:
            # What is written inside the turns of others is not the model's.
            if wanted.issuperset(by):
                first = start if by[0] in begun else self._after_header(marked, start, stop)
                if leads and first == start and by[0] not in begun:
                    answers = by[0] > 0 and messages[by[0] - 1]["role"] == "tool"
                    first = self._after_lead(marked.text, start, stop, answers=answers)
                begun.add(by[0])
                # What follows the last turn closes it, or is nobody's turn.
                after = start < marked.turns_end < stop and not self._ending.closes
                end = marked.turns_end if after else stop
                end += len(self._ending.between) if marked.text.startswith(self._ending.between, end) else 0
                stretches += [(first, end)] if first < end else []
        starts = [start for start, _ in stretches]
        for at, message in marked.said:
            # The mark comes after a character that is said.
            place = bisect_left(starts, at) - 1
            inside = place >= 0 and at <= stretches[place][1]
            if inside != (message in wanted):
                where = "a turn that is trained on" if inside else "no turn of its own"
                raise NothingToMeasure(
                    f"the chat template puts what {messages[message]['role']!r} says into {where}; {_WAY_OUT}"
                )
        return _joined(stretches)

    def _after_header(self, marked: Marked, start: int, stop: int) -> int:
        """Where a turn goes on after its header, which comes before anything that is said in it."""
        header = self.header
        next_said = bisect_right(marked.said, (start, len(marked.text)))
        said = min(stop, marked.said[next_said][0]) if next_said < len(marked.said) else stop
        at = marked.text.find(header, start, said) if header else -1
        return start if at < 0 else at + len(header)

    def _after_lead(self, text: str, start: int, stop: int, *, answers: bool) -> int:
        """Where a turn without the header itself goes on: after the header in other spaces, or after what closes an answer of
        tools.
        """
        word = self.header.strip()
        at = next((at for at in range(start, stop) if not text[at].isspace()), stop)
        if _WORD.search(word) and text.startswith(word, at, stop):
            return at + len(word)
        lead = self._tools_lead if answers else ""
        return start + len(lead) if lead and text.startswith(lead, start, stop) else start

    @cached_property
    def _tools_lead(self) -> str:
        """What the template writes into a turn before the answer to a tool, though the model is given it."""
        asked = [_USER, _CALL, _RESULT]
        try:
            ended = self._with_marks([dict(message) for message in asked], [_TOOL])
            opened = self.render(asked, [_TOOL], add_generation_prompt=True)
        except (NothingToMeasure, UsageError):
            return ""
        prompt = opened[ended.turns_end :] if opened.startswith(ended.text[: ended.turns_end]) else ""
        lead = self._answer(asked, [_TOOL]).partition(_ANSWER["content"])[0]
        shared = lead[: _common(lead, prompt)]
        return shared if shared.strip() else ""

    def has_leads(self, roles: Sequence[str]) -> bool:
        """Whether turns around tools have a lead that is not the header: their masks have had it."""
        if self.marks:
            return False
        messages = [dict(message) for message in (_USER, _CALL, _RESULT, _ANSWER)]
        try:
            marked = self._with_marks(messages, [_TOOL])
            with_leads, without = (
                self._trained(marked, messages, roles, leads=leads) for leads in (False, True)
            )
        except (NothingToMeasure, UsageError):
            return False
        return with_leads != without

    @property
    def header(self) -> str:
        """What the template writes before the model speaks: a generation prompt, without a thought that it opens."""
        return self._ending.header

    @cached_property
    def _ending(self) -> "_Ending":
        """How the template ends a conversation, learned from short ones."""
        for probe in ([_USER], [_SYSTEM, _USER]):
            for tools in (None, [_TOOL]):
                try:
                    return self._ending_of(probe, tools)
                except (NothingToMeasure, UsageError):
                    continue
        return _Ending("", "", stands=False, closes=True)

    def _ending_of(self, messages: Messages, tools: Any) -> "_Ending":
        asked = self._with_marks([dict(message) for message in messages], tools)
        closed, opened = asked.text, self.render(messages, tools, add_generation_prompt=True)
        turn = self._answer(messages, tools)
        if opened == closed:
            # What stands at the end of every conversation is a prompt if turns begin like it, or closes it.
            prompt = closed[asked.turns_end :]
            header = _unthought(prompt)
            stands = bool(header) and turn.startswith(header)
            return _Ending(
                prompt if stands else "", header if stands else "", stands=stands, closes=not stands
            )
        prompt = opened[_common(closed, opened) :]
        header = _unthought(prompt)
        if turn and header not in turn:
            header = _shared(turn.partition(_ANSWER["content"])[0], header)
        closes = not (opened.startswith(closed) and len(closed) > asked.turns_end)
        between = self._between(messages, tools, closed[asked.turns_end :])
        return _Ending(prompt, header, stands=False, closes=closes or bool(between), between=between)

    def _between(self, messages: Messages, tools: Any, tail: str) -> str:
        """What the turn of a question begins with to close the answer before it.

        It is what a conversation ends with as well, or what the first question does not have.
        """
        asking = [dict(message) for message in (*messages, _ANSWER, _USER)]
        try:
            marked = self._with_marks(asking, tools)
        except NothingToMeasure:
            return ""
        first, again = (
            "".join(marked.text[start:stop] for start, stop, by in marked.turns if by[0] == number)
            for number in (len(messages) - 1, len(asking) - 1)
        )
        beginning = tail if tail and again.startswith(tail) else again.removesuffix(first) if first else ""
        return beginning if _WORD.search(beginning) and _USER["content"] not in beginning else ""

    def _answer(self, messages: Messages, tools: Any) -> str:
        """The turn of an answer; empty where the template takes none."""
        try:
            answered = self._with_marks([dict(message) for message in (*messages, _ANSWER)], tools)
        except NothingToMeasure:
            return ""
        start = next((start for start, _, by in answered.turns if by[0] == len(messages)), len(answered.text))
        return answered.text[start:]

    def changed_since_prefixes(self, roles: Sequence[str]) -> bool:
        """Whether turns found by marks are other ones than those found by rendering prefixes, as was done before.

        They are where the header is only a part of the generation prompt, where a turn does not begin with the prompt, and, for
        those who train on what others say too, where text before the first turn was taken for a part of it.
        """
        if self.marks:
            return False
        try:
            marked = self._with_marks([dict(message) for message in (_USER, _ANSWER)], None)
        except (NothingToMeasure, UsageError):
            return True
        prompt = self._ending.prompt
        if self._ending.stands or self._ending.between:
            return True
        turns = {by[0]: start for start, _, by in reversed(marked.turns)}
        leads = bool(set(roles) - {"assistant"}) and turns.get(0, 1) > 0
        if 1 not in turns or (leads and not self._renders_no_messages(marked.text)):
            return True
        return not marked.text.startswith(prompt, turns[1]) or prompt != self.header

    def _renders_no_messages(self, text: str) -> bool:
        try:
            return text.startswith(self.render([], add_generation_prompt=True))
        except NothingToMeasure:
            return False


def _with_thoughts(message: Message) -> dict[str, Any]:
    """A message of its own, with its thoughts under the names that templates read, as Hugging Face passes them."""
    thoughts = next((message[name] for name in THOUGHTS if message.get(name) is not None), None)
    if thoughts is None:
        return dict(message)
    return {"thinking": thoughts, **message, "reasoning_content": thoughts}


def _check_said(text: str, messages: Sequence[dict[str, Any]]) -> None:
    """That what is said is in the text: templates of models that see leave out contents that are no parts, and templates of others
    write a list of parts as Python or JSON does, with all of its brackets.
    """
    for message in messages:
        content = message.get("content")
        if isinstance(content, list) and any(isinstance(part, dict) and "type" in part for part in content):
            # What a tool gives may well be meant as JSON.
            as_json = message["role"] != "tool" and _to_json(content) in text
            if as_json or str(content) in text:
                raise NothingToMeasure(
                    f"the chat template writes the parts that {message['role']!r} says as a list, brackets and all; "
                    "it wants contents as one text"
                )
    words = [
        match[0] for message in messages for said in said_texts(message) if (match := _WORD.search(said))
    ]
    if words and not any(word in text for word in words):
        raise NothingToMeasure(
            "the chat template writes nothing of what is said; it may want contents as a list of parts: "
            '[{"type": "text", "text": …}]'
        )


def _unthought(prompt: str) -> str:
    """A generation prompt up to the thought that it opens."""
    thought = _THOUGHT.search(prompt)
    return prompt[: thought.start()] if thought else prompt


def _common(closed: str, opened: str) -> int:
    """How far two renderings agree, without a tag that both have only begun."""
    agree = next((n for n, (a, b) in enumerate(zip(closed, opened, strict=False)) if a != b), len(closed))
    tag = _OPEN_TAG.search(closed, 0, agree)
    return tag.start() if tag and agree < len(closed) else agree


def _shared(lead: str, header: str) -> str:
    """What of a header stands before an answer: its beginning, or the longest piece of it that has a word."""
    begin = header[: _common(lead, header)]
    if _WORD.search(begin):
        return begin
    block = SequenceMatcher(None, lead, header, autojunk=False).find_longest_match()
    piece = lead[block.a : block.a + block.size]
    return piece if _WORD.search(piece) else begin


def _leading(marked: Marked, wanted: set[int]) -> list[Stretch]:
    """What comes before the first turn, if only trained messages speak there (a system prompt, as a rule)."""
    end = marked.turns[0][0] if marked.turns else len(marked.text)
    speaking = {message for at, message in marked.said if at <= end}
    return [(0, end)] if speaking and speaking <= wanted else []


def _joined(stretches: list[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for start, stop in stretches:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


class _Generation(Extension):
    """``{% generation %}``: gives its body as it is, between marks when they are asked for."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it
    #: Whether a template has such a block.
    is_used = False

    @staticmethod
    def name_of(environment: jinja2.Environment) -> "_Generation":
        """The extension of an environment."""
        return next(
            extension for extension in environment.extensions.values() if isinstance(extension, _Generation)
        )

    def parse(self, parser: Parser) -> nodes.Node:
        """Turn the block into a call with the body as its caller."""
        self.is_used = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_marked", [nodes.ContextReference()])
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _marked(self, context: Context, caller: Macro) -> str:
        body: str = caller()
        return f"{GENERATION_OPEN}{body}{GENERATION_CLOSE}" if context.get(_MARKING) else body


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
