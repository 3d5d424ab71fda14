"""Conversations: who speaks, what of it counts, and how turns end.

Where a recipe has a ``Chat`` stage, messages and roles are known. Everywhere else turns are found by the headers that chat templates write,
in the text of documents: ``<|im_start|>user``, ``[INST]``, ``### Instruction:`` and the like.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.checks.loss import counted
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import PLACES_MAX, Check, Cost, Finding, Severity, Tally
from penstock.view.lint.piece import Piece

_HEADER = re.compile(
    rb"<\|im_start\|>(?P<chatml>\w+)\n?|<\|start_header_id\|>(?P<llama>\w+)<\|end_header_id\|>\n*|"
    rb"<start_of_turn>(?P<gemma>\w+)\n?|<\|turn>(?P<turn>\w+)\n?|<\|start\|>(?P<harmony>\w+)[^<]{0,40}(?:<\|channel\|>\w+)?<\|message\|>|"
    rb"<(?:\||\xef\xbd\x9c)(?P<named>user|assistant|system|tool|User|Assistant)(?:\||\xef\xbd\x9c)>\n?|(?P<inst>\[INST\])|(?P<said>\[/INST\])|"
    rb"^### (?P<alpaca>Instruction|Input|Response|Human|Assistant|User):?[ \n]|"
    rb"^(?P<plain>USER|User|Human|ASSISTANT|Assistant|AI|SYSTEM|System): ",
    re.MULTILINE,
)
_ASSISTANT = {b"assistant", b"model", b"response", b"[/inst]", b"gpt", b"bot", b"ai"}
_PROMPT = {
    b"user",
    b"system",
    b"tool",
    b"human",
    b"instruction",
    b"input",
    b"[inst]",
    b"developer",
    b"ipython",
}
#: What a header looks like inside of what somebody says.
_INSIDE = re.compile(
    r"<\|im_start\|>|<\|im_end\|>|<\|start_header_id\|>|<\|eot_id\|>|<start_of_turn>|<end_of_turn>|\[/INST\]|"
    r"^### (?:Instruction|Response):|<[|｜](?:user|assistant|User|Assistant)[|｜]>",
    re.MULTILINE,
)
_CHATS_MIN = 4
_MOST = 0.5
_ALL = 0.95
_LEAK = 0.02
_DOUBLE_MIN = 0.05
_EMPTY_MIN = 0.02
_CUT_MIN = 0.3
_QUESTIONS = (0.6, 0.1)
_AFTER_MAX = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """Tokens of a piece that one role says."""

    role: bytes
    start: int
    stop: int

    @property
    def is_prompt(self) -> bool:
        """Whether somebody else than the model speaks."""
        return self.role in _PROMPT


def turns_of(batch: CheckedBatch, piece: Piece) -> list[Turn]:
    """Turns that headers in the text show; none where there is no prompt and answer."""
    data = batch.bytes_of(piece)
    if not data or (b"<" not in data and b"[" not in data and b":" not in data):
        return []
    headers = [
        (match.start(), match.end(), next(group for group in match.groups() if group).lower())
        for match in _HEADER.finditer(data)
    ]
    roles = [role for _, _, role in headers]
    if not (set(roles) & _PROMPT and set(roles) & _ASSISTANT):
        return []
    offsets = batch.offsets(piece, batch.of(piece).said)
    edges = [start for start, _, _ in headers[1:]] + [len(data)]
    turns = []
    for (_, begin, role), end in zip(headers, edges, strict=True):
        start = int(np.searchsorted(offsets, begin, side="left"))
        stop = int(np.searchsorted(offsets, end, side="right")) - 1
        if role in _PROMPT | _ASSISTANT and stop > start:
            turns.append(Turn(role, start, stop))
    return turns


class RenderedChats(Check):
    """Conversations that are plain documents to the recipe, so that prompts count like answers; or of which some prompts count."""

    kinds = ("chat-as-text", "loss-on-prompt")

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._as_text, self._leaks = Tally(), Tally()
        self._prompts = self._loss = 0

    def look(self, batch: CheckedBatch) -> None:
        """Find turns, and what of them counts."""
        if batch.loss is None and batch.has_origins:
            return
        for piece in batch.pieces:
            if piece.made == "chat":
                continue
            self._as_text.of += 1
            turns = turns_of(batch, piece)
            if not turns:
                continue
            counts = counted(batch, piece)
            self._loss += int(counts.sum())
            prompt = np.zeros(piece.length, dtype=np.bool_)
            answer = np.zeros(piece.length, dtype=np.bool_)
            for turn in turns:
                (prompt if turn.is_prompt else answer)[turn.start : turn.stop] = True
            if not prompt.any() or not answer.any():
                continue
            both = (counts[prompt].mean(), counts[answer].mean())
            wrong = prompt & counts
            at = piece.at + int(wrong.argmax())
            if min(both) >= _ALL:
                self._as_text.add(batch, piece.row, at, tokens=int(wrong.sum()))
            elif both[0] > _LEAK:
                self._leaks.add(batch, piece.row, at, tokens=int(wrong.sum()))

    def tell(self, tokens: int) -> list[Finding]:
        """Both."""
        findings = []
        if self._as_text.count >= _CHATS_MIN:
            tally = self._as_text
            sentence = f"{tally} documents are conversations as text, and {tally.tokens:,} tokens of prompts count in the loss"
            cost = Cost(tally.tokens / max(1, tokens), "loss")
            findings.append(
                self.found(sentence, tally.places, cost, kind="chat-as-text", severity="warning", of=tally.of)
            )
        if self._leaks.count >= 1:
            tally = self._leaks
            sentence = f"{tally.tokens:,} tokens of prompts count in the loss, in {tally.count:,} conversations of which others are masked"
            cost = Cost(tally.tokens / max(1, self._loss), "loss")
            findings.append(self.found(sentence, tally.places, cost, kind="loss-on-prompt"))
        return findings


class TurnEnds(Check):
    """Answers after which no token says that the turn is over, answers without content, and answers that a row cuts off."""

    kinds = ("no-end-of-turn", "empty-answers", "answers-cut")

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._open, self._empty, self._cut = Tally(), Tally(), Tally()

    def look(self, batch: CheckedBatch) -> None:
        """Look at every run of tokens that counts in a conversation."""
        if batch.loss is None:
            return
        width = batch.tokens.shape[1]
        for piece in batch.pieces:
            if piece.made != "chat":
                continue
            specials = batch.of(piece).specials
            if not specials.every:
                continue
            ids = batch.tokens[piece.row]
            for first, stop in _runs(counted(batch, piece)):
                first, stop = piece.at + first, piece.at + stop
                self._cut.of += 1
                if stop == piece.stop and piece.ends is None and stop == width:
                    if int(ids[stop - 1]) not in specials.every:
                        self._cut.add(batch, piece.row, stop - 1)
                    continue
                near = ids[max(first, stop - 1 - _AFTER_MAX) : min(stop + 1, piece.stop)]
                self._open.of += 1
                self._empty.of += 1
                if not set(near.tolist()) & (specials.every | specials.ends):
                    self._open.add(batch, piece.row, stop - 1, tokens=stop - first)
                if stop - first <= 3 and _says_nothing(batch, piece, first, stop):
                    self._empty.add(batch, piece.row, first)

    def tell(self, tokens: int) -> list[Finding]:
        """All three."""
        findings = []
        if self._open.count >= _CHATS_MIN and self._open.share >= _MOST:
            sentence = (
                f"{self._open} answers do not end with a special token: the model does not learn to stop"
            )
            cost = Cost(self._open.share, "answers")
            findings.append(self.found(sentence, self._open.places, cost, kind="no-end-of-turn"))
        for tally, kind, words, least in (
            (self._empty, "empty-answers", "say nothing", _EMPTY_MIN),
            (self._cut, "answers-cut", "are cut off by the end of a row", _CUT_MIN),
        ):
            if tally.count >= 2 and tally.share >= least:
                cost = Cost(tally.share, "answers")
                sentence = f"{tally} answers {words}"
                findings.append(self.found(sentence, tally.places, cost, kind=kind, severity="warning"))
        return findings


def _runs(mask: "np.ndarray[Any, np.dtype[np.bool_]]") -> Iterator[tuple[int, int]]:
    """First and end of every run of a mask."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _says_nothing(batch: CheckedBatch, piece: Piece, first: int, stop: int) -> bool:
    known = batch.of(piece)
    if known.vocabulary is None:
        return False
    words = [
        known.vocabulary.bytes_of(token) or b""
        for token in batch.tokens[piece.row, first:stop].tolist()
        if token not in known.specials.every
    ]
    return not b"".join(words).strip()


class Roles(Check):
    """Messages of conversations: roles that are swapped, templates inside of contents, special tokens that an answer spells."""

    kinds = ("roles-swapped", "double-template", "special-in-answer")

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._swapped, self._double, self._spelled = Tally(), Tally(), Tally()
        self._asked: Counter[str] = Counter()
        self._turns: Counter[str] = Counter()
        self._asking: list[str] = []

    def look(self, batch: CheckedBatch) -> None:
        """Nothing: messages are told apart from batches."""

    def conversation(
        self, messages: Sequence[Mapping[str, Any]], place: str, specials: Sequence[str]
    ) -> None:
        """Take note of one conversation, as it was registered."""
        said = [message for message in messages if message.get("role") in ("user", "assistant")]
        if not said:
            return
        for tally in (self._swapped, self._double, self._spelled):
            tally.of += 1
        roles = [str(message["role"]) for message in said]
        if roles[0] == "assistant" and roles[-1] == "user":
            _note(self._swapped, place)
        contents = [
            (message, text) for message in messages if isinstance(text := message.get("content"), str)
        ]
        if any(_INSIDE.search(text) for _, text in contents):
            _note(self._double, place)
        elif any(
            word in text
            for message, text in contents
            if message.get("role") == "assistant"
            for word in specials
        ):
            _note(self._spelled, place)
        for turn, text in contents:
            role = str(turn.get("role"))
            self._turns[role] += 1
            asks = text.rstrip().endswith(("?", "？", "؟"))
            self._asked[role] += asks
            if asks and role == "assistant" and len(self._asking) < PLACES_MAX:
                self._asking.append(place)

    def tell(self, tokens: int) -> list[Finding]:
        """All three."""
        findings = []
        if self._swapped.count >= _CHATS_MIN and self._swapped.share >= _MOST:
            sentence = f"{self._swapped} conversations begin with the assistant and end with the user"
            findings.append(self._finding(self._swapped, sentence, "roles-swapped", "error"))
        elif self._looks_swapped():
            asked = {role: self._asked[role] / self._turns[role] for role in ("assistant", "user")}
            sentence = f"the assistant asks in {asked['assistant']:.0%} of its turns, the user in {asked['user']:.0%}"
            findings.append(self._finding(self._swapped, sentence, "roles-swapped", "warning"))
        if self._double.count >= 2 and self._double.share >= _DOUBLE_MIN:
            sentence = f"{self._double} conversations have the headers of a template inside their contents"
            findings.append(self._finding(self._double, sentence, "double-template", "error"))
        if self._spelled.count:
            sentence = f"{self._spelled} conversations have an answer that spells a special token"
            findings.append(self._finding(self._spelled, sentence, "special-in-answer", "warning"))
        return findings

    def _looks_swapped(self) -> bool:
        most, least = _QUESTIONS
        users, answers = self._turns["user"], self._turns["assistant"]
        if min(users, answers) < 2 * _CHATS_MIN:
            return False
        return self._asked["assistant"] / answers >= most and self._asked["user"] / users <= least

    def _finding(self, tally: Tally, sentence: str, kind: str, severity: Severity) -> Finding:
        share = tally.share if tally.count else 1.0
        places = tally.places or self._asking
        return self.found(
            sentence, places, Cost(share, "conversations"), kind=kind, severity=severity, of=tally.of
        )


def _note(tally: Tally, place: str) -> None:
    tally.count += 1
    if len(tally.places) < PLACES_MAX:
        tally.places.append(place)
