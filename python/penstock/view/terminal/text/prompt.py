"""A line that is typed at the foot of a page, without any screen.

It is no widget, so that nothing has to be made before the next key counts: who types ahead, or pastes, over a slow line loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.view.terminal.text import looks
from penstock.view.terminal.text.styled_line import Line, StyledText

#: Longer lines are no answers.
_TEXT_MAX = 4096


@dataclass
class Question:
    """What is asked, and what was typed so far."""

    words: str
    #: Called with what was typed.
    then: Callable[[str], object]
    text: str = ""
    #: The character before which the next one goes.
    at: int = 0
    #: Whether it was answered or left.
    ended: bool = False

    def __post_init__(self) -> None:
        self.at = len(self.text)

    def insert(self, typed: str) -> None:
        """Characters that were typed or pasted; of several lines the first."""
        kept = "".join(c for c in (typed.splitlines() or [""])[0] if c.isprintable())
        kept = kept[: _TEXT_MAX - len(self.text)]
        self.text = self.text[: self.at] + kept + self.text[self.at :]
        self.at += len(kept)

    def key(self, key: str, character: str | None) -> None:
        """A key that was pressed."""
        if key == "enter":
            self.ended = True
            if answer := self.text.strip():
                self.then(answer)
        elif key in ("escape", "ctrl+c"):
            self.ended = True
        elif key in ("backspace", "ctrl+h"):
            self.text = self.text[: max(0, self.at - 1)] + self.text[self.at :]
            self.at = max(0, self.at - 1)
        elif key == "delete":
            self.text = self.text[: self.at] + self.text[self.at + 1 :]
        elif key == "ctrl+u":
            self.text, self.at = self.text[self.at :], 0
        elif key in ("left", "right"):
            self.at = max(0, min(self.at + (1 if key == "right" else -1), len(self.text)))
        elif key in ("home", "end", "ctrl+a", "ctrl+e"):
            self.at = 0 if key in ("home", "ctrl+a") else len(self.text)
        elif character is not None:
            self.insert(character)

    def line(self, width: int) -> Line:
        """How it looks, with the place of the next character in sight."""
        words = self.words if len(self.words) < width // 2 else "> "
        room = max(1, width - len(words) - 1)
        first = max(0, self.at - room)
        return [
            StyledText(words, looks.BOLD),
            StyledText(self.text[first : self.at]),
            StyledText(self.text[self.at : self.at + 1] or " ", looks.REVERSE),
            StyledText(self.text[self.at + 1 : first + room + 1]),
        ]
