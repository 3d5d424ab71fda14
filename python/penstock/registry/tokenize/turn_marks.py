"""Marks in a rendered conversation: whose turn a stretch of text belongs to, without rendering any part of it alone.

Loops of a template that go over messages are made to write a mark where a message begins and ends, so one rendering shows all
turns, whatever the template makes of earlier ones. Marks are characters that Unicode keeps out of text. A further mark inside
the contents of every message tells whether the turns were found where the words are. Taken out again, the marks leave the
plain rendering; a template that looks at a mark gives another text, and the caller notices.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import nodes

#: All marks are among the 32 characters from U+FDD0 on, which no text may have.
MARK = re.compile("[\ufdd0-\ufdef]")
_BEGIN, _MIDDLE, _STOP, _END, _SAID = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3", "\ufdd4"
_PLAIN_OPEN, _PLAIN_CLOSE = "\ufdd5", "\ufdd6"
GENERATION_OPEN, GENERATION_CLOSE = "\ufdd7", "\ufdd8"
_DIGIT = 0xFDE0
_DIGITS = "[\ufde0-\ufdef]+"
_MARKS = re.compile(
    f"{_BEGIN}(?P<loop>{_DIGITS}){_MIDDLE}(?P<message>{_DIGITS}){_STOP}"
    f"|{_END}(?P<end>{_DIGITS}){_STOP}|{_SAID}(?P<said>{_DIGITS}){_STOP}"
    f"|(?P<plain>[{_PLAIN_OPEN}{_PLAIN_CLOSE}])|(?P<generated>[{GENERATION_OPEN}{GENERATION_CLOSE}])"
)
#: A place inside a word and outside of tags, where templates neither trim nor look.
_INSIDE = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|(?P<word>\w)(?=\w)|(?P<last>\S)(?=\s*$)")
#: Fields of a message that hold what is said.
_SAID_FIELDS = ("content", "reasoning_content", "reasoning", "thinking")
_BEGIN_CALL, _SET_CALL, _END_CALL = "penstock_begin", "penstock_set", "penstock_end"
Stretch = tuple[int, int]


@dataclass(frozen=True)
class Marked:
    """A rendering without its marks, and what they said."""

    text: str
    #: Stretches of text with the messages whose turn they are, in order; the innermost message is last.
    turns: list[tuple[int, int, tuple[int, ...]]]
    #: Where the last turn ends that a loop wrote.
    turns_end: int
    #: Where the contents of a message stand: character and message.
    said: list[tuple[int, int]]
    #: Stretches whose spelling of special tokens is text.
    plain: list[Stretch]
    #: What the template itself says is generated.
    generated: list[Stretch]


class TurnRecorder:
    """What loops of one rendering call: writes marks for messages, and nothing for anything else."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self._numbers = {id(message): number for number, message in enumerate(messages)}
        self._open: set[int] = set()

    def values(self) -> dict[str, Any]:
        """The functions under the names that an instrumented template calls."""
        return {_BEGIN_CALL: self._begin, _SET_CALL: self._set, _END_CALL: self._end}

    def _begin(self, loop: int, value: Any) -> str:
        number = self._numbers.get(id(value)) if isinstance(value, Mapping) else None
        if number is None:
            # The next round of a loop that was left in the middle.
            return self._end(loop)
        self._open.add(loop)
        return f"{_BEGIN}{_number(loop)}{_MIDDLE}{_number(number)}{_STOP}"

    def _set(self, loop: int, target: Any, value: Any) -> str:
        """A variable was set in a loop: a turn if it is the first message in this round, and the loop goes over something else."""
        is_message = isinstance(value, Mapping) and id(value) in self._numbers
        if not is_message or loop in self._open or id(target) in self._numbers:
            return ""
        return self._begin(loop, value)

    def _end(self, loop: int) -> str:
        if loop not in self._open:
            return ""
        self._open.discard(loop)
        return f"{_END}{_number(loop)}{_STOP}"


def instrument(template: nodes.Template) -> nodes.Template:
    """Make the loops of a parsed template call a recorder."""
    ends: dict[int, nodes.Output] = {}
    for number, loop in enumerate(list(template.find_all(nodes.For))):
        if not isinstance(loop.target, nodes.Name):
            continue
        target = loop.target.name
        _mark_sets(loop.body, number, target)
        begin = _call(_BEGIN_CALL, nodes.Const(number), nodes.Name(target, "load"))
        loop.body = [begin, *loop.body, _call(_END_CALL, nodes.Const(number))]
        ends[id(loop)] = _call(_END_CALL, nodes.Const(number))
    # Once more after the loop, which may have been left in the middle.
    for node in [template, *template.find_all(nodes.Node)]:
        for name in node.fields:
            body = getattr(node, name)
            if isinstance(body, list) and any(id(statement) in ends for statement in body):
                joined = [
                    [statement, ends[id(statement)]] if id(statement) in ends else [statement]
                    for statement in body
                ]
                setattr(node, name, [statement for pair in joined for statement in pair])
    return template


def _mark_sets(body: list[Any], loop: int, target: str) -> None:
    """After every ``set`` of a loop, outside of loops and macros in it: the variable may be the message."""
    for node in list(body):
        if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
            arguments = (nodes.Name(target, "load"), nodes.Name(node.target.name, "load"))
            at = next(place for place, statement in enumerate(body) if statement is node)
            body.insert(at + 1, _call(_SET_CALL, nodes.Const(loop), *arguments))
        elif isinstance(node, nodes.If):
            for branch in (node, *node.elif_):
                _mark_sets(branch.body, loop, target)
            _mark_sets(node.else_, loop, target)


def _call(name: str, *arguments: nodes.Expr) -> nodes.Output:
    return nodes.Output([nodes.Call(nodes.Name(name, "load"), list(arguments), [], None, None)])


def mark_said(message: dict[str, Any], number: int) -> dict[str, Any]:
    """A message with a mark inside each of its contents."""
    mark = f"{_SAID}{_number(number)}{_STOP}"
    marked = dict(message)
    for name in _SAID_FIELDS:
        value = marked.get(name)
        if isinstance(value, str):
            marked[name] = _with_mark(value, mark)
        elif isinstance(value, list):
            marked[name] = [_part_with_mark(part, mark) for part in value]
    return marked


def said_texts(message: dict[str, Any]) -> list[str]:
    """The texts of a message's contents."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _part_with_mark(part: Any, mark: str) -> Any:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return part | {"text": _with_mark(part["text"], mark)}
    return part


def _with_mark(text: str, mark: str) -> str:
    """A mark in a text, and one more behind the thoughts that it begins with: templates leave those out."""
    thoughts, closed, answer = text.rpartition("</think>")
    if closed:
        return f"{_with_mark(thoughts, mark)}{closed}{_with_mark(answer, mark)}"
    for match in _INSIDE.finditer(text):
        if match["word"] or match["last"]:
            return text[: match.end()] + mark + text[match.end() :]
    return text


def mark_plain(value: Any, spelling: "re.Pattern[str]") -> Any:
    """A value in which every text that spells a special token has marks around it."""
    if isinstance(value, str):
        return spelling.sub(lambda match: f"{_PLAIN_OPEN}{match[0]}{_PLAIN_CLOSE}", value)
    if isinstance(value, Mapping):
        return {mark_plain(key, spelling): mark_plain(item, spelling) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mark_plain(item, spelling) for item in value]
    return value


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_in(key)
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def read_marks(rendered: str) -> Marked:
    """Take the marks out of a rendering."""
    reader = _Reader()
    at = 0
    for match in _MARKS.finditer(rendered):
        reader.text(rendered[at : match.start()])
        at = match.end()
        reader.mark(match)
    reader.text(rendered[at:])
    return reader.marked()


@dataclass
class _Reader:
    """Collects text and marks in order."""

    pieces: list[str] = field(default_factory=list)
    at: int = 0
    #: Loops that are open, with the message of each; the innermost is last.
    open: list[tuple[int, int]] = field(default_factory=list)
    turns: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    said: list[tuple[int, int]] = field(default_factory=list)
    plain: list[Stretch] = field(default_factory=list)
    generated: list[Stretch] = field(default_factory=list)
    plain_start: int = 0
    generation_start: int = 0
    depth: int = 0

    def text(self, piece: str) -> None:
        """Text belongs to the turns that are open."""
        if not piece:
            return
        self.pieces.append(piece)
        start, self.at = self.at, self.at + len(piece)
        if self.open:
            self._add(start, self.at, tuple(dict.fromkeys(message for _, message in self.open)))

    def _add(self, start: int, stop: int, messages: tuple[int, ...]) -> None:
        if self.turns and self.turns[-1][1:] == (start, messages):
            self.turns[-1] = (self.turns[-1][0], stop, messages)
        else:
            self.turns.append((start, stop, messages))

    def mark(self, match: "re.Match[str]") -> None:
        """One mark."""
        if match["message"]:
            self._close(_value(match["loop"]))
            self.open.append((_value(match["loop"]), _value(match["message"])))
        elif match["end"]:
            self._close(_value(match["end"]))
        elif match["said"]:
            self.said.append((self.at, _value(match["said"])))
        elif match["plain"] == _PLAIN_OPEN:
            self.plain_start = self.at
        elif match["plain"]:
            self.plain.append((self.plain_start, self.at))
        elif match["generated"] == GENERATION_OPEN:
            self.generation_start = self.at if self.depth == 0 else self.generation_start
            self.depth += 1
        else:
            self.depth -= 1
            if self.depth == 0 and self.at > self.generation_start:
                self.generated.append((self.generation_start, self.at))

    def _close(self, loop: int) -> None:
        """A loop ends, or goes on with its next message; loops inside it have ended too."""
        for place, (number, _) in enumerate(self.open):
            if number == loop:
                del self.open[place:]
                return

    def marked(self) -> Marked:
        """What was collected. What comes after the last turn belongs to it, or to the one message that speaks there."""
        end = self.turns[-1][1] if self.turns else self.at
        if end < self.at:
            speaking = {message for at, message in self.said if at > end}
            self._add(end, self.at, tuple(speaking) if len(speaking) == 1 else self.turns[-1][2])
        return Marked("".join(self.pieces), self.turns, end, self.said, self.plain, self.generated)


def _number(number: int) -> str:
    return "".join(chr(_DIGIT + int(digit, 16)) for digit in f"{number:x}")


def _value(digits: str) -> int:
    return int("".join(f"{ord(digit) - _DIGIT:x}" for digit in digits), 16)
